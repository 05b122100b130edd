"""Right uses of Foundation, dispatch and Metal.

Each case is a function of extension/foundation.mm or metal.mm.
"""

import pathlib
import re

import pytest

EXTENSION = pathlib.Path(__file__).parent / "extension"
SOURCES = [(EXTENSION / name).read_text() for name in ("foundation.mm", "metal.mm")]
CHECKS = re.findall(r'^      \{"(.+)",$', "".join(SOURCES), re.MULTILINE)


def test_every_check_is_listed(extension):
    assert sorted(extension.metal_checks()) == sorted(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_metal(name, extension):
    extension.run_metal_check(name)

"""Tests correct uses of Foundation, libdispatch and Metal.

Each case is a function in extension/metal.mm.
"""

import pathlib
import re

import pytest

SOURCE = pathlib.Path(__file__).parent / "extension" / "metal.mm"
CHECKS = re.findall(r'^      \{"(.+)",$', SOURCE.read_text(), re.MULTILINE)


def test_every_check_is_listed(extension):
    assert sorted(extension.metal_checks()) == sorted(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_metal(name, extension):
    extension.run_metal_check(name)

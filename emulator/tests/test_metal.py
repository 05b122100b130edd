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


def test_compile_error_has_the_compilers_text(extension):
    assert extension.compile_error("kernel void f() {}") == ""
    text = extension.compile_error(
        "kernel void f(device float *x [[buffer(0)]]) {\n  x[0] = missing;\n}"
    )
    assert "program_source:2:10: error:" in text
    assert "missing" in text

"""python -m mps_emulator.msl"""

import pathlib
import subprocess
import sys

import pytest
from metal import HEADER

FRONT_END = pathlib.Path(__file__).parents[2] / "mps_emulator" / "msl"


@pytest.fixture
def build(tmp_path):
    """Runs `build` on a text; returns (status, output)."""

    def run(text, *options, name="kernels.metal"):
        if text is not None:
            (tmp_path / name).write_text(text)
        output = tmp_path / "library.so"
        done = subprocess.run(
            [sys.executable, str(FRONT_END), "build", *options, name, "--output", str(output)],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert (done.returncode == 0) == output.exists()
        return done.returncode, done.stdout

    return run


def test_includes(build, tmp_path):
    header = tmp_path / "parts" / "params.h"
    header.parent.mkdir()
    header.write_text("struct Params { int n; };\nint broken() { return WHAT; }\n")
    text = HEADER + '#include "params.h"\nkernel void k(device Params *p) {}\n'
    status, output = build(text, "-I", "parts")
    assert status != 0
    assert "parts/params.h:2:23: error: use of undeclared" in output
    assert "int broken() { return WHAT; }" in output
    header.write_text("struct Params { int n; };\n")
    status, output = build(text, "-I", "parts")
    assert status == 0, output


def test_missing_file(build):
    status, output = build(None, name="/nonexistent.metal")
    assert status != 0
    assert "No such file or directory: '/nonexistent.metal'" in output

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


def test_refusal(build):
    status, output = build("kernel void k(device float *a) {\n  double x;\n}\n")
    assert status != 0
    assert output == (
        "program_source:2:3: error: 'double' is not supported in Metal\n"
        "  double x;\n"
        "  ^\n"
        "1 error generated.\n"
    )


def test_includes_and_definitions(build, tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "params.h").write_text(
        "struct Params { int n; };\nint broken() { return WHAT; }\n"
    )
    text = HEADER + '#include "params.h"\nkernel void k(device Params *p) {}\n'
    status, output = build(text, "-I", "parts")
    assert status != 0
    assert "parts/params.h:2:23: error: use of undeclared" in output
    assert "int broken() { return WHAT; }" in output
    status, output = build(text, "-I", "parts", "-D", "WHAT=1")
    assert status == 0, output


def test_language_version(build):
    text = "auto f() { return [](int x) { return x; }; }\n"
    status, output = build(text, "--language-version", "3.1")
    assert status != 0
    assert "lambda expressions are not supported in Metal" in output
    assert "is not a language version" in build(text, "--language-version", "5.7")[1]
    assert build(text, "--language-version", "3.2")[0] == 0


def test_missing_file(build):
    status, output = build(None, name="/nonexistent.metal")
    assert status != 0
    assert "No such file or directory: '/nonexistent.metal'" in output


def test_loops_are_not_unrolled_to_the_last_for_a_cpu(tmp_path):
    # Full unrolling took 30 s of the compile time of a file of attention kernels.
    loops = "".join(
        f"#pragma clang loop unroll(full)\nfor (int {i} = 0; {i} < 16; ++{i})\n" for i in "ijk"
    )
    text = (
        HEADER
        + "kernel void k(device const float *a, device float *c) {\n"
        + loops
        + "c[16 * i + j] += a[16 * i + k] * a[16 * k + j];\n}\n"
    )
    built = []
    for number, source in enumerate([text, text.replace("#pragma clang loop unroll(full)", "")]):
        (tmp_path / "kernels.metal").write_text(source)
        output = tmp_path / f"{number}.so"
        command = [sys.executable, str(FRONT_END), "build", "kernels.metal"]
        subprocess.run([*command, "--output", str(output)], cwd=tmp_path, check=True)
        built.append(output.read_bytes())
    assert built[0] == built[1]

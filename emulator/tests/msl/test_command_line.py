"""python -m mps_emulator.msl"""

import pathlib
import subprocess
import sys

import pytest
from metal import HEADER

FRONT_END = pathlib.Path(__file__).parents[2] / "mps_emulator" / "msl"


@pytest.fixture
def check(tmp_path):
    """Runs `check` on a text; returns (status, output)."""

    def run(text, *options, name="kernels.metal"):
        (tmp_path / name).write_text(text)
        result = subprocess.run(
            [sys.executable, str(FRONT_END), "check", *options, name],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return result.returncode, result.stdout

    return run


def test_signatures(check):
    status, output = check(
        HEADER
        + "struct P { uint n; };\n"
        + "kernel void scale(device float *x, constant P &p [[buffer(5)]],\n"
        + "    threadgroup half4 *s, ushort2 i [[thread_position_in_grid]]) {\n"
        + "  threadgroup float t[8];\n"
        + "  t[0] = x[0];\n"
        + "  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
        + "}\n"
    )
    assert status == 0
    assert output == (
        "kernels.metal: 1 kernels\n"
        "  kernel scale\n"
        "    device float *x [[buffer(0)]]\n"
        "    constant P &p [[buffer(5)]]\n"
        "    threadgroup half4 *s [[threadgroup(0)]]\n"
        "    ushort2 i [[thread_position_in_grid]]\n"
        "    - 32 bytes of threadgroup memory\n"
        "    - barriers or simdgroup functions\n"
    )


def test_refusal(check):
    status, output = check("kernel void k(device float *a) {\n  double x;\n}\n")
    assert status != 0
    assert output == (
        "kernels.metal:2:3: error: 'double' is not supported in Metal\n"
        "  double x;\n"
        "  ^\n"
        "1 error generated.\n"
    )


def test_includes_and_definitions(check, tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "params.h").write_text(
        "struct Params { int n; };\nint broken() { return WHAT; }\n"
    )
    text = HEADER + '#include "params.h"\nkernel void k(device Params *p) {}\n'
    status, output = check(text, "-I", "parts", "-D", "WHAT=1")
    assert status == 0, output
    status, output = check(text, "-I", "parts")
    assert status != 0
    assert "parts/params.h:2:23: error: use of undeclared" in output
    assert "int broken() { return WHAT; }" in output


def test_language_version(check):
    text = "auto f() { return [](int x) { return x; }; }\n"
    assert check(text, "--language-version", "3.2")[0] == 0
    status, output = check(text, "--language-version", "3.1")
    assert status != 0
    assert "lambda expressions are not supported in Metal" in output
    status, output = check(text, "--language-version", "5.7")
    assert "is not a language version" in output


def test_several_files(tmp_path):
    good, bad = tmp_path / "good.metal", tmp_path / "bad.metal"
    good.write_text("kernel void k(device int *a) {}\n")
    bad.write_text("kernel int k(device int *a) {}\n")
    result = subprocess.run(
        [sys.executable, str(FRONT_END), "check", str(bad), str(good)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert result.returncode != 0
    assert "invalid return type 'int' for kernel function" in result.stdout
    assert "good.metal: 1 kernels" in result.stdout


def test_missing_file():
    result = subprocess.run(
        [sys.executable, str(FRONT_END), "check", "/nonexistent.metal"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert result.returncode != 0
    assert "No such file or directory: '/nonexistent.metal'" in result.stdout
    assert "Traceback" not in result.stdout


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

"""Tests of MTL_SHADER_VALIDATION=1: a bad access of a kernel does not end the program."""

import pytest

VALIDATED = {"MTL_SHADER_VALIDATION": "1", "MTL_SHADER_VALIDATION_REPORT_TO_STDERR": "1"}

# `x` has 4 elements.  The elements of `y` that the kernels reach lie outside of y's buffer.
CODE = """
library = torch.mps.compile_shader('''
#include <metal_stdlib>
using namespace metal;
struct Pair {{ int first[16]; }};
kernel void reach(device int *x, device int *y, device Pair *pairs,
                  uint i [[thread_position_in_grid]]) {{
  threadgroup int shared[4];
  shared[i] = 5;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  {statement}
}}''')
x = torch.arange(1, 5, dtype=torch.int32, device="mps")
y = torch.full((4,), 7, dtype=torch.int32, device="mps")
pairs = torch.full((16,), 9, dtype=torch.int32, device="mps")
library.reach(x, y, pairs, threads=4, group_size=4)
torch.mps.synchronize()
print(x.tolist(), y.tolist(), sorted(set(pairs.tolist())))
"""
X, Y, PAIRS = "[1, 2, 3, 4]", "[7, 7, 7, 7]", "[9]"


def invalid(what, offset=None):
    at = "an address far from all buffers" if offset is None else f"offset {offset}"
    return f'Invalid {what} at {at}, executing kernel function: "reach"'


@pytest.mark.planted("out of bounds")
@pytest.mark.parametrize(
    "statement, report, x",
    [
        ("x[i] = y[i + 4];", invalid("device load", 16), "[0, 0, 0, 0]"),
        ("if (i == 3) x[i] = y[i + 1];", invalid("device load", 16), "[1, 2, 3, 0]"),
        ("y[i + 4] = 1;", invalid("device store", 16), X),
        ("y[i + 4] += x[i];", invalid("device load", 16), X),
        ("if (i == 0) y[-1] = 1;", invalid("device store", -4), X),
        # No memory of the process is there.
        ("x[i] = y[i + (1 << 28)];", invalid("device load"), "[0, 0, 0, 0]"),
        ("y[i + (1 << 28)] = 1;", invalid("device store"), X),
        ("if (i == 0) pairs[0] = pairs[1];", invalid("device load", 64), X),
        ("if (i == 0) pairs[2] = pairs[0];", invalid("device store", 128), X),
        ("x[i] = shared[i + 4];", invalid("threadgroup load", 16), "[0, 0, 0, 0]"),
        ("shared[i + 4] = 1; x[i] = shared[i];", invalid("threadgroup store", 16), "[5, 5, 5, 5]"),
    ],
)
def test_an_access_outside_of_memory_is_printed(in_child, statement, report, x):
    """A load gives zeros, a store has no effect, and the program goes on."""
    child = in_child(CODE.format(statement=statement), **VALIDATED)
    assert child.code == 0, child.stderr
    lines = child.stderr.splitlines()
    assert report in lines
    assert lines[lines.index(report) + 1].endswith("emulated")
    assert lines[lines.index(report) + 2] == "  * frame #0: reach() - line 10"
    zeros = "pairs[0] = pairs[1]" in statement
    assert child.stdout.strip() == f"{x} {Y} {'[0]' if zeros else PAIRS}"


def test_a_place_is_printed_once(in_child):
    child = in_child(CODE.format(statement="x[i] = y[i + 4];"), **VALIDATED)
    assert child.stderr.count("Invalid") == 1


def test_nothing_is_printed_without_the_second_variable(in_child):
    """A Mac then reports to its log, and the program does not see that it is wrong."""
    child = in_child(CODE.format(statement="x[i] = y[i + 4];"), MTL_SHADER_VALIDATION="1")
    assert child.code == 0 and "Invalid" not in child.stderr
    assert child.stdout.strip() == f"[0, 0, 0, 0] {Y} {PAIRS}"


def test_a_right_kernel_prints_nothing(in_child):
    child = in_child(CODE.format(statement="x[i] += y[i] + shared[3 - i];"), **VALIDATED)
    assert child.code == 0 and child.stderr == ""
    assert child.stdout.strip() == f"[13, 14, 15, 16] {Y} {PAIRS}"


def test_the_race_checker_comes_first(in_child):
    child = in_child(
        CODE.format(statement="x[i] = y[i + 4];"), MPS_EMULATOR_CHECK_RACES="1", **VALIDATED
    )
    assert child.signal and len(child.fatal_lines) == 1
    assert "Invalid" not in child.stderr

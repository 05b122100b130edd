"""Tests of `python -m k2_mps_tests.kernels --validated`."""

import sys

import pytest

from k2_mps_tests.kernels import runner, validated
from k2_mps_tests.running import ran

# Runs the checks of swoosh with the text `after` put after the text `before` of its kernels.
PLANTED = """
import sys
from k2_mps_tests.kernels import on_mps, sources
before, after = {before!r}, {after!r}
text = sources.text("swoosh")
assert text.count(before) == 1
sources.text = lambda name: text.replace(before, before + after)
sys.exit(on_mps.run(names=["swoosh"], runs=1))
"""
STORE = "void Store(vec<T, 4> values, device T *to, int count) {\n"
LOAD = "float4 Load(device const T *from, int count, bool is_aligned) {\n"


@pytest.mark.parametrize(
    "before, after, report",
    [
        # The results of both kernels are right.
        (STORE, "to[1 << 22] = to[0];\n", "Invalid device store"),
        (LOAD, "if (from[1 << 22] != T(0)) return float4(7);\n", "Invalid device load"),
    ],
)
def test_an_access_outside_of_memory_fails_right_kernels(capfd, before, after, report):
    command = [sys.executable, "-c", PLANTED.format(before=before, after=after)]
    assert validated.run(command) == runner.WRONG
    said, printed = capfd.readouterr()
    assert report in printed and "swoosh" in printed
    assert "differ" not in said
    assert "accesses outside of memory" in said and "reported 0" not in said


def test_right_kernels_pass():
    done = ran(sys.executable, "-m", "k2_mps_tests.kernels", "two_float", "--validated")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "reported 0 accesses outside of memory" in done.stdout
    if sys.platform == "linux":
        assert "Metal's validation (emulated) reported" in done.stdout


def test_a_wrong_result_and_an_abort_are_not_hidden(capfd):
    assert validated.run([sys.executable, "-c", "import sys; sys.exit(5)"]) == 5
    assert validated.run([sys.executable, "-c", "import os; os.abort()"]) == 128 + 6
    assert "SIGABRT" in capfd.readouterr().out

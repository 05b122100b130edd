"""Tests isolated.py, and pytorch_suite.py with a small file of tests."""

import os
import pathlib
import subprocess
import sys

import pytest
import pytorch_suite

CHILD = """
import os, signal
import isolated

def judge(case):
    if case == "dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    if case == "raises":
        raise ValueError("no")
    if case == "stuck":  # like code in C++, during which Python handles no signal
        signal.signal(signal.SIGPROF, signal.SIG_IGN)
    while case in ("spins", "stuck"):
        pass
    return "fine", ""

groups = [["one", "dies", "two"], ["raises", "spins", "stuck", "three"]]
for case, (outcome, _) in sorted(isolated.run(judge, groups, seconds=1)):
    print(case, outcome)
"""


def test_crashes_exceptions_and_hangs_are_outcomes():
    # run() forks, and this process may have threads.  So the cases run in a new interpreter.
    result = subprocess.run(
        [sys.executable, "-c", CHILD],
        env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parent)},
        capture_output=True,
        text=True,
    )
    assert result.stdout.split("\n") == [
        "dies ended",
        "one fine",
        "raises broken",
        "spins slow",
        "stuck slow",
        "three fine",
        "two fine",
        "",
    ], result.stderr


def test_the_list_of_expected_outcomes_is_valid():
    expected, content = pytorch_suite.read_expected()
    assert expected and len(content["sha256"]) == 64


def test_differences_from_a_list_are_reported():
    outcomes = {"T.new": ("fails", "why"), "T.ok": ("passes", ""), "T.old": ("passes", "")}
    lines = pytorch_suite.complaints(outcomes, {"T.old": "fails"})
    assert [line.split(":")[0] for line in lines] == ["T.new", "T.old"]


TESTS = """
import unittest
import torch

class TestSums(unittest.TestCase):
    def test_right(self):
        self.assertEqual(torch.ones(3, device="mps").sum().item(), 3)

    def test_wrong(self):
        self.assertEqual(torch.ones(3, device="mps").sum().item(), 4)

    def test_seeds(self):
        numbers = []
        for _ in range(2):
            torch.manual_seed(230)
            numbers.append(torch.randn(3, device="mps"))
        self.assertTrue(torch.equal(*numbers))

    @unittest.skip("not today")
    def test_skipped(self):
        pass
"""


@pytest.fixture
def suite(tmp_path):
    """suite(*names) runs tests of a small test_mps.py; returns the exit status and the output."""
    file = tmp_path / "test_mps.py"
    file.write_text(TESTS)

    def run(*names):
        done = subprocess.run(
            [sys.executable, pytorch_suite.__file__, file, *names], capture_output=True, text=True
        )
        return done.returncode, done.stdout

    return run


def test_the_status_is_0_if_all_tests_pass(suite):
    status, said = suite("test_right", "test_seeds")
    assert status == 0 and "2 passes of 2 tests (emulated)" in said


def test_a_test_whose_outcome_differs_from_the_list_is_reported(suite):
    status, said = suite("TestSums")
    assert status == 1
    assert "TestSums.test_wrong: fails: AssertionError: 3.0 != 4; stated: passes" in said
    assert "1 skips" in said and "1 other than the list states" in said

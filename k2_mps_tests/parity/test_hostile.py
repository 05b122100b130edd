"""Runs some cases of hostile.py, and checks that it notices each kind of wrong call."""

import subprocess
import sys

import pytest

from k2_mps_tests.parity import hostile

# Calls of each kind: tensors, indexes, texts, ragged tensors, devices.
SAMPLE = r"k2.index_select\(w|k2.RaggedTensor\('|from_openfst|shape.compose|k2.intersect\("


@pytest.mark.parametrize("call", hostile.CALLS)
def test_the_good_calls_return(call):
    """Else an error of the good arguments would hide what a wrong argument does."""
    eval(call, {}, hostile.Variables("cpu"))


@pytest.mark.parametrize("form", hostile.VALUES)
def test_each_wrong_argument_can_be_made(form):
    """Else the program would skip this argument of all calls."""
    eval(form, {}, hostile.Variables("cpu"))


@pytest.fixture(scope="module")
def good_arguments():
    return {good for _, good, _ in hostile.cases()}


@pytest.mark.parametrize("form", hostile.CHANGES)
def test_each_change_applies_to_a_good_argument(form, good_arguments):
    def applies(good):
        variables = hostile.Variables("cpu")
        try:
            variables["x"] = eval(good, {}, variables)
            eval(form, {}, variables)
        except Exception:
            return False
        return True

    assert any(map(applies, good_arguments))


def test_each_public_function_has_a_call():
    assert set(hostile.names_without_a_call()) == {"random_fsa", "random_fsa_vec", "to_dot"}


@pytest.mark.parametrize("place", ["cpu", "host", "metal"])
def test_wrong_arguments_of_some_calls(place):
    command = [sys.executable, "-m", "k2_mps_tests.parity.hostile", "--place", place, SAMPLE]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


WORKER = """
import sys
from k2_mps_tests.parity import hostile
hostile.LIMIT = 1
found = [(call, "", "None") for call in (
    "int('1')",
    "1 / 0",
    "__import__('os').kill(__import__('os').getpid(), 11)",
    "__import__('time').sleep(9)",
    "(_ for _ in ()).throw(AssertionError())",
    "__import__('os').write(2, b'[ Stack-Trace: ]')",
)]
hostile.work(found, int(sys.argv[2]), "cpu")
"""


def test_each_kind_of_wrong_call_is_noticed():
    told = dict(hostile.run([None] * 6, [sys.executable, "-c", WORKER]))
    assert told == {
        0: "returned",
        1: "ZeroDivisionError: division by zero",
        2: "crash: -11",
        3: "hang",
        4: "no reason: AssertionError",
        5: "stack trace: returned",
    }

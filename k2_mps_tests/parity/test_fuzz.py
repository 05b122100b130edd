"""Runs some cases of fuzz_cases.py.

Further tests check where fuzz.py runs cases, and how fuzz.py reports a difference.
"""

import collections
import os
import runpy

import pytest
from hypothesis import strategies as st

from k2_mps_tests.parity import fuzz, fuzz_cases

NAMED = {"scores": fuzz_cases.SCORES_OF, "unary": fuzz_cases.UNARY, "ragged": fuzz_cases.RAGGED}
RANDOM = [
    (kind, name, place)
    for kind, (_, arguments) in fuzz.CASES.items()
    for name in NAMED.get(kind, [None])
    for place in (fuzz.PLACES if "place" in arguments else [None])
]


@pytest.mark.parametrize("kind, name, place", RANDOM)
def test_random_input(kind, name, place, monkeypatch):
    monkeypatch.setenv(fuzz.FORCE, "host")  # restores the variable after the test
    tally = collections.Counter()
    fixed = {"name": name, "place": place}
    assert fuzz.run_cases(kind, 1, tally, fixed, examples=20 if name else 50) is None
    assert tally[kind, "returned"] > 0


@pytest.fixture
def cases(monkeypatch):
    """Replaces fuzz.CASES by an empty table, to which a test adds a case."""
    monkeypatch.setattr(fuzz, "CASES", {})
    monkeypatch.setenv(fuzz.FORCE, "host")  # restores the variable after the test
    return fuzz.CASES


@pytest.mark.parametrize("option", [[], ["--place", "host"], ["--place", "metal"]])
def test_a_place_can_be_chosen_for_all_cases(cases, option):
    seen = set()

    def case(device, number):
        seen.add(os.environ[fuzz.FORCE])
        return number

    strategies = {"number": st.integers(), "place": st.sampled_from(fuzz.PLACES)}
    cases["own"] = (case, strategies)
    assert fuzz.main(["--seconds", "0.2", *option]) == 0
    assert seen == set(option[1:] or fuzz.PLACES)


def test_a_difference_is_reported_as_a_program(cases, capfd, tmp_path):
    def case(device, number):
        return number if device == fuzz.CPU or number < 7 else -1

    strategies = {"number": st.integers(0, 100), "place": st.sampled_from(fuzz.PLACES)}
    cases["own"] = (case, strategies)
    assert fuzz.main(["--seconds", "5", "--place", "metal"]) == 1
    said = capfd.readouterr().out
    program = said.split("to see it again:\n\n")[1].split("\n\n")[0]
    assert "number=7" in program and "place='metal'" in program
    file = tmp_path / "program.py"
    file.write_text(program)
    with pytest.raises(AssertionError, match="result is 7 on the CPU and -1 on mps"):
        runpy.run_path(str(file))  # in this process, because only here fuzz.CASES has the case


def test_each_kind_runs_even_without_time(cases):
    for kind in ("first", "second"):
        cases[kind] = (lambda device, x: x, {"x": st.integers(0, 9)})
    tally = collections.Counter()
    assert fuzz.fuzz(0, 1, ["first", "second"], tally) == []
    assert {kind for kind, _ in tally} == {"first", "second"}

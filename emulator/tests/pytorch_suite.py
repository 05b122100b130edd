"""Runs PyTorch's hand-written tests of the mps device on the emulated device.

    python tests/pytorch_suite.py test_mps.py              # all tests
    python tests/pytorch_suite.py test_mps.py TestMPS      # tests with TestMPS in their names

The file is test/test_mps.py of PyTorch's sources.  Each test runs in a separate process, so that
a crash or a hang ends only this test.  The command leaves out the class TestConsistency, because
`oracle.py` runs the samples of this class.

`pytorch_suite.toml` lists the tests that do not pass, and the reasons.  It also has the number of
tests that skip.  The command fails in these cases:

- A test that is not listed does not pass.
- A listed test does not have its listed outcome.
- In a run of all tests, the number of tests that skip is not the listed number.

A test with the listed outcome "not run" runs only if the command line names it.
"""

import argparse
import collections
import hashlib
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from typing import Any

import isolated
import oracle

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    import tomli as tomllib

EXPECTED = pathlib.Path(__file__).with_suffix(".toml")

_RAISED = re.compile(r"[\w.]*(Error|Exception|Slow)\b")


def load(file: pathlib.Path) -> dict[str, unittest.TestCase]:
    """Imports a test_mps.py as on a Mac; returns its tests by name."""
    real = subprocess.check_output

    def check_output(command, *arguments, **options):
        # test_mps.py runs sysctl to read the size of the Mac's memory.  The emulated Mac has 8 GB.
        if list(command)[:1] == ["sysctl"]:
            return str(8 << 30).encode()
        return real(command, *arguments, **options)

    with oracle.as_a_mac(), unittest.mock.patch.object(subprocess, "check_output", check_output):
        specification = importlib.util.spec_from_file_location("test_mps", file)
        module = importlib.util.module_from_spec(specification)
        sys.modules["test_mps"] = module  # pickle looks up classes in sys.modules
        specification.loader.exec_module(module)
    tests = {}
    pending = [unittest.defaultTestLoader.loadTestsFromModule(module)]
    while pending:
        test = pending.pop()
        if isinstance(test, unittest.TestSuite):
            pending += test
        elif not type(test).__name__.startswith("TestConsistency"):
            tests[test.id().removeprefix("test_mps.")] = test
    return tests


def judge(test: unittest.TestCase) -> tuple[str, str]:
    """Runs a test; returns its outcome ("passes", "skips" or "fails") and the reason."""
    os.chdir(tempfile.mkdtemp())
    result = unittest.TestResult()
    with oracle.as_a_mac():
        test.run(result)
    for _, text in result.failures + result.errors:
        raised = [line for line in text.splitlines() if _RAISED.match(line)]
        if raised and raised[-1].endswith("Slow"):
            # unittest has caught isolated.Slow, which must go on to isolated.py.
            raise isolated.Slow
        return "fails", raised[-1] if raised else text
    if result.unexpectedSuccesses:
        return "fails", "an unexpected success"
    for _, reason in result.skipped:
        return "skips", reason
    return "passes", ""


def read_expected() -> tuple[dict[str, str], dict[str, Any]]:
    """Reads pytorch_suite.toml; returns the outcomes by tests' names, and the whole file."""
    with open(EXPECTED, "rb") as file:
        content = tomllib.load(file)
    expected = {}
    for group in content["group"]:
        assert group["reason"].strip()
        assert group["outcome"] in ("fails", "ended", "not run")
        for name in group["tests"]:
            assert name not in expected, f"{name} is in the file twice"
            expected[name] = group["outcome"]
    return expected, content


def complaints(outcomes: dict[str, tuple[str, str]], expected: dict[str, str]) -> list[str]:
    """Returns a line for each test that neither skips nor has its expected outcome.

    Args:
      outcomes: the outcome and the detail of each test, by name.
      expected: the outcomes of the tests that are expected not to pass, by name.
    """
    lines = []
    for name, (outcome, detail) in sorted(outcomes.items()):
        stated = expected.get(name, "passes")
        if outcome in (stated, "skips"):
            continue
        if outcome == "passes":
            lines.append(f"{name}: passes; stated: {stated}")
        else:
            lines.append(f"{name}: {outcome}: {detail.strip()[-300:]}; stated: {stated}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path, help="PyTorch's test/test_mps.py")
    parser.add_argument("names", nargs="*", help="parts of tests' names (default: all)")
    options = parser.parse_args()
    if not options.file.is_file():
        parser.error(f"{options.file} does not exist; the file is test/test_mps.py of PyTorch")
    expected, content = read_expected()
    if hashlib.sha256(options.file.read_bytes()).hexdigest() != content["sha256"]:
        print(
            f"{EXPECTED.name} was made for another version of test_mps.py, which may be the cause "
            "of differences"
        )
    tests = load(options.file)
    chosen = [
        name
        for name in tests
        if any(part in name for part in options.names)
        or (not options.names and expected.get(name) != "not run")
    ]
    groups = [[name] for name in sorted(chosen, reverse=True)]
    outcomes = dict(isolated.run(lambda name: judge(tests[name]), groups, seconds=120))
    lines = complaints(outcomes, expected)
    table = collections.Counter(outcome for outcome, _ in outcomes.values())
    if not options.names:
        lines += [f"{name}: not in {options.file}" for name in sorted(expected.keys() - tests)]
        if table["skips"] != content["skips"]:
            lines.append(f"{table['skips']} tests skip; stated: {content['skips']}")
    print(*lines, sep="\n")
    print(", ".join(f"{number} {outcome}" for outcome, number in table.most_common()), end="")
    print(f" of {len(outcomes)} tests (emulated); {len(lines)} other than the list states")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs PyTorch's hand-written tests of the mps device on the emulated device.

    python tests/pytorch_suite.py test_mps.py              # all
    python tests/pytorch_suite.py test_mps.py TestMPS      # tests with this in their name

The file is PyTorch's test/test_mps.py, which is no part of the emulator.  Each
test runs in a process of its own, so a crash or a hang is its outcome.  The
command leaves out the class TestConsistency: `oracle.py` runs the same samples.

`pytorch_suite.toml` lists the tests that do not pass, with the reasons, and the number of tests
that skip.  The command fails if a test that is not listed does not pass, if a listed test has
another outcome than the listed one, or, in a run of all tests, if another number of tests skips.
A test with the outcome "not run" runs only if the command line names it.
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

import isolated
import oracle

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    import tomli as tomllib

EXPECTED = pathlib.Path(__file__).with_suffix(".toml")

_RAISED = re.compile(r"[\w.]*(Error|Exception|Slow)\b")


def load(file):
    """Imports a test_mps.py as on a Mac; returns {name: test}."""
    real = subprocess.check_output

    def check_output(command, *arguments, **options):
        if list(command)[:1] == ["sysctl"]:  # the memory of a Mac: 8 GB
            return str(8 << 30).encode()
        return real(command, *arguments, **options)

    with oracle.as_a_mac(), unittest.mock.patch.object(subprocess, "check_output", check_output):
        specification = importlib.util.spec_from_file_location("test_mps", file)
        module = importlib.util.module_from_spec(specification)
        sys.modules["test_mps"] = module  # where pickle looks
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


def judge(test):
    """Returns ("passes", "skips" or "fails", reason)."""
    os.chdir(tempfile.mkdtemp())
    result = unittest.TestResult()
    with oracle.as_a_mac():
        test.run(result)
    for _, text in result.failures + result.errors:
        raised = [line for line in text.splitlines() if _RAISED.match(line)]
        if raised and raised[-1].endswith("Slow"):
            raise isolated.Slow  # unittest took the exception for a failure
        return "fails", raised[-1] if raised else text
    if result.unexpectedSuccesses:
        return "fails", "an unexpected success"
    for _, reason in result.skipped:
        return "skips", reason
    return "passes", ""


def read_expected():
    """Returns ({name: outcome}, the file's content, a dictionary)."""
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


def complaints(outcomes, expected):
    """The tests whose outcome differs from the file, one line each."""
    lines = []
    for name, (outcome, detail) in sorted(outcomes.items()):
        stated = expected.get(name, "passes")
        if outcome in (stated, "skips"):
            continue
        if outcome == "passes":
            lines.append(f"{name}: no longer true: it {stated!r}; it passes")
        else:
            lines.append(f"{name}: {outcome}: {detail.strip()[-300:]}; stated: {stated}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=pathlib.Path, help="PyTorch's test/test_mps.py")
    parser.add_argument("names", nargs="*", help="parts of tests' names (default: all)")
    options = parser.parse_args()
    if not options.file.is_file():
        parser.error(f"{options.file} is not there: it is test/test_mps.py of PyTorch's sources")
    expected, content = read_expected()
    if hashlib.sha256(options.file.read_bytes()).hexdigest() != content["sha256"]:
        print(f"{EXPECTED.name} was made with another test_mps.py: differences may be of the file")
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

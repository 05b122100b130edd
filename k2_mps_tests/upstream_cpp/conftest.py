"""Makes a pytest test from each test in k2's test programs.

A program runs once with all of its tests, when pytest reaches the program's first test.
If a program crashes or hangs, the program's tests that did not run count as failed.
"""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple

import pytest
from k2mps.core.pins import tomllib

from k2_mps_tests.running import ran

BUILD = Path(os.environ["K2_TESTS"])
DEVICE = "mps" if "-DK2_WITH_MPS" in (BUILD / "build.ninja").read_text() else "cpu"
EXCEPTIONS = tomllib.loads(Path(__file__).with_name("exceptions.toml").read_text())[DEVICE]
# The time limit of a program.  The slowest program takes some seconds.
SECONDS = 500


def programs():
    """Returns the test programs, {name: path}."""
    found = sorted((BUILD / "bin").glob("*_test"))
    assert len(found) > 40, f"{BUILD}/bin has {len(found)} test programs"
    return {path.name: path for path in found}


def names(program):
    """Yields the tests of a program, as Suite.Name."""
    listed = ran(program, "--gtest_list_tests", check=True)
    suite = ""
    for line in listed.stdout.splitlines():
        text = line.split("#")[0].strip()
        if line.startswith("  "):
            yield suite + text
        elif text.endswith("."):
            suite = text


class Result(NamedTuple):
    """The result of a test of a program."""

    failure: str = ""  # why it failed; empty if it did not
    skipped: str = ""  # why the test skipped itself; empty if it did not


class Results:
    """Runs the test programs, and keeps the results of their tests."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._done: dict[Path, dict[str, Result]] = {}
        self._outputs: dict[Path, str] = {}  # the last lines of each program

    def of(self, path: Path, name: str) -> Result:
        if path not in self._done:
            self._done[path] = self._run(path)
        missing = Result(f"{path.name} did not reach this test:\n{self._outputs[path]}")
        return self._done[path].get(name, missing)

    def _run(self, path: Path) -> dict[str, Result]:
        report = self._folder / f"{path.name}.xml"
        status = 0
        try:
            result = subprocess.run(
                [path, f"--gtest_output=xml:{report}"],
                timeout=SECONDS,
                # To compile a kernel, the emulator starts MPS_EMULATOR_PYTHON.
                env={**os.environ, "MPS_EMULATOR_PYTHON": sys.executable},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            status = result.returncode
            self._outputs[path] = "\n".join(result.stdout.splitlines()[-40:])
        except subprocess.TimeoutExpired as error:
            self._outputs[path] = f"it took more than {error.timeout} seconds"
        results = {}
        if report.exists():
            for case in ElementTree.parse(report).iter("testcase"):
                results[f"{case.get('classname')}.{case.get('name')}"] = Result(
                    _messages(case, "failure"), _messages(case, "skipped")
                )
        # A program can crash after its last test.
        if status != 0 and results and not any(result.failure for result in results.values()):
            last = list(results)[-1]
            output = self._outputs[path]
            results[last] = Result(f"{path.name} ended with the status {status}:\n{output}")
        return results


def _messages(case: ElementTree.Element, kind: str) -> str:
    """Returns the messages of a test case's elements of this kind, one per line."""
    return "\n".join(element.get("message", kind) for element in case.iter(kind))


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    return Results(tmp_path_factory.mktemp("results"))


def pytest_generate_tests(metafunc):
    if "program" in metafunc.fixturenames:
        metafunc.parametrize(
            "program, name",
            [
                # If pytest has several processes, one process runs all tests of a program.
                pytest.param(
                    path, name, id=f"{path.name}-{name}", marks=pytest.mark.xdist_group(path.name)
                )
                for path in programs().values()
                for name in names(path)
            ],
        )

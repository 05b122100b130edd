"""Makes a pytest test from each test in k2's test programs.

A program runs once with all of its tests, when pytest reaches the program's first test.
If a program crashes or hangs, the program's tests that did not run count as failed.
"""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

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


class Results:
    """Runs the test programs, and keeps the results of their tests."""

    def __init__(self, folder):
        self._folder = folder
        self._done = {}

    def of(self, path, name):
        """Returns the reason why a test failed, or an empty text."""
        if path not in self._done:
            self._done[path] = self._run(path)
        failures, output = self._done[path]
        return failures.get(name, f"{path.name} did not reach this test:\n{output}")

    def _run(self, path):
        report = self._folder / f"{path.name}.xml"
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
            output = "\n".join(result.stdout.splitlines()[-40:])
        except subprocess.TimeoutExpired as error:
            output = f"it took more than {error.timeout} seconds"
        failures = {}
        if report.exists():
            for case in ElementTree.parse(report).iter("testcase"):
                failures[f"{case.get('classname')}.{case.get('name')}"] = "\n".join(
                    failure.get("message") for failure in case.iter("failure")
                )
        return failures, output


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

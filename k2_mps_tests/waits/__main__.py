"""Drops k2's waits for the device, one site at a time, and checks that the suites notice.

    k2mps build --no-demo -- -DCMAKE_BUILD_TYPE=RelWithDebInfo
    .venv/bin/python -m k2_mps_tests.waits [TEST]...

k2 waits for the device before the host touches shared memory (``Context::SyncIfOnHost()`` and its
callers).  Each source line that waits is a site.  First, the program runs the parity suite and k2's
own suite on the emulated device, and records for each test the sites at which a wait found work in
flight.  Then, for each site, the program repeats the tests in which a wait at this site found work.
This time, the program leaves out the waits at the site.  The suites notice the site if any of these
tests fails.

TEST is a file or a test of the parity suite.  If there is a TEST, the program runs no other tests.
If the build of k2 has no line tables, a site is a function instead of a line.

The program prints a table, and how many sites the suites notice.  Exit status: 1 if the suites do
not notice a site, or if no wait found work in flight.  The result shows that the suites find
missing waits on the emulated device, but not how k2 would fail on a Mac.
"""

import argparse
import collections
import dataclasses
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from k2_mps_tests import ending

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent

# Inlined functions that wait.  The site of such a wait is the line of the function's caller.
ON_BEHALF = ("EvalPtr<", "EvalAccessor<")


def _counter(name):
    """Returns the number of a counter in the emulator's library."""
    import mps_emulator  # `make build` installs it

    return [field.name for field in dataclasses.fields(mps_emulator.Counters)].index(name)


def _check(condition, message):
    if not condition:
        sys.exit(f"error: {message}")


class Suite(NamedTuple):
    """A pytest command line."""

    name: str  # the name in the report
    arguments: list  # the arguments of pytest, without the tests to collect
    tests: list  # the tests to collect


class Runner:
    """Runs pytest in a new process, in which the library of interpose.cc replaces k2's waits."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.library = self.directory / "libwaits.so"
        compiler = [os.environ.get("CXX", "c++"), *"-std=c++17 -O1 -shared -fPIC".split()]
        subprocess.run([*compiler, HERE / "interpose.cc", "-o", self.library, "-ldl"], check=True)

    def run(self, suite, tests, drop=(), record=os.devnull):
        """Runs tests of a suite.

        Args:
          tests: the tests for pytest to collect.
          drop: the sites whose waits to leave out, as (module, offset) pairs.
          record: the file to which the library writes the sites.
        Returns:
          'passed', 'failed', 'crashed' or 'hung'.
        """
        env = dict(
            os.environ,
            LD_PRELOAD=str(self.library),
            WAITS_COUNTER=str(_counter("waits_with_work")),
            WAITS_DROP=" ".join(f"{module} {offset}" for module, offset in drop),
            WAITS_RECORD=str(record),
            PYTORCH_ENABLE_MPS_FALLBACK="1",
            PYTHONPATH=os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        )
        command = [sys.executable, *"-m pytest -q -x --tb=no -p no:cacheprovider".split()]
        command += ["--rootdir", str(ROOT), "-p", "k2_mps_tests.waits.plugin"]
        command += [*suite.arguments, *tests]
        log = self.directory / "log.txt"
        with open(log, "w") as f:
            try:
                code = subprocess.run(
                    command, env=env, cwd=ROOT, stdout=f, stderr=subprocess.STDOUT, timeout=600
                ).returncode
            except subprocess.TimeoutExpired:
                return "hung"
        if code == 0:
            return "passed"
        if code == 1:
            return "failed"
        _check(code < 0 or code > 5, f"pytest ended with {code}:\n" + log.read_text()[-3000:])
        return "crashed"


def _source_lines(sites):
    """Returns a dict from (module, offset) to 'file:line (function)'."""
    extension = Path(importlib.util.find_spec("_k2").origin)
    libraries = {path.name: path for path in [extension, *extension.parent.glob("libk2*.so")]}
    symbolizer = shutil.which("llvm-symbolizer-19") or shutil.which("llvm-symbolizer")
    _check(symbolizer, "llvm-symbolizer is missing: apt-get install llvm-19")
    # A return address is the end of the call.  So the byte before this address belongs to the call.
    text = "".join(f"{libraries[module]} {offset - 1}\n" for module, offset in sites)
    out = subprocess.run(
        [symbolizer, "--output-style=JSON"], input=text, check=True, capture_output=True, text=True
    ).stdout
    lines = {}
    for site, answer in zip(sites, out.splitlines()):
        frames = json.loads(answer)["Symbol"]
        outside = [f for f in frames if not any(n in f["FunctionName"] for n in ON_BEHALF)]
        frame = (outside or frames)[0]
        file = frame["FileName"]
        if not file:
            lines[site] = frame["FunctionName"].split("(")[0]
            continue
        file = file[file.index("k2/csrc") if "k2/csrc" in file else file.index("k2/python") :]
        # Code that the compiler merged from several lines has no line number.
        where = frame["Line"] or frame["FunctionName"].split("(")[0]
        lines[site] = f"{file}:{where}"
    return lines


def _suites(only, tests_of_k2):
    """Returns the suites to run.

    Args:
      only: the tests of the parity suite that the user has named; empty for both suites.
      tests_of_k2: the folder of k2's own tests.
    """
    if only:
        return [Suite("parity", [], only)]
    return [
        # In tests of threads, the device has work for which k2 need not wait.
        Suite("parity", ["--ignore=k2_mps_tests/parity/test_threads.py"], ["k2_mps_tests/parity"]),
        Suite(
            "upstream-mps",
            ["-p", "k2_mps_tests.upstream.seed", "-p", "k2_mps_tests.upstream.plugin"],
            [str(tests_of_k2)],
        ),
    ]


def _recorded(runner, suites):
    """Runs the suites with all waits.

    Returns:
      {(module, offset) of a site: {name of a suite: tests in which a wait there found work}}.
    """
    users = collections.defaultdict(lambda: collections.defaultdict(list))
    for suite in suites:
        record = runner.directory / f"{suite.name}.txt"
        print(f"recording the waits of {suite.name} (emulated)", flush=True)
        result = runner.run(suite, suite.tests, record=record)
        _check(result == "passed", f"{suite.name} {result} although all waits are in place")
        for line in record.read_text().splitlines():
            test, module, offset = line.rsplit(" ", 2)
            users[module, int(offset)][suite.name].append(test)
    return users


def _without_waits(runner, suites, sites, users):
    """Runs the tests that need the waits at some sites, without these waits.

    Args:
      users: a result of `_recorded`.
    Returns:
      The number of these tests, and what the first suite that notices has reported; None if no
      suite notices.
    """
    num_tests, outcome = 0, None
    for suite in suites:
        names = sorted({test for site in sites for test in users[site][suite.name]})
        num_tests += len(names)
        if names and outcome is None:
            result = runner.run(suite, names, drop=sites)
            outcome = None if result == "passed" else f"{suite.name} {result}"
    return num_tests, outcome


def main():
    parser = argparse.ArgumentParser(
        prog="k2_mps_tests.waits",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tests", nargs="*", metavar="TEST", help="default: both suites")
    only = parser.parse_args().tests
    tests = ROOT / "build/k2/k2/python/tests"
    _check(tests.is_dir(), f"{tests} is missing: k2mps build")

    suites = _suites(only, tests)
    with tempfile.TemporaryDirectory() as directory:
        runner = Runner(directory)
        users = _recorded(runner, suites)
        _check(users, "no wait of these tests found work in flight")
        by_line = collections.defaultdict(list)
        for site, line in _source_lines(list(users)).items():
            by_line[line].append(site)
        print(
            f"{len(by_line)} source lines wait for work in flight, at "
            f"{len(users)} calls of the compiled code\n"
        )

        unnoticed = []
        print(f"{'tests':>5}  {'without it':<22}line", flush=True)
        for line in sorted(by_line):
            num_tests, outcome = _without_waits(runner, suites, by_line[line], users)
            if outcome is None:
                unnoticed.append(line)
            print(f"{num_tests:>5}  {outcome or 'unnoticed':<22}{line}", flush=True)

    noticed = len(by_line) - len(unnoticed)
    print(f"\n{noticed} of {len(by_line)} sites are noticed when dropped (emulated)")
    for line in unnoticed:
        print(f"unnoticed: {line}")
    return bool(unnoticed)


if __name__ == "__main__":
    ending.run(main)

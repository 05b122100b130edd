"""The test suites: their table `SUITES`, and functions that run them and report the results.

Each suite is a run of pytest in .venv, which writes the results into a JUnit file.
"""

import collections
import dataclasses
import os
import re
import shlex
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from k2mps.build import build_tree, builder
from k2mps.build.doctor import Device
from k2mps.build.environment import Environment
from k2mps.build.request import Built, Request
from k2mps.core import errors, process
from k2mps.core.progress import Reporter
from k2mps.run import program
from k2mps.stack.checkout import Checkout

# The progress in pytest's lines, such as "[ 12%]".
_PERCENT = re.compile(r"\[ *(\d+)%\]")
_NOTHING_COLLECTED = 5
_SHOWN_LINES = 80

# A pytest plugin that skips the tests that need k2, for a machine without k2.
_WITHOUT_K2 = "k2_mps_tests.without_k2"

# A folder of Linux whose files are in memory.
_MEMORY = "/dev/shm"
# How many free bytes a suite needs there.
_ROOM = 4 << 30

# If a test takes longer than this, faulthandler prints the stack of each thread and ends the run,
# even if the test holds Python's global lock.  The longest tests take about a minute.
_SECONDS_PER_TEST = 600


@dataclasses.dataclass(frozen=True)
class Suite:
    """A run of pytest."""

    name: str
    tests: str  # the folder of the tests, in the project; in the checkout if it begins with {k2}/
    device: Device = Device.MPS  # the device for which .venv and k2 must be built
    on_k2: bool = True  # whether the suite needs a build of k2
    marked: bool = False  # whether only the tests with the marker `k2` need k2
    cpp: bool = False  # whether the suite needs the build of the C++ tests
    # The value of pytest-xdist's option --dist, which distributes the tests to several processes.
    # If it is empty, one process runs all tests.
    spread: str = "worksteal"
    arguments: tuple[str, ...] = ()  # further arguments for pytest
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)  # environment variables
    platforms: tuple[str, ...] = ("linux", "darwin")  # `sys.platform` must be one of these
    extras: tuple[str, ...] = ()  # groups of pyproject.toml that the suite needs besides "test"
    many_files: bool = False  # whether the tests write many files, which is slow on a disk
    file: str = ""  # the only file of the folder to run; empty for all

    @property
    def title(self) -> str:
        """The name, the file, and whether the device is emulated."""
        file = f"/{self.file}" if self.file else ""
        return self.name + file + (" (emulated)" if self.device.emulated else "")

    @property
    def log_name(self) -> str:
        """The name of the suite's files in build/tests, without their suffixes."""
        return f"{self.name}-{Path(self.file).stem}" if self.file else self.name


SUITES = (
    Suite("tooling", "k2_mps_tests/tooling", device=Device.CPU, on_k2=False, many_files=True),
    Suite("torch", "k2_mps_tests/macos_torch", device=Device.CPU, on_k2=False),
    Suite("emulator", "emulator/tests", on_k2=False, platforms=("linux",)),
    Suite("kernels", "k2_mps_tests/kernels", on_k2=False),
    Suite("parity", "k2_mps_tests/parity"),
    Suite("k2_mac", "k2_mac/tests"),
    Suite(
        "examples", "k2_mps_tests/examples", marked=True, extras=("examples",), spread="loadgroup"
    ),
    Suite("docs", "k2_mps_tests/docs", marked=True, spread="", extras=("docs", "examples")),
    Suite(
        "upstream-cpu",
        "{k2}/k2/python/tests",
        device=Device.CPU,
        arguments=("-p", "k2_mps_tests.upstream.seed"),
        # This value keeps torch from loading the emulated mps device.
        variables={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    ),
    Suite(
        "upstream-mps",
        "{k2}/k2/python/tests",
        arguments=("-p", "k2_mps_tests.upstream.seed", "-p", "k2_mps_tests.upstream.plugin"),
        # The tests compare k2 with torch's CTC loss.  In older versions of torch, this loss has no
        # kernel for mps.  k2 itself needs no fallback, as the suite parity shows.
        variables={"PYTORCH_ENABLE_MPS_FALLBACK": "1"},
    ),
    Suite(
        "upstream-cpp-cpu",
        "k2_mps_tests/upstream_cpp",
        device=Device.CPU,
        cpp=True,
        variables={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        spread="loadgroup",
    ),
    Suite("upstream-cpp-mps", "k2_mps_tests/upstream_cpp", cpp=True, spread="loadgroup"),
)


@dataclasses.dataclass(frozen=True)
class Result:
    suite: Suite
    # Numbers of tests.
    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0
    seconds: float = 0.0  # the duration
    # The number of tests that were skipped for each reason.
    reasons: Mapping[str, int] = dataclasses.field(default_factory=dict)
    output: tuple[str, ...] = ()  # pytest's last lines; empty if all is well
    not_run: str = ""  # why the suite was not run; empty if it was
    without_k2: bool = False  # whether k2 was missing, so that tests that need k2 did not run
    broken: str = ""  # what is wrong besides failing tests; empty if nothing is

    @property
    def ok(self) -> bool:
        """Whether nothing failed.  A suite that was not run has not failed."""
        return not (self.failed or self.errors or self.broken)

    @property
    def ran(self) -> int:
        return self.passed + self.failed + self.errors

    @property
    def summary(self) -> str:
        """The numbers of tests, and what is wrong with the run, as text."""
        if self.not_run:
            return f"not run: {self.not_run}"
        counts = {"failed": self.failed, "errors": self.errors, "skipped": self.skipped}
        not_passed = "".join(f", {count} {outcome}" for outcome, count in counts.items() if count)
        broken = f"; broken: {self.broken}" if self.broken else ""
        return f"{self.passed} passed{not_passed} in {self.seconds:.0f} s{broken}"


def choose(names: Sequence[str]) -> tuple[Suite, ...]:
    """Returns the suites that `names` lists, in the order of `SUITES`.

    If `names` is empty, returns all suites of this system.

    Args:
      names: names of suites, or SUITE/FILE for one file of a suite.
    Raises:
      K2mpsError: a name in `names` is not that of a suite of this system.
    """
    available = {suite.name: suite for suite in SUITES if sys.platform in suite.platforms}
    files: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        suite, _, file = name.partition("/")
        if suite not in available:
            raise errors.K2mpsError(
                f"there is no suite {suite!r} on this system",
                next_command=f"k2mps test {' '.join(sorted(available))}",
            )
        files.setdefault(suite, []).append(file)
    if not names:
        return tuple(available.values())
    return tuple(
        dataclasses.replace(suite, file=file)
        for suite in available.values()
        for file in files.get(suite.name, ())
    )


def run(
    environment: Environment, suite: Suite, built: Built | None, arguments: Sequence[str] = ()
) -> Result:
    """Runs one suite.

    Args:
      built: the build of k2; None if the suite needs no k2, or if k2 is missing.
      arguments: further arguments for pytest, from the user.
    """
    project, reporter = environment.project, environment.reporter
    folder = project.build_root / "tests"
    folder.mkdir(parents=True, exist_ok=True)
    junit_file = folder / f"{suite.log_name}.xml"
    junit_file.unlink(missing_ok=True)
    target = suite.tests.replace("{k2}", str(built.checkout)) if built else suite.tests
    without_k2 = suite.on_k2 and not built
    options = _options(suite, project.root, target, without_k2, arguments)
    started = time.monotonic()
    log = folder / f"{suite.log_name}.log"
    with reporter.task(f"testing {suite.title}", log) as update:

        def follow(line: str) -> None:
            """Passes pytest's progress on, with the name of the test."""
            if match := _PERCENT.search(line):
                test = next((word for word in line.split() if "::" in word), "")
                update(int(match[1]), 100, test.rsplit("/", 1)[-1])

        tests = f"{target}/{suite.file}" if suite.file else target
        outcome = program.run(
            environment,
            "pytest",
            [tests, f"--junitxml={junit_file}", *options],
            built=built,
            variables=_variables(suite, built),
            cwd=project.root,
            on_line=follow,
            log=log,
        )
    return _read(suite, junit_file, outcome, time.monotonic() - started, without_k2)


def _variables(suite: Suite, built: Built | None) -> dict[str, str]:
    """Returns the environment variables of a suite."""
    # K2_MPS_COSTS is cleared, because measurements of this machine must not influence a suite.
    # PYTHONDONTWRITEBYTECODE is cleared, so that the thousands of Python processes that a suite
    # starts share compiled modules.
    # torch gets one thread for each process of a suite, because the processes use all processors.
    # If there are more threads than processors, torch's threads busily wait for each other.
    variables = {
        "K2_MPS_COSTS": "",
        "PYTHONDONTWRITEBYTECODE": "",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        **suite.variables,
    }
    if suite.many_files and _has_room(_MEMORY) and "TMPDIR" not in os.environ:
        variables["TMPDIR"] = _MEMORY
    if suite.cpp:
        variables["K2_TESTS"] = str(built.directory)
    return variables


def _options(
    suite: Suite, root: Path, target: str, without_k2: bool, arguments: Sequence[str]
) -> list[str]:
    """Returns the options of pytest for a suite.

    Args:
      root: the project's folder.
      target: the folder of the tests.
      without_k2: whether the tests that need k2 are skipped.
      arguments: further arguments, from the user.
    """
    options = [
        # With these options, pytest reads no configuration of the checkout, and writes no cache.
        f"--rootdir={root}",
        f"--config-file={root / 'pyproject.toml'}",
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
        f"--override-ini=faulthandler_timeout={_SECONDS_PER_TEST}",
        "--override-ini=faulthandler_exit_on_timeout=true",
        "-v",
        "--tb=short",
        "--durations=10",
    ]
    if target != suite.tests:
        # k2's CTest starts each test as a script, so a test can import modules of its own folder.
        # This option makes such imports possible in pytest.
        options.append(f"--override-ini=pythonpath={shlex.quote(target)}")
    options += suite.arguments
    if without_k2:
        options += ["-p", _WITHOUT_K2]
    processes = build_tree.fitting_jobs() if suite.spread else 1
    # If the user gives options, one process runs the tests, because the user probably runs only
    # a few tests, or wants to see the output of the tests.
    if processes > 1 and not arguments:
        options += [f"--numprocesses={processes}", f"--dist={suite.spread}"]
    return [*options, *arguments]


def _has_room(folder: str) -> bool:
    """Whether a folder has room for the files of a suite, and lets programs run in it."""
    try:
        file_system = os.statvfs(folder)
    except OSError:
        return False
    room = file_system.f_bavail * file_system.f_frsize
    return room > _ROOM and not file_system.f_flag & os.ST_NOEXEC and os.access(folder, os.W_OK)


class _Builds:
    """The builds of a run.  Suites that need the same build share it, or the error that it raised.

    Args:
      obtain, request: see `run_all`.
    """

    def __init__(self, environment: Environment, obtain: Callable[[], Checkout], request: Request):
        self._environment = environment
        self._obtain = obtain
        self._request = request
        self._made: dict[tuple, Built | errors.K2mpsError | None] = {}

    def get(self, suite: Suite) -> Built | None:
        """Builds what a suite needs.

        Returns None, and only prepares .venv, if the suite needs no k2, or if upstream cannot be
        reached and some tests of the suite need no k2.

        Raises:
          UnreachableError: upstream cannot be reached.
        """
        try:
            return self._get(suite.device, suite.on_k2, suite.cpp)
        except errors.UnreachableError:
            if not suite.marked:
                raise
        return self._get(suite.device, False, suite.cpp)

    def _get(self, *needs) -> Built | None:
        """Makes a build once; returns the build, or raises the error of the first time.

        Args:
          needs: the arguments of `_make`.
        """
        if needs not in self._made:
            try:
                self._made[needs] = self._make(*needs)
            except errors.K2mpsError as error:
                self._made[needs] = error
        made = self._made[needs]
        if isinstance(made, errors.K2mpsError):
            raise made
        return made

    def _make(self, device: Device, on_k2: bool, cpp: bool) -> Built | None:
        """Builds k2, or only prepares .venv; arguments as for `Suite`.

        Returns:
          The build; None if k2 is not needed.
        """
        wanted = dataclasses.replace(self._request, device=device, tests=cpp)
        if on_k2:
            return builder.build(self._environment, self._obtain(), wanted)
        builder.prepare(self._environment, wanted)
        return None


def run_all(
    environment: Environment,
    obtain: Callable[[], Checkout],
    request: Request,
    names: Sequence[str],
    arguments: Sequence[str] = (),
) -> list[Result]:
    """Runs suites one after the other, even if one fails; returns a result for each.

    If upstream cannot be reached, the suites and tests that need k2 do not run.

    Args:
      obtain: returns the checkout; clones k2 first if need be.
      request: the options of the build; each suite replaces the device.
      names: the names of the suites; empty for all.
      arguments: further arguments for pytest, from the user.
    """
    builds = _Builds(environment, obtain, request)
    results = []
    for suite in choose(names):
        try:
            built = builds.get(suite)
            for extra in suite.extras:
                environment.install_extra(extra)
        except errors.UnreachableError as error:
            reason = str(error).replace("\n", "; ")
            results.append(Result(suite, not_run=reason, without_k2=True))
        except errors.K2mpsError as error:
            results.append(Result(suite, broken=str(error)))
        else:
            results.append(run(environment, suite, built, arguments))
    return results


def summary(results: Sequence[Result]) -> list[str]:
    """Returns lines with each suite's numbers, the reasons for skipped tests, and the totals."""
    width = max(len(result.suite.title) for result in results)
    lines = [f"{result.suite.title:{width}}  {result.summary}" for result in results]
    for result in results:
        for reason, count in sorted(result.reasons.items()):
            lines.append(f"skipped in {result.suite.title}, {count}: {reason}")
    ran = sum(result.ran for result in results)
    on_k2 = sum(result.ran for result in results if result.suite.on_k2 and not result.without_k2)
    skipped = sum(result.skipped for result in results)
    lines.append(
        f"{on_k2} tests ran against real k2, {ran - on_k2} ran without k2, {skipped} were skipped"
    )
    if any(result.without_k2 for result in results):
        lines.append("k2 itself is missing, so not all tests ran; next: make build")
    return lines


def report(results: Sequence[Result], reporter: Reporter) -> None:
    """Shows the failures, then the summary.

    Raises:
      CheckFailedError: a suite failed or found no tests, or no suite was run.
    """
    for result in results:
        if result.output:
            reporter.info(f"--- {result.suite.title}")
            for line in result.output:
                reporter.output(line)
    for line in summary(results):
        reporter.info(line)
    if all(result.not_run for result in results):
        raise errors.CheckFailedError(
            "no suite could be run", next_command="k2mps doctor; the reasons are above"
        )
    failed = [result.suite for result in results if not result.ok]
    if failed:
        raise errors.CheckFailedError(
            f"failures in {', '.join(suite.name for suite in failed)}",
            next_command=f"k2mps test {failed[0].name}; the whole output is in"
            f" build/tests/{failed[0].log_name}.log",
        )


def _read(
    suite: Suite, junit_file: Path, outcome: process.Outcome, seconds: float, without_k2: bool
) -> Result:
    """Makes a `Result` from pytest's JUnit file, exit status and output."""
    try:
        cases = list(ElementTree.parse(junit_file).iter("testcase"))
    except (FileNotFoundError, ElementTree.ParseError):
        cases = []
    counts = collections.Counter()
    reasons = collections.Counter()
    for case in cases:
        tags = {child.tag: child for child in case}
        kind = next((tag for tag in ("error", "failure", "skipped") if tag in tags), "passed")
        counts[kind] += 1
        if kind == "skipped":
            reasons[tags[kind].get("message") or "no reason given"] += 1
    bad = counts["failure"] + counts["error"]
    broken = "" if bad else _fault_of(suite, outcome.status, counts)
    return Result(
        suite,
        passed=counts["passed"],
        failed=counts["failure"],
        errors=counts["error"],
        skipped=counts["skipped"],
        seconds=seconds,
        reasons=reasons,
        output=outcome.lines[-_SHOWN_LINES:] if broken or bad else (),
        without_k2=without_k2,
        broken=broken,
    )


def _fault_of(suite: Suite, status: int, counts: Mapping[str, int]) -> str:
    """Returns what is wrong with a run in which no test failed; empty if nothing is.

    Args:
      status: pytest's exit status.
      counts: the number of tests of each kind: "passed" or "skipped".
    """
    if status not in (0, _NOTHING_COLLECTED):
        return f"pytest ended with status {status}"
    if suite.file and counts["skipped"]:
        return ""  # All tests of a file may be for another system, or for another torch.
    if status == _NOTHING_COLLECTED or not (counts["passed"] or counts["skipped"]):
        return "no test was collected"
    return "" if counts["passed"] else "every test was skipped"

"""`k2mps test` reports pytest's numbers and every failure."""

import dataclasses
import os
import re
import sys
import types

import pytest
from k2mps.build import build_tree, builder, doctor
from k2mps.build.environment import Environment
from k2mps.build.request import Built, Request
from k2mps.cli import command_line
from k2mps.cli.session import Session
from k2mps.core import errors
from k2mps.core.progress import Reporter
from k2mps.core.project import Project
from k2mps.run import suites
from k2mps.run.program import Program

from k2_mps_tests.tooling import support

ROOT = support.TOOLS.parent
SKIPPED = "@pytest.mark.skip(reason='x')\ndef test_x(): pass\n"
MIXED = """\
import os, time
import pytest

@pytest.mark.parametrize("number", range(6))
def test_good(number):
    assert os.environ["PYTEST_XDIST_WORKER_COUNT"] == "2"
    time.sleep(0.2)

def test_bad(): assert 1 == 2

@pytest.fixture
def broken(): raise RuntimeError("broken fixture")

def test_error(broken): pass

@pytest.mark.skip(reason="no Mac here")
def test_skipped(): pass

@pytest.mark.skip(reason="no Mac here")
def test_also_skipped(): pass

def test_skipped_inside(): pytest.skip("too old")

@pytest.mark.xfail
def test_that_is_expected_to_fail(): assert 0
"""


@pytest.fixture
def environment(tmp_path):
    """The environment of an empty project; its .venv links to the environment of these tests."""
    support.write(tmp_path, {"pyproject.toml": "[tool.pytest.ini_options]\n"})
    os.symlink(sys.prefix, tmp_path / ".venv")
    return Environment(Project(tmp_path))


def run(environment, text, on_k2=False, device=doctor.Device.CPU, **kwargs):
    root = environment.project.root
    name = f"suite{len(list(root.glob('suite*')))}"
    if text is not None:
        support.write(root / name, {"test_it.py": text})
    suite = suites.Suite(name, name, device, on_k2, **{"spread": "", **kwargs})
    return suites.run(environment, suite, None)


@pytest.mark.parametrize(
    "text, spread, reason",
    [
        ("", "", "no test was collected"),
        (None, "", "status 4"),
        (f"import pytest\n\n{SKIPPED}", "", "every test was skipped"),
        ("import os\n\ndef test_x(): os._exit(0)\n", "", "no test was collected"),
        ("import os\n\ndef test_x(): os.abort()\n", "", "status -6"),
        # In the next cases, pytest itself reports an error.
        ("import nonsense_that_is_not_there\n", "", ""),
        ("import os\n\ndef test_x(): os.abort()\n\ndef test_y(): pass\n", "worksteal", ""),
        ("import os\nos._exit(0)\n", "worksteal", ""),
    ],
)
def test_a_suite_that_only_looks_successful_is_broken(
    environment, monkeypatch, text, spread, reason
):
    monkeypatch.setattr(build_tree, "fitting_jobs", lambda: 2)
    result = run(environment, text, spread=spread)
    assert reason in result.broken
    assert not result.ok


@pytest.fixture
def two_processes(monkeypatch):
    """Makes suites run in two processes, even if this test runs in a process of pytest-xdist."""
    monkeypatch.setattr(build_tree, "fitting_jobs", lambda: 2)
    monkeypatch.delenv("PYTEST_XDIST_WORKER_COUNT", raising=False)


def test_several_processes_give_pytests_numbers(environment, two_processes):
    environment.reporter = progress = support.Progress()
    result = run(environment, MIXED, spread="worksteal")
    assert (result.passed, result.failed, result.errors, result.skipped) == (6, 1, 1, 4)
    assert result.reasons == {"no Mac here": 2, "too old": 1, "no reason given": 1}
    assert not result.ok and not result.broken
    assert any("assert 1 == 2" in line for line in result.output)
    percents = [done for done, total, _ in progress.steps if total == 100]
    assert percents == sorted(percents) and percents[-1] == 100 and len(percents) >= 8
    assert {text for _, _, text in progress.steps} >= {"test_it.py::test_bad"}


def test_chosen_tests_run_without_worker_processes(environment, two_processes):
    """pytest shows the output of tests only if they run without worker processes."""
    result = run(environment, MIXED, spread="worksteal")
    suite = suites.Suite("one", result.suite.tests, on_k2=False)
    chosen = suites.run(environment, suite, None, ("-k", "test_skipped or test_good[0]"))
    assert chosen.failed == 1 and "PYTEST_XDIST_WORKER_COUNT" in "".join(chosen.output)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /dev/shm")
@pytest.mark.parametrize(
    "pages, runs_programs, is_used",
    [(2 << 20, True, True), (1 << 20, True, False), (2 << 20, False, False)],
)
def test_files_are_in_memory_if_there_is_room_and_programs_may_run_there(
    environment, monkeypatch, tmp_path, pages, runs_programs, is_used
):
    flags = 0 if runs_programs else os.ST_NOEXEC
    found = types.SimpleNamespace(f_bavail=pages, f_frsize=4096, f_flag=flags)
    monkeypatch.setattr(os, "statvfs", lambda folder: found)
    monkeypatch.setattr(suites, "_MEMORY", str(tmp_path))
    monkeypatch.delenv("TMPDIR", raising=False)
    in_memory = f"os.environ.get('TMPDIR') == {str(tmp_path)!r}"
    text = f"import os\n\ndef test_x(): assert ({in_memory}) is {is_used}\n"
    result = run(environment, text, many_files=True)
    assert result.ok, result.output


@pytest.mark.parametrize("chosen", ["chosen", None])
def test_files_are_not_in_memory_if_the_user_chose_a_folder_or_memory_is_no_folder(
    environment, monkeypatch, tmp_path, chosen
):
    if chosen:
        monkeypatch.setattr(suites, "_ROOM", 0)
        monkeypatch.setattr(suites, "_MEMORY", str(tmp_path))
        monkeypatch.setenv("TMPDIR", chosen)
    else:
        monkeypatch.setattr(suites, "_MEMORY", str(tmp_path / "absent"))
        monkeypatch.delenv("TMPDIR", raising=False)
    text = f"import os\n\ndef test_x(): assert os.environ.get('TMPDIR') == {chosen!r}\n"
    result = run(environment, text, many_files=True)
    assert result.ok, result.output


@pytest.mark.parametrize("cpp", [True, False])
def test_the_tests_of_a_checkout_import_modules_of_their_folder(environment, tmp_path, cpp):
    """The path of the checkout has a blank."""
    k2 = tmp_path / "my k2"
    expected = repr(str(tmp_path / "tree")) if cpp else None
    text = "import os, helper\n\n"
    text += f"def test_x(): assert os.environ.get('K2_TESTS') == {expected}\n"
    support.write(k2 / "tests", {"helper.py": "", "test_it.py": text})
    built = Built(k2, tmp_path / "tree", (tmp_path, tmp_path), 0)
    suite = suites.Suite("k2", "{k2}/tests", doctor.Device.CPU, cpp=cpp, spread="")
    result = suites.run(environment, suite, built)
    assert result.ok and result.passed == 1, result.output


@pytest.mark.parametrize("name", ["K2_MPS_COSTS", "PYTHONDONTWRITEBYTECODE"])
def test_a_suite_does_not_get_the_users_value_of_a_variable(environment, monkeypatch, name):
    """Measured costs would decide where operations run; without __pycache__, a suite is slow."""
    monkeypatch.setenv(name, "1")
    result = run(environment, f"import os\n\ndef test_x(): assert os.environ[{name!r}] == ''\n")
    assert result.ok, result.output


@pytest.mark.parametrize("users, given", [(None, "1"), ("4", "4")])
def test_torch_gets_one_thread_unless_the_user_chose_a_number(
    environment, monkeypatch, users, given
):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if users:
        monkeypatch.setenv("OMP_NUM_THREADS", users)
    text = f"import os\n\ndef test_x(): assert os.environ['OMP_NUM_THREADS'] == {given!r}\n"
    result = run(environment, text)
    assert result.ok, result.output


def test_an_old_report_is_not_read(environment):
    good = run(environment, "def test_good(): pass\n")
    assert good.ok and good.passed == 1 and good.output == ()
    path = environment.project.build_root / "tests"
    (path / "suite1.xml").write_text((path / "suite0.xml").read_text())
    assert not run(environment, "import os\nos._exit(0)\n").ok


ON_MPS = suites.Suite("parity", "", doctor.Device.MPS)
ON_CPU = suites.Suite("upstream-cpu", "", doctor.Device.CPU)
WITHOUT_K2 = suites.Suite("tooling", "", doctor.Device.CPU, on_k2=False)
GOOD = suites.Result(WITHOUT_K2, passed=10, skipped=1, reasons={"no disk": 1})
AWAY = suites.Result(ON_MPS, not_run="upstream could not be reached")
BAD = suites.Result(ON_CPU, passed=200, failed=2, errors=1, seconds=61.4)


def test_the_summary_says_which_results_are_emulated():
    text = "\n".join(suites.summary([GOOD, BAD, AWAY]))
    assert ("parity (emulated)" in text) == (sys.platform != "darwin")
    assert "upstream-cpu (emulated)" not in text


@pytest.mark.parametrize(
    "line",
    [
        "skipped in tooling, 1: no disk",
        "not run: upstream could not be reached",
        "200 passed, 2 failed, 1 errors in 61 s",
    ],
)
def test_the_summary_has_what_did_not_pass(line):
    assert line in "\n".join(suites.summary([GOOD, BAD, AWAY]))


def test_the_summary_ends_with_the_numbers_of_tests():
    last = suites.summary([GOOD, BAD, AWAY])[-1]
    assert last == "203 tests ran against real k2, 10 ran without k2, 1 were skipped"


def test_the_error_of_a_report_names_the_suites_and_the_log_of_the_first():
    broken = suites.Result(ON_MPS, broken="status 4", output=("last", "lines"))
    with pytest.raises(errors.CheckFailedError) as caught:
        suites.report([GOOD, BAD, broken], shown := Shown())
    assert caught.value.message == "failures in upstream-cpu, parity"
    assert caught.value.next_command.startswith("k2mps test upstream-cpu; ")
    assert caught.value.next_command.endswith("build/tests/upstream-cpu.log")
    assert shown.lines[:3] == [f"--- {ON_MPS.title}", "last", "lines"]


class Shown(Reporter):
    """Records what is shown."""

    def __init__(self):
        self.lines = []

    def info(self, text):
        self.lines.append(text)

    output = info


def test_suites_share_a_build_and_its_error(environment, monkeypatch):
    asked = []

    def build(environment, checkout, request):
        asked.append(request.label)
        if request.tests:
            raise errors.CompileError("no", next_command="correct it")
        return Built(checkout, checkout, (checkout, checkout), 0)

    monkeypatch.setattr(builder, "build", build)
    builds = suites._Builds(environment, lambda: environment.project.root, Request())
    with_cpp = dataclasses.replace(ON_CPU, cpp=True)
    assert builds.get(ON_CPU) is builds.get(dataclasses.replace(ON_CPU, name="other"))
    for _ in range(2):
        with pytest.raises(errors.CompileError):
            builds.get(with_cpp)
    assert asked == ["cpu", "cpu-cpp"]


@pytest.mark.parametrize("marked", [True, False])
def test_a_suite_with_tests_that_need_no_k2_runs_without_upstream(environment, monkeypatch, marked):
    def away():
        raise errors.UnreachableError("k2 could not be cloned", next_command="check the network")

    prepared = []
    monkeypatch.setattr(builder, "prepare", lambda _, request: prepared.append(request.device))
    builds = suites._Builds(environment, away, Request())
    suite = dataclasses.replace(ON_CPU, marked=marked)
    if marked:
        assert builds.get(suite) is None
    else:
        with pytest.raises(errors.UnreachableError):
            builds.get(suite)
    assert prepared == [doctor.Device.CPU] * marked


@pytest.mark.parametrize("system, is_there", [("linux", True), ("darwin", False)])
def test_the_emulator_is_tested_on_linux_alone(monkeypatch, system, is_there):
    monkeypatch.setattr(sys, "platform", system)
    names = [suite.name for suite in suites.choose([])]
    assert ("emulator" in names) == is_there and len(names) == len(suites.SUITES) - (not is_there)
    assert [suite.name for suite in suites.choose(["docs", "parity", "docs"])] == ["parity", "docs"]


@pytest.mark.parametrize("results", [[GOOD], [GOOD, AWAY]], ids=["all", "some not run"])
def test_a_report_without_failures_is_no_error(results):
    suites.report(results, Reporter())


@pytest.mark.parametrize(
    "results",
    [
        [GOOD, BAD],
        [AWAY],
        [GOOD, suites.Result(WITHOUT_K2, errors=1)],
        [GOOD, suites.Result(WITHOUT_K2, broken="no test was collected")],
    ],
    ids=["failed", "nothing ran", "an error", "no tests"],
)
def test_a_report_with_a_failure_is_an_error(results):
    with pytest.raises(errors.CheckFailedError):
        suites.report(results, Reporter())


def test_without_k2_only_marked_tests_are_left_out(environment):
    text = """
import pytest

@pytest.mark.k2
def test_of_k2(): import k2_that_is_missing

@pytest.mark.skip(reason="no Mac here")
def test_skipped(): pass

def test_of_none(): pass
"""
    plugin = (ROOT / "k2_mps_tests/without_k2.py").read_text()
    here = environment.project.root / "k2_mps_tests"
    support.write(here, {"__init__.py": "", "without_k2.py": plugin})
    result = run(environment, text, on_k2=True, marked=True)
    assert result.ok, result.output
    assert (result.passed, result.skipped) == (1, 2)
    assert result.reasons == {"no Mac here": 1, "k2 itself is missing": 1}
    assert suites.summary([result])[-2:] == [
        "0 tests ran against real k2, 1 ran without k2, 2 were skipped",
        "k2 itself is missing, so not all tests ran; next: make build",
    ]
    # In a suite that needs no k2, pytest also runs the marked test, which fails here.
    assert run(environment, text).failed == 1


def test_without_upstream_the_suites_that_need_no_k2_run(sandbox):
    """Runs `k2mps test` for two suites, of which only upstream-cpu needs k2."""
    sandbox.upstream.rename(sandbox.upstream.with_name("gone"))
    groups = "[project.optional-dependencies]\nbuild = []\ntest = []\nwheels = []\n"
    (sandbox.root / "pyproject.toml").write_text(groups)
    os.symlink(sys.prefix, sandbox.root / ".venv")
    sandbox.use_installed_torch()
    support.write(sandbox.root / "k2_mps_tests/tooling", {"test_it.py": "def test_good(): pass\n"})
    out = sandbox.ok("test", "tooling", "upstream-cpu")
    assert re.search(r"^tooling +1 passed in ", out, re.MULTILINE)
    assert re.search("^upstream-cpu +not run: .*file:", out, re.MULTILINE)
    assert "k2 itself is missing" in out.splitlines()[-1]
    assert "could not be cloned" in out
    more = {"test_more.py": "def test_a(): pass\n\ndef test_b(): 1 / 0\n"}
    support.write(sandbox.root / "k2_mps_tests/tooling", more)
    out = sandbox.ok("test", "tooling", "--", "-k", "good or test_a")
    assert re.search(r"^tooling +2 passed in ", out, re.MULTILINE)
    assert "ZeroDivisionError" not in out
    result = sandbox.run("test", "tooling")
    assert result.returncode == 34
    assert "ZeroDivisionError" in result.stdout
    message = sandbox.fails(34, "test", "upstream-cpu")
    assert "no suite could be run" in message


def test_one_file_of_a_suite(environment):
    root = environment.project.root
    tests = {"test_a.py": "def test_a(): pass\n", "test_b.py": "def test_b(): assert 0\n"}
    support.write(root / "suite", tests)
    suite = suites.Suite(
        "one", "suite", doctor.Device.CPU, on_k2=False, spread="", file="test_a.py"
    )
    result = suites.run(environment, suite, None)
    assert (result.passed, result.failed) == (1, 0)
    assert (root / "build/tests/one-test_a.xml").exists()
    # All tests of one file may be for another system.
    for how in ("@pytest.mark.skip(reason='x')", "pytest.skip('x', allow_module_level=True)"):
        text = f"import pytest\n\n{how}\ndef test_x(): pass\n"
        support.write(root / "suite", {"test_c.py": text})
        suite = dataclasses.replace(suite, file="test_c.py")
        result = suites.run(environment, suite, None)
        assert result.ok and (result.passed, result.skipped) == (0, 1)
    support.write(root / "suite", {"test_d.py": ""})
    result = suites.run(environment, dataclasses.replace(suite, file="test_d.py"), None)
    assert result.broken == "no test was collected"
    chosen = suites.choose(["parity/test_ctc.py", "kernels", "parity/test_fuzz.py"])
    assert [suite.title.removesuffix(" (emulated)") for suite in chosen] == [
        "kernels",
        "parity/test_ctc.py",
        "parity/test_fuzz.py",
    ]
    with pytest.raises(errors.K2mpsError, match="there is no suite 'other' on this system"):
        suites.choose(["other/test_a.py"])


@pytest.mark.parametrize(
    "words, names, for_pytest",
    [
        (["docs", "-j", "1", "kernels"], ("docs", "kernels"), ()),
        (
            ["docs", "--", "k2_mps_tests/docs", "-k", "x"],
            ("docs",),
            ("k2_mps_tests/docs", "-k", "x"),
        ),
        (["--", "-q", "--", "x"], (), ("-q", "--", "x")),
    ],
)
def test_the_words_after_the_dashes_go_to_pytest(monkeypatch, words, names, for_pytest):
    found = []
    monkeypatch.setattr(suites, "run_all", lambda *arguments: found.append(arguments[3:]))
    monkeypatch.setattr(suites, "report", lambda results, console: None)
    command_line.main(["test", *words], standalone_mode=False, obj=Session())
    assert found == [(names, for_pytest)]


def test_a_program_that_a_signal_ends_has_failed(environment):
    support.write(
        environment.project.root, {"killed.py": "import os, signal; os.kill(os.getpid(), 9)"}
    )
    program = Program("killed", "program", "try again")
    with pytest.raises(errors.CheckFailedError, match="the program failed, status -9"):
        program.run(environment)

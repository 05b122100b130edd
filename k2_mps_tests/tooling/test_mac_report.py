"""`make mac-report` without torch and k2: its record, its archive, and how it ends."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import click
import pytest
from k2mps.cli import command_line
from k2mps.run import suites

from k2_mps_tests.report import names, pages, running
from k2_mps_tests.report.record import VERDICTS, Record, commit_of
from k2_mps_tests.report.series import Runner, Task
from k2_mps_tests.report.tasks import NEEDS, Plan
from k2_mps_tests.tooling import support

ROOT = support.TOOLS.parent


@pytest.fixture
def project(tmp_path):
    """A project with the program alone; it is no git clone."""
    root = tmp_path / "project"
    shutil.copytree(ROOT / "k2_mps_tests/report", root / "k2_mps_tests/report")
    (root / "k2_mps_tests/__init__.py").touch()
    return root


def _environment(tmp_path):
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "Users/ada.lovelace"),
        "USER": "ada.lovelace",
    }


def _report(project, tmp_path, *arguments):
    command = (sys.executable, "-m", "k2_mps_tests.report", *arguments)
    return support.ran(*command, cwd=project, env=_environment(tmp_path))


def _archive(project):
    """Returns {name: text} of the archive."""
    with tarfile.open(project / "build/mac-report.tar.gz") as archive:
        return {
            member.name.removeprefix("mac-report/"): archive.extractfile(member).read().decode()
            for member in archive.getmembers()
        }


def test_facts_need_no_environment_and_later_steps_say_what_they_lack(project, tmp_path):
    options = ("--only", "facts", "--only", "environment", "--only", "compiler/driver")
    done = _report(project, tmp_path, *options)
    assert done.returncode == 1, done.stdout + done.stderr
    [record] = project.glob("build/mac-report/*/record.jsonl")
    verdicts = {
        line["item"]: line["verdict"]
        for line in map(json.loads, record.read_text().splitlines())
        if "verdict" in line
    }
    # There is no Makefile, so there is no virtual environment.
    assert verdicts["machine"] == "ok" and verdicts["virtual environment"] == "wrong"
    for item in ("doctor", "packages", "pip freeze", "driver"):
        assert verdicts[item] == "not run"
    text = (project / "build/mac-report.txt").read_text()
    assert "wrong: environment: virtual environment" in text
    assert "driver: environment, virtual environment: wrong" in text
    # Without a verdict of the environment, nothing is wrong yet.
    _report(project, tmp_path, "--only", "numbers", "--torch", "2.15.0")
    [other] = project.glob("build/mac-report/*2.15.0*/record.jsonl")
    verdicts = [line for line in map(json.loads, other.read_text().splitlines())]
    assert verdicts and {line["verdict"] for line in verdicts} == {"not run"}
    assert "there is no .venv" in verdicts[0]["why"]
    # A second run keeps the verdict of the facts, and tries the environment again.
    before = record.read_text()
    _report(project, tmp_path, *options)
    after = record.read_text().removeprefix(before)
    assert "virtual environment" in after and '"facts"' not in after


def test_a_step_that_does_not_exist_is_an_error(project, tmp_path):
    done = _report(project, tmp_path, "--only", "fact")
    assert (done.returncode, done.stderr) == (1, "error: there is no step fact\n")


def test_after_the_disk_was_full_the_report_goes_on(project, tmp_path):
    command = [sys.executable, "-m", "k2_mps_tests.report", "--only", "facts"]

    def ran(most):
        # Python itself can leave a compiled module that is cut off.
        variables = {**_environment(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        how = {"cwd": project, "env": variables, "capture_output": True, "text": True}
        # A file that may not grow fails like a file on a full disk.
        limits = (most, resource.RLIM_INFINITY)
        return subprocess.run(
            command, **how, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        )

    for most in (50, 400):  # in the first line of the record, and in a later one
        done = ran(most)
        assert done.returncode == 1 and "Traceback" not in done.stderr
        assert "File too large" in done.stderr and "goes on from here" in done.stderr
    assert ran(resource.RLIM_INFINITY).returncode == 0
    assert "1 ok" in _archive(project)["report.txt"]


def test_after_a_failed_build_only_what_needs_no_k2_runs(project, tmp_path):
    """Even if .venv has the k2 of an older build."""
    errors = "echo swoosh.mm:3:1: error: planted; seq 100"
    tool = f"#!/bin/sh\ncase $* in *--keep-going*) {errors}; exit 34; esac\n"
    programs = {".venv/bin/k2mps": tool, ".venv/bin/python": "#!/bin/sh\necho $*\n"}
    support.write(project, {"Makefile": ".venv/bin/k2mps:\n", **programs})
    for name in programs:
        (project / name).chmod(0o755)
    done = _report(project, tmp_path, "--quick")
    assert "\nbuild: build ...\n  swoosh.mm:3:1: error: planted\n" in done.stdout
    [record] = project.glob("build/mac-report/*/record.jsonl")
    lines = map(json.loads, record.read_text().splitlines())
    verdicts = {(line["step"], line["item"]): line for line in lines if "verdict" in line}
    build = verdicts["build", "build"]
    assert build["verdict"] == "wrong" and build["output"].endswith("\n99\n100")
    assert build["why"] == "exit status 34\nswoosh.mm:3:1: error: planted"
    for step, item in (
        ("build", "library"),
        ("questions", "wait"),
        ("times", "size 4,100,12"),
        ("check", "small"),
    ):
        assert verdicts[step, item]["verdict"] == "not run", item
        assert "older k2 is not reported about" in verdicts[step, item]["why"]
    for step, item in (
        ("compiler", "driver"),
        ("kernels", "plain, first case"),
        ("kernels", "validated, first case"),
        ("questions", "registers"),
    ):
        assert verdicts[step, item]["verdict"] == "ok"


def test_the_archive_has_crash_reports_and_no_names(project, tmp_path):
    reports = tmp_path / "Users/ada.lovelace/Library/Logs/DiagnosticReports"
    home = str(tmp_path / "Users/ada.lovelace")
    crash = {"path": f"{home}/k2", "user": "Ada.Lovelace", "crashReporterKey": "1E55-AD0"}
    escaped = json.dumps(crash).replace("/", "\\/")
    support.write(reports, {"python-new.ips": escaped, "python-old.ips": "old"})
    os.utime(reports / "python-old.ips", (0, 0))
    support.write(project, {"build/tests/parity.xml": f"<a>{project}/x {home}/y</a>"})
    in_future = time.time() + 60
    for path in (reports / "python-new.ips", project / "build/tests/parity.xml"):
        os.utime(path, (in_future, in_future))
    assert _report(project, tmp_path, "--only", "facts").returncode == 0
    files = _archive(project)
    assert {"record.jsonl", "report.txt", "report.html", "logs/facts-machine.log"} <= files.keys()
    assert json.loads(files["crash-reports/python-new.ips"]) == {
        "path": "<home>/k2",
        "user": "<user>",
        "crashReporterKey": "<machine>",
    }
    assert "crash-reports/python-old.ips" not in files
    assert files["tests/parity.xml"] == "<a><project>/x <home>/y</a>"
    for name, text in files.items():
        assert "lovelace" not in (name + text).lower(), name
        assert str(tmp_path) not in text, name


def test_a_name_is_replaced_only_as_a_word(monkeypatch, tmp_path):
    monkeypatch.setattr(names, "_computer_names", lambda: ["Adas-Mac.local", "Adas-Mac"])
    monkeypatch.setattr(names, "_user_names", lambda: ["ad", "Ada Lovelace", "root"])
    clean = names.cleaner(tmp_path)
    text = f"ad, Ada Lovelace as root on Adas-Mac.local reads {tmp_path}/x"
    assert clean(text) == "<user>, <user> as root on <host> reads <project>/x"
    assert clean("loads and adds") == "loads and adds"


# A program with items, one of which does what the variable HOW says.
PROGRAM = """
import os, sys, time
from k2_mps_tests.report import items

def bad():
    print("the reason")
    if os.environ["HOW"] == "abort":
        os.abort()
    if os.environ["HOW"] == "hang":
        time.sleep(600)
    if os.environ["HOW"] == "raise":
        raise ValueError("raised")
    if os.environ["HOW"] == "once" and os.environ["K2_MPS_REPORT_LEFT_OUT"] == "{}":
        return False
    if os.environ["HOW"] == "exit":
        sys.exit(0)
    if os.environ["HOW"] == "validate":
        print("Invalid device load executing kernel function x", file=sys.stderr)
    return os.environ["HOW"] in ("once", "validate")

def measured():
    items.measured(number=3)
    items.answer("three")
    return True

items.run([("first", lambda: True), ("bad", bad), ("last", measured)])
"""


@pytest.mark.parametrize(
    "how, verdict, reason",
    [
        ("abort", "crashed", "crashed: SIGABRT"),
        ("hang", "hung", "hung: did not end in"),
        ("raise", "wrong", "ValueError: raised"),
        ("wrong", "wrong", "exit status 1"),
        ("exit", "wrong", "the process ended in this item, with status 0"),
        ("once", "wrong", "right alone, but not after other items in the same process"),
        ("validate", "wrong", "Metal's validation reports an access outside of a buffer"),
    ],
)
def test_an_item_that_fails_costs_only_itself(tmp_path, how, verdict, reason):
    (tmp_path / "program.py").write_text(PROGRAM)
    record = Record(tmp_path / "record.jsonl", "commit")
    task = Task(
        "step",
        "task",
        [sys.executable, "program.py"],
        is_series=True,
        variables={"HOW": how, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"},
    )
    limit = 5 if how == "hang" else 120
    said = []
    Runner(record, tmp_path, tmp_path / "logs", str, said.append, limit).run(task)
    assert said[:2] == ["step: task ...", "  first"]
    found = {item: line["verdict"] for (_, item), line in record.verdicts.items()}
    assert found == {"task: first": "ok", "task: bad": verdict, "task: last": "ok", "task": "ok"}
    bad = record.verdicts["step", "task: bad"]
    assert reason in bad["why"] and "the reason" in bad["output"]
    if how in ("abort", "hang"):  # Python says where it was.
        assert 'File "' in bad["output"] and "in bad" in bad["output"]
    assert record.verdicts["step", "task: last"]["answer"] == "three"
    assert [line["measured"] for line in record.measured] == [{"number": 3}]
    assert how == "validate" or "the reason" in pages.text(record, "title")
    assert "the reason" in pages.page(record, "title")
    # The record can be read again, and nothing is left to do.
    again = Record(tmp_path / "record.jsonl", "commit")
    assert list(again.verdicts) == list(record.verdicts)
    size = (tmp_path / "record.jsonl").stat().st_size
    Runner(again, tmp_path, tmp_path / "logs", str, lambda line: None, limit).run(task)
    assert (tmp_path / "record.jsonl").stat().st_size == size


# A program that fails between two items, and after the last one.
BETWEEN = """
import os, sys
from k2_mps_tests.report import items

def of_two():
    yield "first max_1", lambda: items.measured(max=17, of="max") is None
    if "first max_1" not in items.left_out():
        print("Invalid device store at offset 4, executing kernel function: x", flush=True)
        os.abort()
    yield "bad max_2", lambda: False
    yield "last", lambda: True

items.run(of_two())
sys.exit(int(os.environ["STATUS"]))
"""


@pytest.mark.parametrize(
    "status, why", [("3", "exit status 3"), ("0", "Metal's validation reports an access")]
)
def test_what_fails_between_two_items_costs_no_item(tmp_path, monkeypatch, status, why):
    """Also if a user is called like a word in the name of an item, or a host like a number."""
    (tmp_path / "program.py").write_text(BETWEEN)
    monkeypatch.setattr(names, "_user_names", lambda: ["max"])
    monkeypatch.setattr(names, "_computer_names", lambda: ["17"])
    record = Record(tmp_path / "record.jsonl", "commit")
    command = [sys.executable, "program.py"]
    variables = {"PYTHONPATH": str(ROOT), "STATUS": status}
    task = Task("step", "task", command, is_series=True, variables=variables)
    said = []
    clean = names.cleaner(tmp_path)
    Runner(record, tmp_path, tmp_path / "logs", clean, said.append, 60).run(task)
    found = {item: line["verdict"] for (_, item), line in record.verdicts.items()}
    bad = {"task": "wrong", "task: bad max_2": "wrong"}
    assert found == {"task: first max_1": "ok", "task: last": "ok", **bad}
    assert record.verdicts["step", "task"]["why"].startswith(why)
    assert [line["measured"] for line in record.measured] == [{"max": 17, "of": "<user>"}]


def test_an_item_in_which_two_runs_ended_is_not_run_again(tmp_path):
    path = tmp_path / "record.jsonl"
    for _ in range(2):
        Record(path, "commit").add("step", "task", began=True)
    with open(path, "a") as file:
        file.write('{"step": "st')  # A killed run can cut the last line off.
    record = Record(path, "commit")
    task = Task("step", "task", ["false"])
    Runner(record, tmp_path, tmp_path / "logs", str, lambda line: None, 60).run(task)
    assert record.verdicts["step", "task"]["verdict"] == "crashed"
    assert "ended twice during this item" in record.verdicts["step", "task"]["why"]
    assert Record(path, "commit").is_done("step", "task")


def test_the_whole_process_group_ends_at_the_limit(tmp_path):
    child = "import time; time.sleep(600)"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{child}'])"
    outcome = running.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        variables={},
        log=tmp_path / "log",
        limit=lambda began=time.monotonic(): began + 2,
        on_line=lambda line: None,
        note=tmp_path / "running",
    )
    assert outcome.hung
    left = subprocess.run(["pgrep", "-f", child], capture_output=True, text=True).stdout
    assert left == ""


def test_a_process_that_cannot_end_does_not_stop_the_report(tmp_path, monkeypatch):
    """A driver can keep a process in the kernel."""
    real = os.killpg
    monkeypatch.setattr(os, "killpg", lambda group, number: None)
    monkeypatch.setattr(running, "_GRACE", 0.1)
    groups = []
    command = [sys.executable, "-u", "-c", "import os, time; print(os.getpid()); time.sleep(60)"]
    try:
        outcome = running.run(
            command,
            cwd=tmp_path,
            variables={},
            log=tmp_path / "log",
            limit=lambda began=time.monotonic(): began + 2,
            on_line=lambda line: groups.append(int(line)),
            note=tmp_path / "running",
        )
        assert outcome.hung
    finally:
        [group] = groups
        real(group, signal.SIGKILL)


def test_a_second_run_ends_what_a_killed_run_has_left(project, tmp_path):
    support.write(project, {"Makefile": ".venv/bin/k2mps:\n\techo $$PPID >> started; sleep 600\n"})
    command = [sys.executable, "-m", "k2_mps_tests.report", "--only", "environment/virtual"]
    how = {"cwd": project, "env": _environment(tmp_path), "stdout": subprocess.DEVNULL}
    process = subprocess.Popen(command, **how)
    support.wait_for(project / "started")
    [folder] = project.glob("build/mac-report/*")
    support.wait_for(folder / "running")
    while not (folder / "running").read_text():
        time.sleep(0.01)
    process.kill()
    process.wait()
    left = int((project / "started").read_text())
    os.kill(left, 0)  # it runs
    support.write(project, {"Makefile": ".venv/bin/k2mps:\n\ttrue\n"})
    assert subprocess.run(command, **how).returncode == 0
    with pytest.raises(ProcessLookupError):
        os.kill(left, 0)
    assert not (folder / "running").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_an_archive_and_says_so(project, tmp_path, number):
    support.write(project, {"Makefile": ".venv/bin/k2mps:\n\ttouch started; sleep 600\n"})
    command = [sys.executable, "-m", "k2_mps_tests.report", "--only", "facts", "--only"]
    process = subprocess.Popen(
        [*command, "environment"],
        cwd=project,
        env=_environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    )
    support.wait_for(project / "started")
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "interrupted; the file is useful as it is" in said
    text = _archive(project)["report.txt"]
    assert "machine" in text and "1 ok, 1 interrupted" in text


# A stand-in for Xcode's compiler.  It finds an error in each file that has the word `wrong`.
XCRUN = f"""\
#!{sys.executable}
import pathlib, sys
output, source = map(pathlib.Path, sys.argv[-2:])
if "wrong" in source.read_text():
    sys.exit(f"{{source.name}}:1:1: error: wrong")
output.touch()
"""


def test_xcodes_compiler_compiles_each_file_if_it_is_there(project, tmp_path):
    kernels = project / "patches/files/k2/csrc/mps/kernels"
    support.write(kernels, {"bad.metal": "wrong\n", "right.metal": "right\n"})
    environment = {**_environment(tmp_path), "PATH": f"{tmp_path}/bin"}
    command = (sys.executable, "-m", "k2_mps_tests.report.xcrun")
    without = support.ran(*command, cwd=project, env=environment)
    assert without.returncode == 77 and "answer: there is no compiler" in without.stdout
    support.write(tmp_path, {"bin/xcrun": XCRUN})
    (tmp_path / "bin/xcrun").chmod(0o755)
    done = support.ran(*command, cwd=project, env=environment)
    assert done.returncode == 1 and "bad.metal:1:1: error: wrong" in done.stderr
    environment["K2_MPS_REPORT_LEFT_OUT"] = '{"bad": "wrong"}'
    rest = support.ran(*command, cwd=project, env=environment)
    assert rest.returncode == 0
    assert [line for line in rest.stdout.splitlines() if "item:" in line] == ["item: right"]


# Programs of macOS: some are missing, and the others print odd things or fail.
MACS_PROGRAMS = {
    "sw_vers": "echo 'BuildVersion: 25B78'",
    "sysctl": "echo sysctl: unknown oid >&2; exit 1",
    "system_profiler": r"printf 'Serial Number: C02XK1\nDisplay of Ada\342\200\231s: \377\n'",
    "pmset": "kill -9 $$",
}


def test_facts_survive_what_the_programs_of_macos_do(project, tmp_path):
    programs = {f"bin/{name}": f"#!/bin/sh\n{text}\n" for name, text in MACS_PROGRAMS.items()}
    support.write(tmp_path, programs)
    for name in programs:
        (tmp_path / name).chmod(0o755)
    environment = {**_environment(tmp_path), "PATH": f"{tmp_path}/bin"}
    # Each program of the report starts as on a Mac.
    environment["PYTHONPATH"] = str(project)
    support.write(project, {"sitecustomize.py": "import sys\nsys.platform = 'darwin'\n"})
    command = (sys.executable, "-m", "k2_mps_tests.report", "--only", "facts")
    done = support.ran(*command, cwd=project, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    [record] = project.glob("build/mac-report/*/record.jsonl")
    lines = map(json.loads, record.read_text().splitlines())
    facts = {}
    for line in lines:
        facts.update(line.get("measured", {}))
    assert facts["macos"] == "BuildVersion: 25B78" and facts["chip"] == "sysctl: unknown oid"
    assert facts["displays"] == "Display of Ada\u2019s: \ufffd"
    assert facts["xcode"] == "xcodebuild: No such file or directory" and facts["power"] == ""


def test_a_program_of_the_system_may_hang():
    assert running.output("sleep", "60", seconds=0.2) == (None, "sleep: no answer in 0 seconds")


def test_edits_begin_a_new_record(tmp_path):
    support.write(tmp_path, {"file": "a\n"})
    assert commit_of(tmp_path) == "no-git"
    support.git(tmp_path, "init", "--quiet")
    support.git(tmp_path, "add", "file")
    support.git(tmp_path, "commit", "--quiet", "-m", "one")
    commit = commit_of(tmp_path)
    support.write(tmp_path, {"file": "b\n"})
    edited = commit_of(tmp_path)
    assert edited.startswith(f"{commit}-edited-")
    support.write(tmp_path, {"file": "c\n"})
    assert commit_of(tmp_path) not in (commit, edited)


def test_the_page_has_the_steps_and_the_questions():
    page = (ROOT / "docs/first-mac.md").read_text(encoding="utf-8")
    plan = list(Plan(ROOT, None).tasks())
    steps = list(dict.fromkeys(task.step for task in plan))
    rows = page.split("## The steps")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)", rows, re.MULTILINE) == steps
    questions = page.split("## Questions")[1].split("\n## ")[0]
    in_brackets = re.findall(r"^\d\. .*?\((.*?)\)", questions, re.MULTILINE)
    assert re.findall(r"`(\w+)`", " ".join(in_brackets)) == list(NEEDS)
    verdicts = page.split("| verdict |")[1].split("\n## ")[0]
    assert set(re.findall(r"`([a-z ]+)`", verdicts)) == VERDICTS.keys()
    left_out = set(steps) - {task.step for task in plan if task.is_quick}
    assert left_out == {"suites", "races"}


def test_each_task_is_a_command_that_exists():
    tested = set()
    for task in Plan(ROOT, "2.15.0").tasks():
        words = list(task.command)
        if words[0] == ".venv/bin/k2mps":
            command = command_line.main.commands[words[1]]
            with click.Context(command_line.main) as parent:
                command.make_context(words[1], words[2:], parent)
            if words[1] == "test":
                # choose() refuses a name that is not that of a suite, or of a file of a suite.
                (suite,) = suites.choose(words[4:5])
                tested.add(suite.name)
        elif words[1] == "-m" and words[2] != "pip":
            assert (ROOT / f"{words[2].replace('.', '/')}.py").exists()
    # The full report runs each suite of a Mac.  A clone of k2 has the files of one of them.
    on_mac = {suite.name for suite in suites.SUITES if "darwin" in suite.platforms}
    assert tested | {"upstream-mps"} == on_mac

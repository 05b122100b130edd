"""The record of `make mac-report`: what was run, with which verdict, and what is still to do."""

import json
import resource
import subprocess
import sys

from k2_mps_tests.report.record import Record, commit_of
from k2_mps_tests.report.series import Runner, Task
from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.reporting import archived, report, user_variables


def test_facts_need_no_environment_and_later_steps_say_what_they_lack(project, tmp_path):
    options = ("--only", "facts", "--only", "environment", "--only", "compiler/driver")
    done = report(project, tmp_path, *options)
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
    report(project, tmp_path, "--only", "numbers", "--torch", "2.15.0")
    [other] = project.glob("build/mac-report/*2.15.0*/record.jsonl")
    verdicts = [line for line in map(json.loads, other.read_text().splitlines())]
    assert verdicts and {line["verdict"] for line in verdicts} == {"not run"}
    assert "there is no .venv" in verdicts[0]["why"]
    # A second run keeps the verdict of the facts, and tries the environment again.
    before = record.read_text()
    report(project, tmp_path, *options)
    after = record.read_text().removeprefix(before)
    assert "virtual environment" in after and '"facts"' not in after


def test_a_step_that_does_not_exist_is_an_error(project, tmp_path):
    done = report(project, tmp_path, "--only", "fact")
    assert (done.returncode, done.stderr) == (1, "error: there is no step fact\n")


def test_after_the_disk_was_full_the_report_goes_on(project, tmp_path):
    command = [sys.executable, "-m", "k2_mps_tests.report", "--only", "facts"]

    def ran(most):
        # Python itself can leave a compiled module that is cut off.
        variables = {**user_variables(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
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
    assert "1 ok" in archived(project)["report.txt"]


def test_after_a_failed_build_only_what_needs_no_k2_runs(project, tmp_path):
    """Even if .venv has the k2 of an older build."""
    errors = "echo swoosh.mm:3:1: error: planted; seq 100"
    tool = f"#!/bin/sh\ncase $* in *--keep-going*) {errors}; exit 34; esac\n"
    programs = {".venv/bin/k2mps": tool, ".venv/bin/python": "#!/bin/sh\necho $*\n"}
    support.write(project, {"Makefile": ".venv/bin/k2mps:\n", **programs})
    for name in programs:
        (project / name).chmod(0o755)
    done = report(project, tmp_path, "--quick")
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

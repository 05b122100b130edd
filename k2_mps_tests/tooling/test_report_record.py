"""The record of `make mac-report`: what was run, with which verdict, and what is still to do."""

import json
import resource
import subprocess
import sys

from k2_mps_tests.report.record import Record, commit_of
from k2_mps_tests.report.series import Runner, Task
from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.reporting import archived, report, user_variables

# Steps with and without a need for the virtual environment.
STEPS = ("--only", "facts", "--only", "environment", "--only", "compiler/driver")


def _record(project, name="*"):
    """Returns the file of the only record whose folder has this name."""
    [record] = project.glob(f"build/mac-report/{name}/record.jsonl")
    return record


def _verdicts(record):
    """Returns the lines of a record that have a verdict."""
    lines = map(json.loads, record.read_text().splitlines())
    return [line for line in lines if "verdict" in line]


def test_facts_need_no_environment(project, tmp_path):
    done = report(project, tmp_path, *STEPS)
    assert done.returncode == 1, done.stdout + done.stderr
    verdicts = {line["item"]: line["verdict"] for line in _verdicts(_record(project))}
    # There is no Makefile, so there is no virtual environment.
    assert verdicts["machine"] == "ok" and verdicts["virtual environment"] == "wrong"


def test_steps_without_their_environment_say_what_they_lack(project, tmp_path):
    report(project, tmp_path, *STEPS)
    verdicts = {line["item"]: line["verdict"] for line in _verdicts(_record(project))}
    for item in ("doctor", "packages", "pip freeze", "driver"):
        assert verdicts[item] == "not run"
    text = (project / "build/mac-report.txt").read_text()
    assert "wrong: environment: virtual environment" in text
    assert "driver: environment, virtual environment: wrong" in text


def test_without_a_verdict_of_the_environment_nothing_is_wrong(project, tmp_path):
    report(project, tmp_path, "--only", "numbers", "--torch", "2.15.0")
    lines = _record(project, "*2.15.0*").read_text().splitlines()
    verdicts = [json.loads(line) for line in lines]
    assert verdicts and {line["verdict"] for line in verdicts} == {"not run"}
    assert "there is no .venv" in verdicts[0]["why"]


def test_a_second_run_repeats_only_what_failed(project, tmp_path):
    report(project, tmp_path, *STEPS)
    before = _record(project).read_text()
    report(project, tmp_path, *STEPS)
    after = _record(project).read_text().removeprefix(before)
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
    verdicts = {(line["step"], line["item"]): line for line in _verdicts(_record(project))}
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

"""How `make mac-report` runs a program: an item that fails, hangs or dies costs only itself."""

import os
import signal
import subprocess
import sys
import time

import pytest

from k2_mps_tests.report import names, pages, running
from k2_mps_tests.report.record import Record
from k2_mps_tests.report.series import Runner, Task
from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.reporting import ROOT, user_variables

# A program with items, one of which does what the variable HOW says.
PROGRAM = """
import os, sys, time
from k2_mps_tests.report import items

def bad():
    os.write(1, b"the reason\\n")  # A crash would lose what is in a buffer.
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
        variables={
            "HOW": how,
            "PYTHONPATH": str(ROOT),
            "PYTHONFAULTHANDLER": "1",
            # items.py itself flushes what it prints.
            "PYTHONUNBUFFERED": "",
        },
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
    page = pages.page(record, "title")
    assert "the reason" in page
    for element in ("details", "table"):
        assert page.count(f"<{element}") == page.count(f"</{element}>") > 0
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

def cases():
    yield "first max_1", lambda: items.measured(max=17, of="max") is None
    if "first max_1" not in items.left_out():
        print("Invalid device store at offset 4, executing kernel function: x", flush=True)
        os.abort()
    yield "bad max_2", lambda: False
    yield "last", lambda: True

items.run(cases())
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
    how = {"cwd": project, "env": user_variables(tmp_path), "stdout": subprocess.DEVNULL}
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


def test_a_program_of_the_system_may_hang():
    assert running.output("sleep", "60", seconds=0.2) == (None, "sleep: no answer in 0 seconds")

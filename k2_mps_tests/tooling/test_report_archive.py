"""The archive that `make mac-report` leaves: its files, and the names that it leaves out."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from k2_mps_tests.report import __main__ as program
from k2_mps_tests.report import names
from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.reporting import archived, report, user_variables


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
    assert report(project, tmp_path, "--only", "facts").returncode == 0
    files = archived(project)
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_an_archive_and_says_so(project, tmp_path, number):
    support.write(project, {"Makefile": ".venv/bin/k2mps:\n\ttouch started; sleep 600\n"})
    command = [sys.executable, "-m", "k2_mps_tests.report", "--only", "facts", "--only"]
    process = subprocess.Popen(
        [*command, "environment"],
        cwd=project,
        env=user_variables(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    )
    support.wait_for(project / "started")
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "interrupted; the file is useful as it is" in said
    text = archived(project)["report.txt"]
    assert "machine" in text and "1 ok, 1 interrupted" in text


def test_a_second_ctrl_c_cannot_prevent_the_archive():
    before = {number: signal.getsignal(number) for number in program._SIGNALS}
    try:
        with pytest.raises(program._Interrupted):
            program._interrupt(signal.SIGINT, None)
        after = {number: signal.getsignal(number) for number in before}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert set(after) >= {signal.SIGINT, signal.SIGTERM}
    assert set(after.values()) == {signal.SIG_IGN}

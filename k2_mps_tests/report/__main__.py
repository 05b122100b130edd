"""The command line of the report: `make mac-report`."""

import argparse
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

from k2_mps_tests.report import archive, names, pages
from k2_mps_tests.report.record import BAD, Record, commit_of, machine
from k2_mps_tests.report.series import Runner, Task
from k2_mps_tests.report.tasks import Plan

ROOT = Path(__file__).resolve().parents[2]
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_VENV = (("environment", "virtual environment"),)
_ENVIRONMENT = (*_VENV, ("environment", "packages"))
# {what a task needs: the items that must not be wrong}
_NEEDED = {
    "": (),
    "venv": _VENV,
    "environment": _ENVIRONMENT,
    "library": (*_ENVIRONMENT, ("build", "build")),
    "build": (*_ENVIRONMENT, ("build", "build"), ("build", "library")),
}


class _Interrupted(BaseException):
    def __init__(self, number: int):
        self.number = number


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _interrupt(number: int, frame: object) -> None:
    _ignore_signals()  # so that a second Ctrl-C cannot prevent the archive
    raise _Interrupted(number)


class _Report:
    """The record of this commit on this machine, and the files that are made from it."""

    def __init__(self, options: argparse.Namespace):
        self._options = options
        self.commit = commit_of(ROOT)
        name = "-".join(filter(None, (self.commit, options.torch, machine())))
        self.folder = ROOT / "build/mac-report" / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.clean = names.cleaner(ROOT)
        self.record = Record(self.folder / "record.jsonl", self.commit)
        began = self.folder / "began"
        if not began.exists():
            began.touch()
        self._since = began.stat().st_mtime

    def write(self) -> None:
        """Writes the text, the page and the archive."""
        emulated = "" if sys.platform == "darwin" else ", emulated"
        title = f"k2-mps at commit {self.commit} on {machine()}{emulated}"
        made = {
            "report.txt": pages.text(self.record, title),
            "report.html": pages.page(self.record, title),
        }
        build = ROOT / "build"
        for name, text in made.items():
            (build / name.replace("report", "mac-report")).write_text(text, encoding="utf-8")
        output = build / "mac-report.tar.gz"
        archive.write(output, ROOT, self.folder, self._since, made, self.clean)

    def is_chosen(self, task: Task) -> bool:
        if self._options.only:
            chosen = (option.partition("/") for option in self._options.only)
            return any(step == task.step and task.name.startswith(name) for step, _, name in chosen)
        return task.is_quick or not self._options.quick

    def lacking(self, needs: str) -> str:
        """Returns why a task that needs a step cannot run; empty if it can."""
        for step, item in _NEEDED[needs]:
            line = self.record.verdicts.get((step, item))
            if line is not None and line["verdict"] in BAD:
                more = ", and an older k2 is not reported about" if step == "build" else ""
                return f"{step}, {item}: {line['verdict']}{more}"
        # With --only, the step `environment` may have no verdict yet.
        if needs and not (ROOT / ".venv/bin/python").exists():
            return "there is no .venv; the step environment makes it"
        return ""

    def run(self) -> None:
        runner = Runner(
            self.record, ROOT, self.folder / "logs", self.clean, self._say, self._options.limit
        )
        step = ""
        plan = Plan(ROOT, self._options.torch)
        needs_k2 = self._options.only and any(
            self.is_chosen(task) and task.needs == "build" for task in plan.tasks()
        )
        for task in plan.tasks():
            # A task that needs k2 also needs the proof that k2 is of this build.
            is_proof = needs_k2 and (task.step, task.name) == ("build", "library")
            if not (self.is_chosen(task) or is_proof):
                continue
            if step not in ("", task.step):
                self.write()
            step = task.step
            if why := self.lacking(task.needs):
                if not self.record.is_done(task.step, task.name):
                    runner.not_run(task, why)
                continue
            runner.run(task)
        if step == "":
            sys.exit(f"error: there is no step {', '.join(self._options.only)}")

    @staticmethod
    def _say(line: str) -> None:
        print(line, flush=True)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make mac-report REPORT=",
        description="Tests and times k2 on this machine, and writes build/mac-report.tar.gz.  "
        "A second run goes on where the first run ended.",
        epilog="Exit status: 0 all is right, 1 something is not right.",
    )
    parser.add_argument(
        "--quick", action="store_true", help="about ten minutes; a run without --quick goes on"
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="STEP[/NAME]",
        help="run only this step, or its tasks whose names begin with NAME; several times",
    )
    parser.add_argument(
        "--limit", type=float, metavar="SECONDS", help="the time limit of each item"
    )
    parser.add_argument("--torch", metavar="VERSION", help="another torch, for TORCH=VERSION")
    return parser.parse_args()


def _keep_awake() -> None:
    """Keeps a Mac from sleeping while this process runs."""
    if sys.platform == "darwin":
        with contextlib.suppress(OSError):
            subprocess.Popen(
                ["caffeinate", "-dims", "-w", str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )


def main() -> int:
    options = _parse()
    sys.stdout.reconfigure(errors="replace")
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    os.chdir(ROOT)
    try:
        return _start(options)
    except OSError as error:  # for example, the disk is full
        print(f"error: {error}", file=sys.stderr)
        print("the record has what was done; the same command goes on from here", file=sys.stderr)
        return 1


def _start(options: argparse.Namespace) -> int:
    os.environ.update(
        PYTHONPATH=os.pathsep.join([str(ROOT), str(ROOT / "tools")]),
        # Without these, a process that aborts takes its text along, and says not where it was.
        PYTHONUNBUFFERED="1",
        PYTHONFAULTHANDLER="1",
        # Some locales cannot express what the programs print.
        PYTHONUTF8="1",
        # k2 ignores the result of an earlier calibration.
        K2_MPS_COSTS="",
    )
    for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):
        os.environ.pop(name, None)
    report = _Report(options)
    with open(report.folder / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("error: another mac-report runs", file=sys.stderr)
            return 1
        return _run(report)


def _run(report: _Report) -> int:
    status = 0
    try:
        _keep_awake()
        report.run()
    except _Interrupted as interrupted:
        status = 128 + interrupted.number
    _ignore_signals()
    report.write()
    bad = list(report.record.bad())
    print(pages.counts(report.record))
    for line in bad:
        print(f"{line['verdict']}: {line['step']}: {line['item']}")
    print("wrote build/mac-report.tar.gz; attach it to an issue, even if something is not right")
    if status:
        print("interrupted; the file is useful as it is; the same command goes on from here")
        return status
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

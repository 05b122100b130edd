"""The record of a report: a file of JSON lines that is only appended to.

Each line has the commit, the step and the item, and one of these keys:

  began      the item has begun
  runs_again the item will begin again, in a process of its own; see series.py
  verdict    the item has ended; see VERDICTS
  measured   something that the item measured
"""

import contextlib
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from k2_mps_tests.report import running

# {verdict: whether the verdict is final}.  A later run runs an item again if its last verdict is
# not final.
VERDICTS = {
    "ok": True,
    "wrong": True,
    "crashed": True,
    "hung": True,
    "no answer": True,  # the question has no answer on this machine
    "not run": False,  # something that the item needs has failed
    "interrupted": False,
}
BAD = ("wrong", "crashed", "hung")


class Record:
    """A record, and what its lines say."""

    def __init__(self, path: Path, commit: str):
        self.path, self._commit = path, commit
        self.verdicts: dict[tuple[str, str], dict] = {}  # the last verdict of each item, in order
        self.measured: list[dict] = []
        # How often each item has begun since its last verdict.
        self.begun: dict[tuple[str, str], int] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        for line in path.read_bytes().splitlines() if path.exists() else ():
            # The last line of a killed run may be cut off.
            with contextlib.suppress(ValueError):
                self._take(json.loads(line))
        self._file = open(path, "ab")
        if path.stat().st_size and not path.read_bytes().endswith(b"\n"):
            self._file.write(b"\n")

    def add(self, step: str, item: str, **values: object) -> dict:
        """Appends a line, and returns it."""
        line = {
            "commit": self._commit,
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "step": step,
            "item": item,
            **values,
        }
        self._file.write((json.dumps(line) + "\n").encode())
        self._file.flush()
        # The line must survive a panic of the kernel, which a GPU's driver can cause.
        os.fsync(self._file.fileno())
        self._take(line)
        return line

    def _take(self, line: dict) -> None:
        key = line["step"], line["item"]
        if "verdict" in line:
            self.verdicts.pop(key, None)  # so that the order is that of the last verdicts
            self.verdicts[key] = line
            self.begun.pop(key, None)
        elif "measured" in line:
            self.measured.append(line)
        elif "runs_again" in line:
            self.begun.pop(key, None)
        elif "began" in line:
            self.begun[key] = self.begun.get(key, 0) + 1

    def is_done(self, step: str, item: str) -> bool:
        """Whether an item has a verdict that a later run keeps."""
        found = self.verdicts.get((step, item))
        return found is not None and VERDICTS[found["verdict"]]

    def bad(self) -> Iterator[dict]:
        """Yields the verdicts of the items that are not right."""
        for line in self.verdicts.values():
            if line["verdict"] in BAD:
                yield line


def _output(*command: str, cwd: Path | None = None) -> bytes:
    """Returns what a command prints; empty if it fails or is missing."""
    try:
        done = subprocess.run(command, capture_output=True, cwd=cwd)
    except OSError:
        return b""
    return done.stdout if done.returncode == 0 else b""


def commit_of(root: Path) -> str:
    """Returns the commit of the project, and a hash of the edits if there are any."""
    commit = _output("git", "rev-parse", "HEAD", cwd=root).decode().strip()[:12]
    if not commit or not (root / ".git").exists():
        return "no-git"
    edits = _output("git", "diff", "HEAD", "--binary", cwd=root)
    return commit + ("-edited-" + hashlib.sha256(edits).hexdigest()[:8] if edits else "")


def machine() -> str:
    """Returns a name for this machine and its system that names neither host nor user."""
    words = [platform.system(), platform.machine(), f"{os.cpu_count()}-cores"]
    if sys.platform == "darwin":
        asked = ("machdep.cpu.brand_string", "hw.memsize", "kern.osversion")
        said = [running.output("sysctl", "-n", name, seconds=10) for name in asked]
        words = [text.strip() for status, text in said if status == 0] or words
    return re.sub(r"[^a-z0-9.]+", "-", "-".join(words).lower())

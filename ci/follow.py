#!/usr/bin/env python3
"""Rebases the series onto upstream's newest commit, and reports what stops it.

The program runs `git rebase` in a clone of its own.  If a patch conflicts, the program notes the
files and the upstream commits since the pin that changed these files; then it skips the patch, to
try the others.  If no patch conflicts, the program rebases the series itself, drops the patches
whose changes upstream has, builds k2 and runs the suites of SUITES.

The program writes a text for an issue into build/follow.md.  If a step fails, the text has the last
lines of the step's output.  After the rebase, patches/ stays rebased; `git stash -u -- patches
upstream.toml` undoes this.

Exit status: 0 if the series is on upstream's newest commit, and all steps passed there; 34 if a
person has to do something that the text names; any other status if k2 cannot be patched or fetched.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# This program runs in the system's Python, in which the tool is not installed.
sys.path.append(str(ROOT / "tools"))

from k2mps.core import errors, pins  # noqa: E402

TEXT = ROOT / "build/follow.md"
SUITES = ("upstream-cpu", "parity", "k2_mac")
FINDINGS = errors.CheckFailedError.exit_code
# How many of the last lines of a failed step's output are in the text.
LAST = 40
# git's settings for the commits of a rebase, whose committer is nobody's identity.
NOBODY = {"user.name": "follow", "user.email": "follow@k2-mps.invalid"}


def run(command: list[str | Path], folder: Path, **options) -> subprocess.CompletedProcess:
    """Runs a command in a folder; returns its status, and its output and errors as one text."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.run(command, cwd=folder, **streams, **options)


def as_nobody() -> dict[str, str]:
    """Returns this process's environment, with NOBODY after the settings of git that it has."""
    count = int(os.environ.get("GIT_CONFIG_COUNT") or 0)
    environment = {**os.environ, "GIT_CONFIG_COUNT": str(count + len(NOBODY))}
    for number, (key, value) in enumerate(NOBODY.items(), start=count):
        environment[f"GIT_CONFIG_KEY_{number}"] = key
        environment[f"GIT_CONFIG_VALUE_{number}"] = value
    return environment


def git(folder: Path, *words: str) -> subprocess.CompletedProcess:
    """Runs git in a folder."""
    environment = {**as_nobody(), "GIT_EDITOR": ":", "LC_ALL": "C"}
    return run(["git", *words], folder, env=environment, errors="replace")


def read(folder: Path, *words: str) -> list[str]:
    """Returns the lines that a command of git prints; ends the program if the command fails."""
    done = git(folder, *words)
    if done.returncode:
        sys.exit(f"error: git {' '.join(words)}: {done.stdout}")
    return done.stdout.splitlines()


def run_tool(*words: str) -> subprocess.CompletedProcess:
    """Runs the tool of this clone, and prints its output."""
    print("+ k2mps", *words, flush=True)
    done = run([ROOT / ".venv/bin/k2mps", *words], ROOT, env=as_nobody())
    print(done.stdout, end="", flush=True)
    return done


def quoted(lines: list[str]) -> list[str]:
    """Returns lines as a code block of Markdown, because upstream's names may look like markup."""
    return ["", *(f"    {line}" for line in lines), ""]


def conflicts(clone: Path, pin: str, onto: str) -> list[str]:
    """Rebases the series in a clone; returns the lines of the text about the patches that conflict.

    Args:
      pin, onto: the old and the new upstream commit.
    """
    trailer = "--format=%(trailers:key=Patch-Filename,valueonly,separator=)"
    log = ("log", "--format=%H %cs %an: %s", f"{pin}..{onto}", "--")
    lines, command = [], ("rebase", "--quiet", "--onto", onto, pin)
    while (done := git(clone, *command)).returncode:
        files = read(clone, "diff", "--name-only", "--diff-filter=U")
        if not files:
            sys.exit(f"error: git {' '.join(command)}: {done.stdout}")
        [name] = read(clone, "log", "-1", trailer, "REBASE_HEAD")
        touched = [f"  touched by {line}" for line in read(clone, *log, *files)]
        lines += quoted([f"{name}: conflicts in {', '.join(files)}", *touched])
        command = ("rebase", "--skip")
    return lines


def carry(onto: str) -> tuple[bool, list[str]]:
    """Rebases the series itself, builds and tests; stops after the first step that fails.

    Returns:
      Whether all steps passed, and the lines of the text about these steps.
    """
    lines = []
    for command in (("rebase", "--onto", onto), ("lint",), ("build",), ("test", *SUITES)):
        done = run_tool(*command)
        dropped = re.findall(r"^k2 has the changes of (.*) at ", done.stdout, re.MULTILINE)
        lines += [f"* {path} is dropped: upstream has it" for path in dropped]
        lines.append(f"* `k2mps {' '.join(command)}`: {'failed' if done.returncode else 'passed'}")
        if done.returncode:
            return False, [*lines, *quoted(done.stdout.splitlines()[-LAST:])]
    return True, lines


def main() -> int:
    applied = run_tool("apply")
    if applied.returncode:
        return applied.returncode
    url, pin, *_ = pins.load(ROOT / "upstream.toml").pin
    k2 = ROOT / "build/k2"
    with tempfile.TemporaryDirectory(prefix="follow-") as folder:
        clone = Path(folder)
        read(k2, "clone", "--quiet", "--branch=k2-mps", str(k2), folder)
        read(clone, "fetch", "--quiet", url, "HEAD")
        [onto] = read(clone, "rev-parse", "FETCH_HEAD")
        [count] = read(clone, "rev-list", "--count", f"{pin}..{onto}")
        lines = [f"Upstream's default branch is {count} commits after the pin."]
        found = conflicts(clone, pin, onto) if onto != pin else []
    passed = not found
    if found:
        lines += [
            *found,
            f"To rebase, run `k2mps rebase --onto {onto}`. At each conflict, resolve it, and run"
            " `git rebase --continue`.",
        ]
    elif onto != pin:
        passed, steps = carry(onto)
        lines += [f"No patch conflicts with {onto}. There:", "", *steps]
    TEXT.parent.mkdir(exist_ok=True)
    TEXT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return 0 if passed else FINDINGS


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("error: interrupted")
    except (OSError, errors.K2mpsError) as error:
        sys.exit(f"error: {error}")

#!/usr/bin/env python3
"""Rebases the series towards upstream's newest commit, and reports what stops it.

The program probes upstream's default branch, rebases the series onto the newest commit to which all
patches apply, builds k2 there and runs the suites `upstream-cpu`, `parity` and `k2_mac`.  If
upstream already has the lines of a patch, the program drops the patch.  The program writes a text
for an issue into build/follow.md.  The text names the dropped patches and, for each patch that does
not apply, the commit that breaks the patch.  If a step fails, the text also has the last lines of
the step's output.  The program leaves patches/ rebased; `git stash -u -- patches upstream.toml`
undoes this.

Exit status: 0 if the series is on upstream's newest commit, and all steps passed there; 34 if a
person has to do something that the text names; any other status if the probe failed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEXT = ROOT / "build/follow.md"
SUITES = ("upstream-cpu", "parity", "k2_mac")
# Exit codes of k2mps, from k2mps.core.errors.  This program does not import that module, because
# the program runs in the system's Python.  A test compares the codes.
FINDINGS = 34
CONFLICT = 14
# How many of the last lines of a failed step's output are in the text.
LAST = 40


def k2mps(*words: str, **how) -> subprocess.CompletedProcess:
    """Runs the tool of this clone."""
    return subprocess.run([ROOT / ".venv/bin/k2mps", *words], cwd=ROOT, text=True, **how)


def quoted(text: str) -> list[str]:
    """Returns lines as a code block of Markdown, because upstream's names may look like markup."""
    return ["", *(f"    {line}" for line in text.splitlines()), ""]


def shown(*words: str) -> subprocess.CompletedProcess:
    """Runs the tool of this clone, and prints its output."""
    print("+ k2mps", *words, flush=True)
    done = k2mps(*words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout, end="", flush=True)
    return done


def superseded(done: subprocess.CompletedProcess, has: set[str]) -> str:
    """Returns the patch at which a rebase stopped if upstream has the patch's lines, else ""."""
    stopped = re.search(r"^error: .*patches/(\S+\.patch)\b(.*)", done.stdout, re.MULTILINE)
    if done.returncode != CONFLICT or not stopped:
        return ""
    return stopped[1] if stopped[1] in has or "changes nothing" in stopped[2] else ""


def carry(target: str, has: set[str]) -> tuple[bool, list[str]]:
    """Rebases, builds and tests; stops after the first step that fails.

    Args:
      target: the upstream commit.
      has: the patches whose lines upstream has.  The rebase drops these patches.
    Returns:
      Whether all steps passed, and the lines of the text about these steps.
    """
    lines, last = [], ""
    for words in (("rebase", "--onto", target), ("lint",), ("build",), ("test", *SUITES)):
        done = shown(*words)
        name = superseded(done, has)
        while name and name != last:
            lines.append(f"* {name} is dropped: upstream has its lines")
            last = name
            done = shown("rebase", "--continue", "--drop", name)
            name = superseded(done, has)
        lines.append(f"* `k2mps {' '.join(words)}`: {'failed' if done.returncode else 'passed'}")
        if done.returncode:
            if words[0] == "rebase":
                k2mps("rebase", "--abort")
            lines += quoted("\n".join(done.stdout.splitlines()[-LAST:]))
            return False, lines
    return True, lines


def main() -> int:
    probed = k2mps("probe", "--json", stdout=subprocess.PIPE)
    if probed.returncode:
        return probed.returncode
    result = json.loads(probed.stdout)
    start, end, target = result["start"]["id"], result["end"]["id"], result["carries_to"]
    broken = [patch for patch in result["patches"] if patch["broken"]]
    has = {patch["name"] for patch in broken if patch["broken"]["upstream_has"]}
    if broken and len(has) == len(broken):
        target = end
    lines = [f"Upstream's default branch is {result['steps']} commits after the pin."]
    for patch in broken:
        commit, paths = patch["broken"]["commit"], ", ".join(patch["broken"]["paths"])
        facts = f"{patch['name']}: {paths}\n  since {commit['id']} {commit['date']}"
        lines += quoted(f"{facts} {commit['author']}: {commit['subject']}")
    passed = True
    if target != start:
        whole = "All patches apply" if target == result["carries_to"] else "The others apply"
        lines += [f"{whole} to {target}. There:", ""]
        passed, more = carry(target, has)
        lines += more
    lines += ["", f"`k2mps rebase --onto {end}` goes on by hand."] if target != end else []
    TEXT.parent.mkdir(exist_ok=True)
    TEXT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return 0 if passed and target == end else FINDINGS


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("error: interrupted")
    except OSError as error:
        sys.exit(f"error: {error}")

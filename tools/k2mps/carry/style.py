"""Whether what a commit adds is as k2's own style checkers want it.

k2's CI runs flake8 over its Python, and `scripts/check_style_cpplint.sh` over
the C++ of the last commit.  Here both look at the files of a commit, and what
they find on lines that the commit adds counts: k2's own lines are k2's.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from k2mps.core import errors
from k2mps.stack.checkout import Checkout

_CXX = (".h", ".cc", ".cu")
# k2's script edits cpplint so that it allows this.
_ALLOWED = re.compile(r"__host__ __device__ \(")
_CPPLINT = re.compile(r"(.+?):(\d+):  (.+)")
_FLAKE8 = re.compile(r"(.+?):(\d+):\d+: (.+)")
_HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")


def findings(checkout: Checkout, commit: str) -> Iterator[str]:
    """What the checkers say of the lines of a commit, as path:line: text.

    Args:
      checkout: where this commit is checked out.
    """
    added = _added(checkout, commit)
    cxx = [path for path in added if path.endswith(_CXX)]
    python = [path for path in added if path.endswith(".py")]
    for module, pattern, options, paths in (
        ("cpplint", _CPPLINT, (f"--repository={checkout.directory}", "--quiet"), cxx),
        ("flake8", _FLAKE8, ("--no-show-source",), python),
    ):
        for line in _run(module, options, paths, checkout.directory):
            match = pattern.fullmatch(line)
            if match and int(match[2]) in added.get(match[1], ()):
                path, number = checkout.directory / match[1], int(match[2])
                text = path.read_text(encoding="utf-8").splitlines()[number - 1]
                if not _ALLOWED.search(text):
                    yield f"{match[1]}:{number}: {match[3].strip()}"


def _added(checkout: Checkout, commit: str) -> dict[str, set[int]]:
    """The lines that a commit adds, by file."""
    found: dict[str, set[int]] = {}
    diff = checkout.git.bytes(
        "diff-tree", "-r", "-p", "-U0", "--no-renames", "--diff-filter=AM", f"{commit}~", commit
    )
    lines: set[int] = set()
    for line in diff.decode("utf-8", "replace").splitlines():
        if line.startswith("+++ b/"):
            lines = found.setdefault(line[len("+++ b/") :], set())
        match = _HUNK.match(line)
        if match:
            first, count = int(match[1]), int(match[2] or 1)
            lines.update(range(first, first + count))
    return found


def _run(module: str, options: Sequence[str], paths: Sequence[str], folder: Path) -> list[str]:
    if not paths:
        return []
    result = subprocess.run(
        [sys.executable, "-m", module, *options, *paths],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if "No module named" in result.stdout:
        raise errors.RequirementMissingError(
            f"{module} is not installed", next_command="make build"
        )
    return result.stdout.splitlines()

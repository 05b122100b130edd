"""Upstream commits onto which the tests rebase the series, and what the tests do then."""

import re
from pathlib import Path

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.sandbox import CONTEXT, LONG_FILE, Sandbox
from k2_mps_tests.tooling.support import git

# The warning of `export` before the names of the commits.
LEFT_OUT = "changes of commits that it had before a rebase:"
OTHERS_WORK = {"k2/csrc/new.cu": "new\n", CONTEXT: "a line before\n" + LONG_FILE}
CONFLICT = {CONTEXT: LONG_FILE.replace("line 50\n", "line 50, better\n")}
# The changes of the patch ARRAY.
SUPERSEDES = {
    CONTEXT: LONG_FILE.replace("line 90\n", ""),
    "k2/csrc/no_newline.txt": "first\nlast, still without",
    "k2/csrc/crlf.txt": "one\r\nTWO\r\nthree\r\n",
}


def pin(sandbox) -> dict:
    text = (sandbox.root / "upstream.toml").read_text()
    return dict(re.findall(r'^(\w+) = "(\w[^"]*)"', text, re.MULTILINE))


def onto_a_release(sandbox) -> tuple[str, str]:
    """Rebases onto a new version of k2; returns the id of the new commit, and the tool's output."""
    release = {"CMakeLists.txt": 'project(k2)\nset(K2_VERSION "1.1")\n'}
    onto = support.commit(sandbox.upstream, "Others' work", {**OTHERS_WORK, **release})
    return onto, sandbox.ok("rebase", "--onto", onto)


def stopped(sandbox) -> tuple[str, str]:
    """Rebases onto a commit with which the first patch conflicts; returns id and output."""
    onto = support.commit(sandbox.upstream, "Better line", CONFLICT)
    result = sandbox.run("rebase", "--onto", onto)
    assert result.returncode == 14, result.stderr
    return onto, result.stdout + result.stderr


def resolve(k2, text="line fifty, better\nand a half\n"):
    support.resolve(k2 / CONTEXT, text)
    git(k2, "add", CONTEXT)
    git(k2, "rebase", "--continue", env={"GIT_EDITOR": ":"})


def rebase(sandbox: Sandbox, directory: Path, onto: str) -> None:
    """Rebases branch k2-mps of a checkout onto an upstream commit, by git alone."""
    git(directory, "fetch", "--quiet", sandbox.upstream.as_uri(), onto)
    config = ("-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false")
    git(directory, *config, "rebase", "--quiet", "--onto", onto, sandbox.pin, "k2-mps")

"""Every command is killed, or finds the disk full, at a change of a file.

A library that the processes load (fault.c) counts the calls that change files, of the tool and of
all git commands that it runs.  At the chosen call all these processes are killed by SIGKILL at
once; or that call and all later ones find the disk full.

After it, every byte of the user's is in a file, in a commit that a ref or a reflog names, or in
this repository's git.  The same command, given again, ends as if nothing had happened.  Before
that, the user deletes the locks of git that the message names, and nothing else.

`--fault-points N` sets how many calls of each command are tried, spread evenly.  The
default, 56, makes 336 kills and 98 full disks.
"""

import os
import re
import shutil
import subprocess
import sys

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import CONTEXT, MPS, git, patches

MINE = "an hour's work\n"


def edit(sandbox) -> None:
    support.edit(sandbox.checkout / CONTEXT, "line 20\n", MINE)
    support.write(sandbox.checkout, {"k2/csrc/mps/mine.h": MINE})


def commit(sandbox) -> None:
    edit(sandbox)
    git(sandbox.checkout, "add", "--all")
    git(sandbox.checkout, "commit", "--quiet", "-m", "mine")


def change_patches(sandbox) -> None:
    """The new text of a patch, and a file of no patch."""
    support.write(sandbox.checkout, {"k2/csrc/mps/mine.h": MINE})
    (sandbox.root / "patches/files/cmake/mps.cmake").write_text(MINE)


def newer(sandbox) -> None:
    files = {CONTEXT: "first\n" + support.LONG_FILE}
    support.commit(sandbox.upstream, "Newer", files)


def stopped(sandbox) -> None:
    files = {CONTEXT: support.LONG_FILE.replace("line 50\n", "line 50, better\n")}
    support.commit(sandbox.upstream, "Better", files)
    sandbox.fails(14, "rebase", "--onto", "master")
    support.resolve(sandbox.root / "build/rebase" / CONTEXT, MINE)


def absent(sandbox) -> None:
    shutil.rmtree(sandbox.checkout)


# What the user did before.
COMMANDS = {
    "apply": change_patches,
    f"fold {MPS} k2/csrc/mps/mine.h": edit,
    "new x k2/csrc/mps/mine.h": edit,
    "export": commit,
    "rebase --onto master": newer,
    "rebase --continue": stopped,
}
CLONE = {"checkout": absent}


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """The library of fault.c."""
    path = tmp_path_factory.mktemp("fault") / "fault.so"
    source = support.TOOLS.parent / "k2_mps_tests/tooling/fault.c"
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if sys.platform != "linux" or not compiler:
        pytest.skip("needs Linux and a C compiler")
    support.output(compiler, "-shared", "-fPIC", "-O1", "-o", path, source, "-ldl")
    return path


class Copies:
    """Copies of a sandbox, in each of which a command is run once with a fault."""

    def __init__(self, sandbox, library, command):
        self.words, self._library = command.split(), library
        self.sandbox = sandbox
        self._original = sandbox.root.with_name("original")
        shutil.copytree(sandbox.root, self._original, symlinks=True)

    def renew(self) -> None:
        shutil.rmtree(self.sandbox.root)
        shutil.copytree(self._original, self.sandbox.root, symlinks=True)
        if self.sandbox.checkout.exists():
            git(self.sandbox.checkout, "update-index", "-q", "--refresh")

    def run(self, at: int, **more: str) -> subprocess.CompletedProcess:
        """Runs the command with a fault at this call, from 1; 0 is none."""
        self._calls = self.sandbox.root.with_name("calls")
        self._calls.write_bytes(bytes(8192))
        env = {"LD_PRELOAD": str(self._library), "FAULT_FILE": str(self._calls), **more}
        env |= {**self.sandbox.environment, "FAULT_AT": str(at), "PYTHONDONTWRITEBYTECODE": "1"}
        return self.sandbox.program(*self.sandbox.command(*self.words), env=env)

    @property
    def calls(self) -> int:
        return int.from_bytes(self._calls.read_bytes()[:4], "little")

    def again(self, end: tuple) -> None:
        """Runs the command without a fault, and deletes the locks that it names."""
        # If the first run did all of the work, the second may report that nothing is left to do.
        complete = self.sandbox.checkout.exists() and self.end() == end
        for _ in range(8):
            result = self.sandbox.run(*self.words)
            locked = re.search("^error: (.*[.]lock) exists$", result.stderr, re.MULTILINE)
            if not locked:
                break
            os.unlink(locked[1])
        assert complete or result.returncode == 0, result.stderr

    def end(self) -> tuple:
        """All that the command leaves, without the dates of patches, which are those of the run."""
        sandbox = self.sandbox
        files = {
            path: re.sub(rb"^Date: .*", b"", text, flags=re.MULTILINE)
            for path, text in patches(sandbox).items()
        }
        found = support.snapshot(sandbox.checkout, times=False)["files"]
        tree = git(sandbox.checkout, "rev-parse", "HEAD^{tree}")
        state = git(sandbox.checkout, "status", "--porcelain")
        return files, found, tree, state, (sandbox.root / "build/rebase").exists()

    def has_mine(self) -> bool:
        """Whether the user's bytes are in a file, or in a commit that a ref or reflog names."""
        sandbox = self.sandbox
        places = [sandbox.checkout / CONTEXT, sandbox.checkout / "k2/csrc/mps/mine.h"]
        if any(path.is_file() and MINE in path.read_text() for path in places):
            return True
        commits = git(sandbox.checkout, "log", "--all", "--reflog", "--format=%H").split()
        return any(
            MINE.strip()
            in subprocess.run(
                ["git", "show", f"{one}:{CONTEXT}"],
                cwd=sandbox.checkout,
                capture_output=True,
                text=True,
            ).stdout
            for one in commits
        )


@pytest.fixture
def copies(request, sandbox, k2, library):
    prepare = {**COMMANDS, **CLONE}[request.param]
    prepare(sandbox)
    found = Copies(sandbox, library, request.param)
    found.users = prepare in (change_patches, edit, commit)
    return found


def points(request, count: int) -> list[int]:
    wanted = min(count, request.config.getoption("--fault-points"))
    return [1 + number * count // wanted for number in range(wanted)]


@pytest.mark.parametrize("copies", COMMANDS, indirect=True)
def test_a_kill_at_any_change_of_a_file(copies, request):
    copies.renew()
    assert copies.run(0).returncode == 0
    end, count, killed = copies.end(), copies.calls, 0
    assert count > 50
    for at in points(request, count):
        copies.renew()
        killed += copies.run(at).returncode == -9
        assert not copies.users or copies.has_mine(), at
        copies.again(end)
        assert copies.end() == end, at
    assert killed > 0.8 * len(points(request, count))


@pytest.mark.parametrize("copies", {**COMMANDS, **CLONE}, indirect=True)
def test_a_disk_that_is_full_at_any_write(copies, request):
    copies.renew()
    assert copies.run(0).returncode == 0
    end, count = copies.end(), copies.calls
    for at in points(request, count)[::4]:
        copies.renew()
        result = copies.run(at, FAULT_FULL="1")
        assert "Traceback" not in result.stderr, result.stderr
        told = result.stderr.lower()
        assert result.returncode == 0 or re.search("no space left|free some space", told), told
        assert not copies.users or copies.has_mine(), at
        copies.again(end)
        assert copies.end() == end, at

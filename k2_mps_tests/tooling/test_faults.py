"""A command that is killed, or that finds the disk full, loses no work and can be repeated.

The tool and all git commands that it starts load the library of fault.c, which counts their calls
that change files.  Before a chosen call, the library kills all these processes by SIGKILL.  In
other runs, the chosen call and all later calls that need space fail, as on a full disk.

Afterwards, the user's edits must be in a file, or in a commit that a ref or a reflog names.  The
same command must then succeed, and leave the same files as after a run without a fault.  If the
command fails because of a lock of git, the test deletes this lock, as a user would, and repeats
the command.  If the command names files that a killed `git switch` has left, the test completes
them by the command of the message.

After every second kill, the user works before the command is repeated.  Nothing of this work may be
lost, whether the repeated command succeeds or refuses.

`--fault-points N` sets at how many calls each command is killed; the calls are spread evenly.
For every fourth of these calls, another run of the command finds the disk full.  The default, 56,
makes 280 kills and 84 full disks, for all commands together.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.rebasing import rebase
from k2_mps_tests.tooling.sandbox import CONTEXT, LONG_FILE, MPS, NEW
from k2_mps_tests.tooling.series_files import patches
from k2_mps_tests.tooling.support import git

MINE = "an hour's work\n"
LATER = "work after the kill\n"
SCRIPT = "scripts/run.sh"


def edit(sandbox) -> None:
    support.edit(sandbox.checkout / CONTEXT, "line 20\n", MINE)
    support.write(sandbox.checkout, {"k2/csrc/mps/mine.h": MINE})


def commit(sandbox) -> None:
    edit(sandbox)
    git(sandbox.checkout, "add", "--all")
    git(sandbox.checkout, "commit", "--quiet", "-m", "mine")


def change_patches(sandbox) -> None:
    """Edits a new file of a patch in patches/, and writes a file that no patch has."""
    support.write(sandbox.checkout, {"k2/csrc/mps/mine.h": MINE})
    (sandbox.root / "patches/files/cmake/mps.cmake").write_text(MINE)


def newer(sandbox) -> None:
    files = {CONTEXT: "first\n" + LONG_FILE}
    onto = support.commit(sandbox.upstream, "Newer", files)
    rebase(sandbox, sandbox.checkout, onto)
    commit(sandbox)


def absent(sandbox) -> None:
    shutil.rmtree(sandbox.checkout)


# The commands, each with a function that does what the user did before the command.
COMMANDS = {
    "apply": change_patches,
    f"fold {MPS} k2/csrc/mps/mine.h": edit,
    "new x k2/csrc/mps/mine.h": edit,
    "export": commit,
    "export --onto master": newer,
}
CLONE = {"apply ": absent}


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """The path of the library that is compiled from fault.c."""
    path = tmp_path_factory.mktemp("fault") / "fault.so"
    source = support.TOOLS.parent / "k2_mps_tests/tooling/fault.c"
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if sys.platform != "linux" or not compiler:
        pytest.skip("needs Linux and a C compiler")
    support.output(compiler, "-shared", "-fPIC", "-O1", "-o", path, source, "-ldl")
    return path


class Copies:
    """A sandbox in which a command runs again and again, each time from the same state."""

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
        """Runs the command with a fault at call number `at`, from 1; 0 means no fault."""
        self._calls = self.sandbox.root.with_name("calls")
        self._calls.write_bytes(bytes(8192))
        env = {"LD_PRELOAD": str(self._library), "FAULT_FILE": str(self._calls), **more}
        env |= {**self.sandbox.environment, "FAULT_AT": str(at), "PYTHONDONTWRITEBYTECODE": "1"}
        return self.sandbox.program(*self.sandbox.command(*self.words), env=env)

    @property
    def calls(self) -> int:
        return int.from_bytes(self._calls.read_bytes()[:4], "little")

    def again(self, end: tuple) -> None:
        """Runs the command without a fault; deletes each lock that an error names, and repeats.

        Args:
          end: what `end()` returns after a run without a fault.
        """
        # If the run with the fault did all the work, this run may fail: nothing is left to do.
        complete = self.sandbox.checkout.exists() and self.end() == end
        for _ in range(8):
            result = self.sandbox.run(*self.words)
            locked = re.search("^error: (.*[.]lock) exists$", result.stderr, re.MULTILINE)
            left = re.search("killed command has left them, (git .*), then", result.stderr)
            if locked:
                os.unlink(locked[1])
            elif left:
                support.shell(self.sandbox.root, left[1])
            else:
                break
        assert complete or result.returncode == 0, result.stderr

    def end(self) -> tuple:
        """Returns all that the command leaves, except the patches' dates, which always differ."""
        sandbox = self.sandbox
        files = {
            path: re.sub(rb"^Date: .*", b"", text, flags=re.MULTILINE)
            for path, text in patches(sandbox).items()
        }
        found = support.snapshot(sandbox.checkout, times=False)["files"]
        tree = git(sandbox.checkout, "rev-parse", "HEAD^{tree}")
        state = git(sandbox.checkout, "status", "--porcelain")
        return files, found, tree, state

    def has(self, text: str, *paths: str) -> bool:
        """Returns whether a text is in one of these files of the checkout, or in the first of them
        in a commit of a ref or a reflog."""
        k2 = self.sandbox.checkout
        files = [k2 / path for path in paths]
        if any(file.is_file() and text in file.read_text() for file in files):
            return True
        commits = git(k2, "log", "--all", "--reflog", "--format=%H").split()
        names = [f"{commit}:{paths[0]}" for commit in commits]
        return any(text in support.ran("git", "show", name, cwd=k2).stdout for name in names)

    def has_mine(self) -> bool:
        return self.has(MINE, CONTEXT, "k2/csrc/mps/mine.h")

    def work(self) -> None:
        """Works as a user after a kill: edits a file of k2 and a patch, and commits a new file."""
        k2, patch = self.sandbox.checkout, self.sandbox.root / "patches" / NEW
        with open(k2 / SCRIPT, "a") as script:
            script.write(LATER)
        patch.write_text(patch.read_text().replace("\n\nWhy.\n", f"\n\nWhy.  {LATER}"))
        for lock in k2.rglob(".git/**/*.lock"):
            lock.unlink()
        support.write(k2, {"later.h": LATER})
        git(k2, "add", "later.h")
        git(k2, "commit", "--quiet", "-m", "later", "--", "later.h")

    def check_work(self) -> None:
        """Checks that nothing of `work` is lost."""
        assert self.has(LATER, SCRIPT)
        assert self.has(LATER, "later.h")
        texts = patches(self.sandbox).values()
        assert any(LATER.encode() in text for text in texts)


@pytest.fixture
def copies(request, sandbox, k2, library):
    prepare = {**COMMANDS, **CLONE}[request.param]
    prepare(sandbox)
    found = Copies(sandbox, library, request.param)
    found.users = prepare in (change_patches, edit, commit, newer)
    return found


def points(request, count: int) -> list[int]:
    wanted = min(count, request.config.getoption("--fault-points"))
    return [1 + number * count // wanted for number in range(wanted)]


@pytest.mark.parametrize("copies", COMMANDS, indirect=True)
def test_a_killed_command_loses_no_work_and_can_be_repeated(copies, request):
    copies.renew()
    assert copies.run(0).returncode == 0
    end, count, killed = copies.end(), copies.calls, 0
    assert count > 50
    for number, at in enumerate(points(request, count)):
        copies.renew()
        killed += copies.run(at).returncode == -9
        assert not copies.users or copies.has_mine(), at
        if number % 2:
            copies.work()
            for _ in range(2):
                copies.sandbox.run(*copies.words)
                copies.check_work()
                assert not copies.users or copies.has_mine(), at
        else:
            copies.again(end)
            assert copies.end() == end, at
    assert killed > 0.8 * len(points(request, count))
    # docs/guarantees.md names the folders that killed runs leave.
    left = list(Path(copies.sandbox.environment["TMPDIR"]).iterdir())
    # Python's tempfile tries whether it can write to the folder, by a file with a name of eight
    # letters and digits.
    left = [path for path in left if not (path.is_file() and re.fullmatch(r"\w{8}", path.name))]
    assert {path.name[:6] for path in left} == {"k2mps-"}


@pytest.mark.parametrize("copies", {**COMMANDS, **CLONE}, indirect=True)
def test_a_full_disk_loses_no_work_and_the_command_can_be_repeated(copies, request):
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

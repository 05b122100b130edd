"""Runs git and other programs, and makes and compares the folders that they work in."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from k2mps.core.progress import Reporter

from k2_mps_tests.running import ran

TOOLS = Path(__file__).resolve().parents[2] / "tools"

IDENTITY = {
    "GIT_AUTHOR_NAME": "A Contributor",
    "GIT_AUTHOR_EMAIL": "contributor@example.org",
    "GIT_COMMITTER_NAME": "A Contributor",
    "GIT_COMMITTER_EMAIL": "contributor@example.org",
    "GIT_AUTHOR_DATE": "@1700000000 +0100",
    "GIT_COMMITTER_DATE": "@1700000000 +0100",
    # `git status` in a test must not write the index of a checkout.
    "GIT_OPTIONAL_LOCKS": "0",
}


def git(directory: Path, *args: str, env: dict | None = None) -> str:
    """Runs git with a contributor's identity; returns the output."""
    variables = {**os.environ, **IDENTITY, **(env or {})}
    how = {"cwd": directory, "env": variables, "stdin": subprocess.DEVNULL}
    return output("git", *args, **how).rstrip("\n")


def output(*command: object, **how) -> str:
    """Runs a program, which must succeed; returns what it prints."""
    result = ran(*command, **how)
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


def cmake(folder: Path, commands: str, settings: dict[str, object]) -> str:
    """Writes a CMake project `k2` and configures it in folder/build; returns cmake's output."""
    head = "cmake_minimum_required(VERSION 3.18)\nproject(k2 CXX)\n"
    (folder / "CMakeLists.txt").write_text(f"{head}{commands}\n")
    programs = Path(sys.prefix, "bin")
    named = [f"-D{name}={value}" for name, value in settings.items()]
    where = ("-S", folder, "-B", folder / "build", "-G", "Ninja")
    make = f"-DCMAKE_MAKE_PROGRAM={programs / 'ninja'}"
    return output(programs / "cmake", *where, make, *named)


def ninja(folder: Path) -> None:
    """Builds the project that `cmake` has configured."""
    output(Path(sys.prefix, "bin/ninja"), "-C", folder / "build")


def shell(directory: Path, script: str) -> None:
    """Runs shell commands, which must all succeed, with a contributor's identity for git."""
    how = {"env": {**os.environ, **IDENTITY}, "stdin": subprocess.DEVNULL}
    output("sh", "-ec", script, cwd=directory, **how)


def write(directory: Path, files: dict[str, str]) -> None:
    """Writes {path below `directory`: text} into files, in UTF-8."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def edit(file: Path, old: str, new: str) -> None:
    """Replaces the one occurrence of a text in a file, and keeps the file's line ends."""
    raw = file.read_bytes()
    assert raw.count(old.encode()) == 1, (old, raw)
    file.write_bytes(raw.replace(old.encode(), new.encode()))


def resolve(file: Path, text: str) -> None:
    """Replaces the only conflict in a file, including git's markers, by a text."""
    (found,) = re.findall(r"<{7}.*?>{7} [^\n]*\n", file.read_text(), flags=re.DOTALL)
    edit(file, found, text)


def commit(directory: Path, message: str, files: dict[str, str]) -> str:
    """Writes and commits files; returns the commit's id."""
    write(directory, files)
    git(directory, "add", "--force", "--", *files)
    git(directory, "commit", "--quiet", "-m", message)
    return git(directory, "rev-parse", "HEAD")


# Files that git itself makes in its directory.
_GIT_FILES = ("FETCH_HEAD", "ORIG_HEAD", "logs", "gc.log", "worktrees")


def snapshot(directory: Path, times: bool = True) -> dict[str, object]:
    """Returns everything in a checkout that a command must not change by accident.

    The result has HEAD, the refs and the index.  The result has the bytes, the mode and the
    modification time of each file.  The result also has the names of the files in the git
    directory, because the tool must leave no file there.

    Args:
      times: False leaves out the modification times.
    """
    git_dir = Path(git(directory, "rev-parse", "--absolute-git-dir"))
    files = {}
    for path in sorted(directory.rglob("*")):
        relative = path.relative_to(directory).as_posix()
        if relative == ".git" or relative.startswith(".git/"):
            continue
        status = path.lstat()
        if path.is_symlink():
            files[relative] = os.readlink(path)
        elif path.is_file():
            time = status.st_mtime_ns if times else 0
            files[relative] = (path.read_bytes(), status.st_mode, time)
        else:
            files[relative] = "directory"
    return {
        "files": files,
        "head": (git_dir / "HEAD").read_text(),
        # All refs except the one that the tool keeps for itself.
        "refs": re.sub(r"\n?.*refs/k2mps/applied", "", git(directory, "for-each-ref")),
        "index": git(directory, "ls-files", "--stage", "-t"),
        "status": git(directory, "status", "--porcelain=v1", "--ignored"),
        "git directory": sorted(
            path.name for path in git_dir.iterdir() if path.name not in _GIT_FILES
        ),
        "worktrees": git(directory, "worktree", "list"),
    }


def shim(directory: Path, script: str) -> dict[str, str]:
    """Writes a program `git` that runs shell commands and then the real git.

    Args:
      directory: the directory of the program.
      script: the shell commands.  There, `$count` is the number of the git command, from 1,
        `$PPID` is the process that started git, and `$real` is the path of the real git.
        `git version` does not run the shell commands and is not counted.
    Returns:
      The variable PATH with `directory` first, so that the tool starts this program as git.
    """
    directory.mkdir(parents=True, exist_ok=True)
    real = shutil.which("git")
    counter = directory / "count"
    counter.write_text("0")
    program = directory / "git"
    program.write_text(
        f"#!/bin/sh\nreal={real}\n"
        'case "$*" in\n'
        "  version|--version|*' version') ;;\n"
        "  *)\n"
        f"    count=$(($(cat '{counter}') + 1))\n"
        f"    echo $count > '{counter}'\n"
        f"    {script}\n"
        "    ;;\n"
        "esac\n"
        'exec $real "$@"\n'
    )
    program.chmod(0o755)
    return {"PATH": f"{directory}{os.pathsep}{os.environ['PATH']}"}


def wait_for(path: Path) -> None:
    """Waits until a file exists."""
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not exist after a minute"
        time.sleep(0.01)


class Progress(Reporter):
    """Records the progress of a task."""

    def __init__(self):
        self.steps = []

    @contextlib.contextmanager
    def task(self, title, log=None):
        yield lambda *step: self.steps.append(step)

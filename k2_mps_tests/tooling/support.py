"""Makes small git repositories, and runs the tool on them in other processes.

`make_upstream` makes a repository that stands in for k2.  The repository has two commits, a
script, a symbolic link, a file with CRLF line ends, a file without a final newline, and a file
with non-ASCII text.  `Sandbox` is a clone of k2-mps in which tests run the tool.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from k2mps.build.environment import Environment
from k2mps.core.progress import Reporter
from k2mps.core.project import Project
from k2mps.series import patch_text
from k2mps.stack import clone

from k2_mps_tests.running import ran
from k2_mps_tests.tooling import tool_server

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

LONG_FILE = "".join(f"line {number}\n" for number in range(1, 101))

# A file that the first two patches of `sample_series` edit.
CONTEXT = "k2/csrc/context.h"
# The three patches of `sample_series`.
MPS = "context-know-mps.patch"
ARRAY = "array-a-mode-and-line-ends.patch"
NEW = "python-add-only-new-files.patch"

UPSTREAM_FILES = {
    "CMakeLists.txt": 'project(k2)\nset(K2_VERSION "1.0")\n',
    CONTEXT: LONG_FILE,
    "k2/csrc/array.cu": LONG_FILE.replace("line", "array"),
    "k2/csrc/old.cu": "to be deleted\n",
    "k2/csrc/crlf.txt": "one\r\ntwo\r\nthree\r\n",
    "k2/csrc/no_newline.txt": "first\nlast",
    "k2/python/k2/__init__.py": "# Grüße\nfrom _k2 import *\n",
    "scripts/run.sh": "#!/bin/sh\necho run\n",
    ".gitignore": "*.log\n/ignored/\ntorch_version.py\n",
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


def make_upstream(directory: Path) -> Path:
    """Makes the repository that stands in for k2; returns its directory."""
    directory.mkdir(parents=True)
    git(directory, "init", "--quiet", "--initial-branch=master")
    git(directory, "config", "core.autocrlf", "false")
    git(directory, "config", "uploadpack.allowAnySHA1InWant", "true")
    commit(directory, "First", {"CMakeLists.txt": "project(k2)\n"})
    write(directory, UPSTREAM_FILES)
    os.symlink("scripts/run.sh", directory / "run")
    (directory / "scripts/run.sh").chmod(0o755)
    git(directory, "add", "--all", "--force")
    git(directory, "commit", "--quiet", "-m", "Second: what the pin is")
    return directory


class Sandbox:
    """A small clone of k2-mps, in which tests run the tool.

    Attributes:
      root: the clone's top directory.
      upstream: the repository that stands in for k2.
      pin: the commit of `upstream` that the series is for.
      checkout: the directory of the tool's own clone of `upstream`.
      config: the user's git configuration.
      environment: the environment variables of the tool.
    """

    def __init__(self, root: Path, upstream: Path):
        self.root = root
        self.upstream = upstream
        self.pin = git(upstream, "rev-parse", "HEAD")
        self.checkout = root / "build" / "k2"
        self.config = root.parent / f"{root.name}.gitconfig"
        self.config.write_text("")
        temporary = root.parent / f"{root.name}.tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        self.environment = {
            **os.environ,
            "GIT_CONFIG_GLOBAL": str(self.config),
            "GIT_CONFIG_NOSYSTEM": "1",
            "PYTHONPATH": str(TOOLS),
            "NO_COLOR": "1",
            # A killed run leaves its temporary folders, which pytest then deletes.
            "TMPDIR": str(temporary),
        }
        root.mkdir(parents=True)
        (root / "patches").mkdir()
        (root / "patches" / "series").write_text("")
        self.write_config(self.pin)

    def write_config(self, pin: str, url: str | None = None) -> None:
        """Writes upstream.toml for a pin; `url` is by default the repository `upstream`."""
        tree = git(self.upstream, "rev-parse", f"{pin}^{{tree}}")
        (self.root / "upstream.toml").write_text(
            "# Which k2 this is for.\n"
            "[upstream]\n"
            f'url = "{url or self.upstream.as_uri()}"  # where it comes from\n'
            f'commit = "{pin}"\n'
            f'tree = "{tree}"\n'
            'version = "1.0"\n\n'
            "[torch]\n"
            'default = "2.13.0"\n'
            'supported = ["2.13.0"]\n'
        )

    def use_installed_torch(self) -> str:
        """Writes the version of the torch in .venv into upstream.toml, and returns it."""
        torch = Environment(Project(self.root)).version_of("torch")
        assert torch, "these tests need the environment that k2mps build makes"
        version = torch.split("+")[0]
        config = self.root / "upstream.toml"
        config.write_text(config.read_text().replace("2.13.0", version))
        return version

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "k2mps", *map(str, args)]

    def start(self, *args: str, **kwargs) -> subprocess.Popen:
        """Starts the tool without waiting for its end, for tests that send signals to it."""
        return subprocess.Popen(
            self.command(*args),
            cwd=self.root,
            env={**self.environment, **kwargs.pop("env", {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **kwargs,
        )

    def run(
        self, *args: str, env: dict | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess:
        """Runs the tool to its end, by default at the top of the clone."""
        environment = {**self.environment, **(env or {})}
        return tool_server.run(list(map(str, args)), cwd or self.root, environment)

    def program(self, *command: object, **how) -> subprocess.CompletedProcess:
        """Runs a program at the top of the clone."""
        return ran(*command, cwd=self.root, **{"env": self.environment, **how})

    def ok(self, *args: str, env: dict | None = None) -> str:
        """Runs the tool, which must succeed; returns the output."""
        result = self.run(*args, env=env)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def fails(self, code: int, *args: str, env: dict | None = None) -> str:
        """Runs the tool, which must fail with this exit code; returns the text of stderr.

        The text must have an error, at most one reason, at most one next step, and no traceback.
        """
        result = self.run(*args, env=env)
        assert result.returncode == code, result.stdout + result.stderr
        assert result.stderr.count("error: ") >= 1
        assert result.stderr.count("\n  why: ") <= 1 and result.stderr.count("\n  next: ") <= 1
        assert "Traceback" not in result.stderr
        return result.stderr

    def clone(self, name: str, *options: str) -> Path:
        """Clones upstream, as a user would, into a folder beside the sandbox; returns the folder.

        The clone is on branch master.

        Args:
          options: options of `git clone`.
        """
        directory = self.root.parent / name
        words = ("git", "clone", "--quiet", *options, self.upstream.as_uri(), directory)
        output(*words, env=self.environment)
        return directory

    def obtain(self) -> None:
        """Makes the tool's own clone at the pin, as `k2mps apply` does, but applies no patch."""
        project = Project(self.root)
        clone.obtain(project, project.upstream().pin, None)

    def order(self) -> list[str]:
        """Returns the names of the patches in patches/series, which must have no comments."""
        return (self.root / "patches/series").read_text().split()

    def state(self, directory: Path | None = None) -> str:
        """Returns the state that `k2mps status --json` gives for a checkout, such as "applied"."""
        args = ["--k2", str(directory)] if directory else []
        return json.loads(self.ok("status", "--json", *args))["state"]


def sample_series(sandbox: Sandbox) -> None:
    """Gives the sandbox a series of three patches, which `k2mps export` makes.

    The patches modify and delete files, change a mode, add files in new directories,
    and edit a CRLF file and a file without final newline.
    """
    work = sandbox.clone("authoring")
    git(work, "checkout", "--quiet", "-b", "k2-mps")
    edited = LONG_FILE.replace("line 50\n", "line fifty\nand a half\n")
    git(work, "rm", "--quiet", "k2/csrc/old.cu")
    commit(
        work,
        "context: know mps\n\nBecause it is needed.\n\n  indented\n",
        {
            "k2/csrc/context.h": edited,
            "cmake/mps.cmake": "option(K2_WITH_MPS)\n",
            "k2/csrc/mps/context.mm": "// Metal, größer\n",
        },
    )
    git(work, "update-index", "--chmod=+x", "k2/csrc/array.cu")
    commit(
        work,
        "array: a mode and line ends",
        {
            "k2/csrc/context.h": edited.replace("line 90\n", ""),
            "k2/csrc/crlf.txt": "one\r\nTWO\r\nthree\r\n",
            "k2/csrc/no_newline.txt": "first\nlast, still without",
        },
    )
    git(work, "checkout", "--quiet", ".")
    tool = {"k2/python/k2/mps/tool": "#!/usr/bin/env python3\n"}
    write(work, tool)
    (work / "k2/python/k2/mps/tool").chmod(0o755)
    commit(
        work,
        "python: add only new files\n\nWhy.",
        {
            **tool,
            "k2/python/k2/mps/__init__.py": "",
            "k2/python/k2/mps/blob.bin": "\0\1\2",
            "k2/python/k2/mps/größe.txt": "ohne Zeilenende",
        },
    )
    sandbox.ok("export", "--k2", str(work))


def rebase(sandbox: Sandbox, directory: Path, onto: str) -> None:
    """Rebases branch k2-mps of a checkout onto an upstream commit, by git alone."""
    git(directory, "fetch", "--quiet", sandbox.upstream.as_uri(), onto)
    config = ("-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false")
    git(directory, *config, "rebase", "--quiet", "--onto", onto, sandbox.pin, "k2-mps")


def drop(sandbox: Sandbox, name: str) -> None:
    """Removes a patch and its new files from patches/, without the tool."""
    folder = sandbox.root / "patches"
    patch = patch_text.parse(name, (folder / name).read_bytes())
    for path in (name, *(f"files/{new_file}" for new_file in patch.new_files)):
        (folder / path).unlink()
    order = (folder / "series").read_text()
    (folder / "series").write_text(order.replace(f"{name}\n", ""))


def write_cover_letters(sandbox: Sandbox, *groups: str) -> None:
    """Writes docs/pull-requests.md with a section for all groups, and one for each of `groups`."""
    sections = [f"## {group}: Title\n\nText.\n\n" for group in (*groups, "every group")]
    write(sandbox.root, {"docs/pull-requests.md": "".join(sections)})


def patches(sandbox: Sandbox) -> dict[str, bytes]:
    """Returns {path: content} of upstream.toml and of all files in patches/.

    Drafts, which a killed command has left, do not count; git ignores them.
    """
    found = {
        path.relative_to(sandbox.root).as_posix(): path.read_bytes()
        for path in (sandbox.root / "patches").rglob("*")
        if path.is_file() and not path.name.startswith(".k2mps-draft-")
    }
    found["upstream.toml"] = (sandbox.root / "upstream.toml").read_bytes()
    return found


# Files that git itself makes in its directory.
_OF_GIT = "FETCH_HEAD ORIG_HEAD logs gc.log worktrees".split()


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
            path.name for path in git_dir.iterdir() if path.name not in _OF_GIT
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


def findings(sandbox: Sandbox) -> list[tuple[str, int, str]]:
    """Returns what `k2mps lint` finds, [(file, line, name of the check)]."""
    result = sandbox.run("lint")
    found = re.findall(r"^(\S+?):(\d+): .* \[(\w+)\]$", result.stdout, re.MULTILINE)
    assert result.returncode == (34 if found else 0), result.stderr
    return [(path, int(line), check) for path, line, check in found]


def git_commands(sandbox: Sandbox, *args: str) -> list[str]:
    """Runs the tool with these arguments; returns the git commands that it runs, in order."""
    result = sandbox.run("--verbose", *args)
    assert result.returncode == 0, result.stderr
    return re.findall(r"^\+ git (.*)$", result.stderr, re.MULTILINE)

"""A small clone of k2-mps in which tests run the tool, and the repository that stands in for k2.

`make_upstream` makes this repository.  It has two commits, a script, a symbolic link, a file with
CRLF line ends, a file without a final newline, and a file with non-ASCII text.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from k2mps.build.environment import Environment
from k2mps.core.project import Project
from k2mps.stack import clone

from k2_mps_tests.running import ran
from k2_mps_tests.tooling import tool_server
from k2_mps_tests.tooling.support import TOOLS, commit, git, output, write

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

"""Runs the tool in forks of a server process that has imported the tool.

A quick command spends most of its time on Python's start and on imports.  multiprocessing's fork
server does both once, and then forks a child for each command.  The child gets the working
directory, the environment, the umask and the standard streams of a new process, and runs the tool
as `__main__`.
"""

import multiprocessing
import os
import pkgutil
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import k2mps

# Python reads these variables only when it starts.  A fork would not notice that a test has changed
# one of them, so in this case `run` starts a new Python.
_AT_START = ("LANG", "LC_ALL", "PYTHONIOENCODING")
# If a command takes longer than this, it counts as hanging, and SIGALRM ends it.
_SECONDS = 300

_SERVER = multiprocessing.get_context("forkserver")
_TOOL = (one.name for one in pkgutil.walk_packages(k2mps.__path__, "k2mps."))
_SERVER.set_forkserver_preload(
    ["__main__", __name__, *(name for name in _TOOL if name != "k2mps.__main__")]
)


def run(
    arguments: Sequence[str], cwd: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess:
    """Runs `python -m k2mps ARGUMENTS` to its end, with empty standard input."""
    if any(environment.get(name) != os.environ.get(name) for name in _AT_START):
        command = [sys.executable, "-m", "k2mps", *arguments]
        how = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        return subprocess.run(command, cwd=cwd, env=environment, **how)
    mask = os.umask(0)
    os.umask(mask)
    with tempfile.NamedTemporaryFile("w+") as out, tempfile.NamedTemporaryFile("w+") as err:
        facts = (arguments, cwd, dict(environment), mask, out.name, err.name)
        child = _SERVER.Process(target=_run, args=facts)
        child.start()
        child.join()
        return subprocess.CompletedProcess(arguments, child.exitcode, out.read(), err.read())


def _run(arguments, cwd, environment, mask, out, err) -> None:
    """Runs the command in this fork, after giving the fork the state of a new process."""
    for number, (name, flags) in enumerate(
        ((os.devnull, os.O_RDONLY), (out, os.O_WRONLY), (err, os.O_WRONLY))
    ):
        file = os.open(name, flags)
        os.dup2(file, number)
        os.close(file)
    os.umask(mask)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    tempfile.tempdir = None  # A new process reads TMPDIR.
    sys.argv[1:] = arguments
    signal.alarm(_SECONDS)
    runpy.run_module("k2mps", run_name="__main__", alter_sys=True)

"""Runs the tool in forks of a server process that has imported it.

Most of the time of a quick command is Python's start and imports.  The server does both once, and
forks a child for each command.  The child gets the directory, the environment, the mask, the files
and the name of a new process, and ends like one. Python reads some variables only at its start, so
each set of their values has a server of its own.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

# The environment variables that Python reads at its start.
_AT_START = ("LANG", "LC_", "PYTHON")
# A command that takes longer counts as hanging.
_SECONDS = 300


def run(
    arguments: Sequence[str], cwd: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess:
    """Runs `python -m k2mps ARGUMENTS` to its end, without input."""
    found = {name: value for name, value in environment.items() if name.startswith(_AT_START)}
    server = _server(tuple(sorted(found.items())))
    mask = os.umask(0)
    os.umask(mask)
    with tempfile.NamedTemporaryFile("w+") as out, tempfile.NamedTemporaryFile("w+") as err:
        request = (arguments, str(cwd), dict(environment), mask, out.name, err.name)
        print(json.dumps(request), file=server.stdin, flush=True)
        status = os.waitstatus_to_exitcode(int(server.stdout.readline()))
        return subprocess.CompletedProcess(arguments, status, out.read(), err.read())


@functools.cache
def _server(at_start: tuple[tuple[str, str], ...]) -> subprocess.Popen:
    """The server with these variables.  It ends with this process."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(_AT_START)}
    return subprocess.Popen(
        [sys.executable, __file__],
        env={**others, **dict(at_start)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _serve() -> None:
    """Forks a child for each request."""
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()
        if child == 0:
            _become(*json.loads(line))
            _run()
        _, status = os.waitpid(child, 0)
        print(status, flush=True)


def _run() -> None:
    """Runs the tool, and ends this process like Python, but without finalization.

    Python's finalization of modules takes longer than most commands.
    """
    status = 0
    try:
        runpy.run_module("k2mps", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, int):
            raise
        status = end.code
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _become(arguments, cwd, environment, mask, out, err) -> None:
    """Gives this process the state of a new process for the command."""
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
    sys.argv[1:] = arguments
    sys.path[0] = cwd
    signal.alarm(_SECONDS)


if __name__ == "__main__":
    import atexit
    import gc
    import importlib
    import pkgutil
    import runpy
    import signal
    import time

    import k2mps

    for _, name, _ in pkgutil.walk_packages(k2mps.__path__, "k2mps."):
        if name != "k2mps.__main__":
            importlib.import_module(name)
    gc.freeze()
    _serve()

"""Fixtures of the emulator's tests.

The fixtures build the test extension.  They also run code in child processes, because some code
ends its process.  All tests run on the emulated device, so their results do not show how a Mac
behaves.
"""

import concurrent.futures
import fcntl
import functools
import os
import pathlib
import shutil
import subprocess
import sys
import threading

import pytest

HERE = pathlib.Path(__file__).resolve().parent
# Tests import programs from this folder.
sys.path.insert(0, str(HERE))
# The tests use cmake and ninja of this Python's environment, because the system may have old
# releases or none.
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
# The folder of the builds.  The tests do not delete it, so a later run compiles only changes.
BUILD = HERE.parent / "build"


def _cmake_build(source, folder, *options):
    """Builds a CMake project of Objective-C++.

    Args:
      folder: the folder of the build, which may have files of an earlier build.
      options: further options of cmake.
    """
    clang = shutil.which(os.environ.get("CXX", "clang++-19"))
    configure = ["cmake", "-G", "Ninja", "-S", source, "-B", folder, *options]
    configure += ["-DCMAKE_BUILD_TYPE=Release"]
    configure += [f"-DCMAKE_{language}_COMPILER={clang}" for language in ("CXX", "OBJCXX")]
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Several processes may run tests.  The first process builds, and the others wait for the build.
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (configure, ["cmake", "--build", folder, "--parallel", "2"]):
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            assert done.returncode == 0, done.stdout


@pytest.fixture(scope="session")
def cmake_build():
    return _cmake_build


@pytest.fixture(scope="session")
def extension_path(cmake_build) -> pathlib.Path:
    """The path of the test extension, which is built with the installed emulator."""
    import mps_emulator
    import torch

    folder = BUILD / "test-extension"
    cmake_build(
        HERE / "extension",
        folder,
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-Dmps_emulator_DIR={mps_emulator.cmake_dir()}",
        f"-DTORCH_ROOT={pathlib.Path(torch.__file__).parent}",
    )
    return folder / "emulator_test_extension.so"


@pytest.fixture(scope="session")
def extension(extension_path):
    """The imported module of the test extension."""
    import torch  # noqa: F401  (loads the libraries that the extension links with)

    sys.path.insert(0, str(extension_path.parent))
    import emulator_test_extension

    return emulator_test_extension


@pytest.fixture(scope="session")
def run_python_in():
    """run_python_in(folder, code, **environment) runs code in a new interpreter in the folder."""

    def run(folder, code, **environment):
        return subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


@pytest.fixture
def run_python(run_python_in, tmp_path):
    """run_python(code, **environment) runs code in a new interpreter in the folder tmp_path."""
    return functools.partial(run_python_in, tmp_path)


class Child:
    """How a child process ended, and what it printed.

    Attributes:
      signal: the number of the signal that ended the process, or 0.
      code: the exit status, or None if a signal ended the process.
      fatal_lines: the lines of stderr with the emulator's fatal errors.
    """

    def __init__(self, status: int, stdout: str, stderr: str):
        self.signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        self.code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        self.stdout = stdout
        self.stderr = stderr
        lines = stderr.splitlines()
        self.fatal_lines = [line for line in lines if line.startswith("mps emulator: fatal: ")]


@pytest.fixture(scope="session")
def child_server(extension_path):
    server = subprocess.Popen(
        [sys.executable, str(HERE / "child_server.py"), str(extension_path.parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield server
    server.stdin.close()
    server.wait()


@pytest.fixture
def in_child(child_server, tmp_path):
    """in_child(code, **environment) runs code in a new process and returns a Child.

    The code can use the modules `torch`, `extension` and `kernels` without an import.  The process
    is a fork of a server that has imported these modules and done nothing else.  A fork takes
    milliseconds; the start of an interpreter with these imports takes seconds.
    """
    program, *outputs = (tmp_path / name for name in ("program.py", "stdout", "stderr"))

    def run(code, **environment):
        program.write_text(code)
        request = (str(program), environment, *map(str, outputs))
        child_server.stdin.write(repr(request) + "\n")
        child_server.stdin.flush()
        status = int(child_server.stdout.readline())
        return Child(status, *(path.read_text(errors="replace") for path in outputs))

    return run


@pytest.fixture
def in_threads():
    """in_threads(functions) runs each function in a separate thread.

    If several functions raise exceptions, `in_threads` raises the exception of the first of these
    functions in the list.
    """

    def run(functions):
        # The barrier keeps every thread busy until all threads have begun.  Without it, a thread
        # that is done early would run several functions.
        all_there = threading.Barrier(len(functions))

        def begin(function):
            all_there.wait()
            function()

        with concurrent.futures.ThreadPoolExecutor(len(functions)) as pool:
            for future in [pool.submit(begin, function) for function in functions]:
                future.result()

    return run


@pytest.fixture(autouse=True)
def _stream_at_rest():
    """Waits before and after each test until the device is idle."""
    import torch

    torch.mps.synchronize()
    yield
    torch.mps.synchronize()


# ---- the table of planted bugs

_planted_outcomes = {}  # {kind: [whether caught]}


def pytest_configure(config):
    config.addinivalue_line("markers", "planted(kind): the test plants a bug of this kind")


# The hook must see all tests.  So it runs before pytest drops the tests that -k or -m exclude.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session, items):
    session.planted_kinds = set()
    for item in items:
        for mark in item.iter_markers("planted"):
            item.user_properties.append(("planted", mark.args[0]))
            session.planted_kinds.add(mark.args[0])


def pytest_runtest_logreport(report):
    kind = dict(report.user_properties).get("planted")
    if kind is not None and report.when == "call":
        _planted_outcomes.setdefault(kind, []).append(report.passed)


def pytest_terminal_summary(terminalreporter, config):
    if config.option.markexpr != "planted":
        return
    write = terminalreporter.write_line
    terminalreporter.section("planted bugs (emulated)")
    write(f"{'kind':<40} {'planted':>8} {'caught':>8}")
    everything = []
    for kind, outcomes in sorted(_planted_outcomes.items()):
        everything += outcomes
        write(f"{kind:<40} {len(outcomes):8d} {sum(outcomes):8d}")
    write(f"{'all':<40} {len(everything):8d} {sum(everything):8d}")

"""Fixtures: the test extension, and child processes for code that ends its process.

The tests run on the emulated device: no result says anything about a Mac.
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
# Tests import the programs beside them.
sys.path.insert(0, str(HERE))
# cmake and ninja come from this Python's environment: the system may have old ones, or none.
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
# Builds stay here: a later run compiles only the changes.
BUILD = HERE.parent / "build"


def _cmake_build(source, folder, *options):
    """Builds a CMake project of Objective-C++ in a folder, new or of an earlier build."""
    clang = shutil.which(os.environ.get("CXX", "clang++-19"))
    configure = ["cmake", "-G", "Ninja", "-S", source, "-B", folder, *options]
    configure += ["-DCMAKE_BUILD_TYPE=Release"]
    configure += [f"-DCMAKE_{language}_COMPILER={clang}" for language in ("CXX", "OBJCXX")]
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Tests may run in several processes: the first one builds, the others wait.
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
    """The path of the test extension, built against the installed emulator."""
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
    """The test extension, imported."""
    import torch  # noqa: F401  (loads the libraries that the extension links with)

    sys.path.insert(0, str(extension_path.parent))
    import emulator_test_extension

    return emulator_test_extension


@pytest.fixture(scope="session")
def run_python_in():
    """run_python_in(folder, code, **environment): runs code in a fresh interpreter."""

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
    """run_python(code, **environment): runs code in a fresh interpreter, in tmp_path."""
    return functools.partial(run_python_in, tmp_path)


class Child:
    """The status and the output of a child process."""

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
    """in_child(code, **environment): runs code in a process of its own; returns a Child.

    The code sees the modules `torch`, `extension` and `kernels`.  The process is a fork
    of a server that has only imported these: a fork takes milliseconds, a new
    interpreter seconds.
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
    """in_threads(functions): runs each function in its own thread; raises the first exception."""

    def run(functions):
        # A pool gives the next function to a thread that is idle already.
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
    """Each test begins and ends with an idle device."""
    import torch

    torch.mps.synchronize()
    yield
    torch.mps.synchronize()


# ---- the table of planted bugs

_planted_outcomes = {}  # {kind: [whether caught]}


# This hook runs before pytest drops the tests that -k and -m do not name.
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

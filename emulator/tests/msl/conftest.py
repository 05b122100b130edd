"""Builds the harness once a session and gives it to the tests."""

import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parent
FRONT_END = FOLDER.parents[1] / "mps_emulator" / "msl"

sys.path.insert(0, str(FOLDER))

import metal as metal_module  # noqa: E402


def _run(command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert result.returncode == 0, result.stdout


@pytest.fixture(scope="session")
def harness_path(tmp_path_factory):
    """The harness as a shared library."""
    build = os.environ.get("MPS_EMULATOR_MSL_HARNESS_BUILD_DIR")
    build = build or str(tmp_path_factory.mktemp("msl-harness"))
    compiler = os.environ.get("CXX", "clang++-19")
    _run(
        [
            "cmake",
            "-S",
            str(FOLDER / "harness"),
            "-B",
            build,
            "-G",
            "Ninja",
            "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
            "-DCMAKE_CXX_COMPILER=" + compiler,
        ]
    )
    _run(["cmake", "--build", build, "-j", "2"])
    return pathlib.Path(build) / "libmsl_harness.so"


@pytest.fixture(scope="session")
def cache_directory(tmp_path_factory):
    """Where the session's libraries go: nothing is left from before."""
    return tmp_path_factory.mktemp("msl-cache")


@pytest.fixture(scope="session", autouse=True)
def _environment(cache_directory):
    """Has the compiler use this interpreter and the front end beside us."""
    os.environ["MPS_EMULATOR_MSL_DIR"] = str(FRONT_END)
    os.environ["MPS_EMULATOR_PYTHON"] = sys.executable
    os.environ["MPS_EMULATOR_CACHE_DIR"] = str(cache_directory)
    os.environ.pop("MPS_EMULATOR_SCHEDULE", None)


@pytest.fixture(scope="session")
def metal(harness_path, _environment):
    return metal_module.Metal(harness_path)


@pytest.fixture
def schedule(monkeypatch):
    """Chooses the order in which threads run."""

    def choose(text):
        monkeypatch.setenv("MPS_EMULATOR_SCHEDULE", text)

    return choose

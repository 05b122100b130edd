"""Gives the tests a compiler and an executor of kernels."""

import os
import pathlib
import sys

import pytest

FOLDER = pathlib.Path(__file__).parent
FRONT_END = FOLDER.parents[1] / "mps_emulator" / "msl"

sys.path.insert(0, str(FOLDER))

import metal as metal_module  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def _environment(tmp_path_factory):
    """Makes the compiler use this interpreter and the front end of this tree.

    The cache of libraries is a new folder, which the processes of one run share.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    os.environ["MPS_EMULATOR_MSL_DIR"] = str(FRONT_END)
    os.environ["MPS_EMULATOR_PYTHON"] = sys.executable
    os.environ["MPS_EMULATOR_CACHE_DIR"] = str(folder / "msl-cache")
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

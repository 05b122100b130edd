"""Fixtures that compile and run kernels."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).parent
FRONT_END = FOLDER.parents[1] / "mps_emulator" / "msl"

sys.path.insert(0, str(FOLDER))

import metal as metal_module  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def _environment(tmp_path_factory):
    """Makes the compiler use this interpreter, and the front end in this checkout's sources.

    The cache of compiled libraries is a new folder.  All processes of a test run share this folder.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    os.environ["MPS_EMULATOR_MSL_DIR"] = str(FRONT_END)
    os.environ["MPS_EMULATOR_PYTHON"] = sys.executable
    os.environ["MPS_EMULATOR_CACHE_DIR"] = str(folder / "msl-cache")
    os.environ.pop("MPS_EMULATOR_SCHEDULE", None)


@pytest.fixture(scope="session")
def metal(_environment):
    return metal_module.Metal()


@pytest.fixture(scope="session")
def evaluate(metal):
    """evaluate(expressions, x, y, declarations) returns the values of float expressions, a list.

    The expressions can use the float4 vectors x and y, and the functions and types that the text
    `declarations` declares.
    """

    def run(expressions, x=(1, 2, 3, 4), y=(5, 6, 7, 8), declarations=""):
        body = "".join(f"  out[{i}] = {text};\n" for i, text in enumerate(expressions))
        source = (
            f"{declarations}kernel void k(device float *out [[buffer(0)]],"
            f" constant float4 &x [[buffer(1)]], constant float4 &y [[buffer(2)]]) {{\n{body}}}\n"
        )
        out = np.full(len(expressions), np.nan, np.float32)
        metal.run(source, "k", [out, np.float32(x), np.float32(y)], 1, 1)
        return out.tolist()

    return run


@pytest.fixture
def front_end(tmp_path):
    """front_end(command, text, *options) runs the front end in the folder tmp_path.

    The front end reads kernels.metal and writes the file `output`.  kernels.metal contains `text`,
    or does not exist if `text` is None.
    """

    def run(command, text, *options):
        if text is not None:
            (tmp_path / "kernels.metal").write_text(text)
        words = [sys.executable, FRONT_END, command, "kernels.metal", "--output", "output"]
        return subprocess.run([*words, *options], cwd=tmp_path, capture_output=True, text=True)

    return run


@pytest.fixture
def schedule(monkeypatch):
    """schedule(text) sets MPS_EMULATOR_SCHEDULE, which chooses the order of the threads."""

    def choose(text):
        monkeypatch.setenv("MPS_EMULATOR_SCHEDULE", text)

    return choose

"""Runs the examples by their command lines, as a reader does."""

import os
import sys
from pathlib import Path

import pytest

from k2_mps_tests.running import ran

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="session")
def run():
    """Runs an example; returns its output."""

    def run(name, *arguments, status=0):
        wide = {**os.environ, "COLUMNS": "200"}  # wide enough for every line
        result = ran(sys.executable, EXAMPLES / name, *arguments, env=wide)
        assert result.returncode == status, result.stdout + result.stderr
        return result.stdout if status == 0 else result.stderr

    return run

"""Runs the examples from the command line, as a reader does."""

import os
import sys
from pathlib import Path

import pytest

from k2_mps_tests.running import ran

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="session")
def run():
    """A function that runs an example and returns its stdout.

    The argument `status` is the expected exit status.  If `status` is not 0, the function returns
    stderr.
    """

    def run(name, *arguments, status=0):
        wide = {**os.environ, "COLUMNS": "200"}  # wide enough for every line
        result = ran(sys.executable, EXAMPLES / name, *arguments, env=wide)
        assert result.returncode == status, result.stdout + result.stderr
        return result.stdout if status == 0 else result.stderr

    return run

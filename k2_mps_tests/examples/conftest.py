"""Runs the examples by their command lines, as a reader does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="session")
def run():
    """Runs an example; returns its output."""

    def run(name, *arguments, status=0):
        result = subprocess.run(
            [sys.executable, str(EXAMPLES / name), *map(str, arguments)],
            capture_output=True,
            text=True,
            # Wide enough for every line.
            env={**os.environ, "COLUMNS": "200"},
        )
        assert result.returncode == status, result.stdout + result.stderr
        return result.stdout if status == 0 else result.stderr

    return run

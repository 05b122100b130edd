"""Runs programs for the tests."""

import subprocess


def ran(*command: object, **how) -> subprocess.CompletedProcess:
    """Runs a program to its end, with its output as text."""
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, **how)

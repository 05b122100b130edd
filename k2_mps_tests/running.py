"""Runs programs for the tests."""

import subprocess


def ran(*command: object, **how) -> subprocess.CompletedProcess:
    """Runs a program to its end; returns its exit status and its output as text.

    Args:
      how: further arguments of subprocess.run().
    """
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, **how)

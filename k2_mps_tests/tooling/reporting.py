"""Runs `make mac-report` in a project that has the program alone."""

import os
import sys
import tarfile

from k2_mps_tests.tooling import support

ROOT = support.TOOLS.parent


def user_variables(tmp_path):
    """Returns the environment variables of a user whose name no archive may have."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "Users/ada.lovelace"),
        "USER": "ada.lovelace",
    }


def report(project, tmp_path, *arguments):
    """Runs the report to its end, with options of its command line."""
    command = (sys.executable, "-m", "k2_mps_tests.report", *arguments)
    return support.ran(*command, cwd=project, env=user_variables(tmp_path))


def archived(project):
    """Returns {name: text} of the archive."""
    with tarfile.open(project / "build/mac-report.tar.gz") as archive:
        return {
            member.name.removeprefix("mac-report/"): archive.extractfile(member).read().decode()
            for member in archive.getmembers()
        }

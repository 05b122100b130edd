"""Generates the tables of docs/, and builds the site in build/site.

    python -m k2_mps_tests.docs

A warning of mkdocs makes the build fail.
"""

import argparse
import subprocess
import sys

from k2mps.build.environment import Environment
from k2mps.core import project

from k2_mps_tests import ending
from k2_mps_tests.docs import tables


def main() -> int:
    """Returns mkdocs' exit status."""
    argparse.ArgumentParser(prog="python -m k2_mps_tests.docs", description=__doc__).parse_args()
    found = project.find()
    for page in tables.write(found):
        print(f"wrote {page}")
    for extra in ("docs", "examples"):
        Environment(found).install_extra(extra)
    site = found.build_root / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", site]
    return subprocess.run(command, cwd=found.root).returncode


if __name__ == "__main__":
    ending.run(main)

"""`k2mps docs`: generates the tables of docs/, and builds the site in build/site.

A warning of mkdocs makes the build fail.
"""

import subprocess
import sys

from k2mps.core import project

from k2_mps_tests import ending
from k2_mps_tests.docs import tables


def main() -> int:
    """Returns mkdocs' exit status."""
    found = project.find()
    for page in tables.write(found):
        print(f"wrote {page}")
    site = found.build_root / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", site]
    return subprocess.run(command, cwd=found.root).returncode


if __name__ == "__main__":
    ending.run(main)

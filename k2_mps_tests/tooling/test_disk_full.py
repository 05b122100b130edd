"""A clone of k2 onto a full disk: a file system of a few hundred kilobytes, really filled.

A helper mounts a tmpfs in a mount namespace, as root, or as a user if the system lets users have
namespaces.  All code that looks at the file system runs inside the namespace.
"""

import json
import sys

import pytest

from k2_mps_tests.tooling import support

# Runs in the namespace: mounts the tmpfs, copies the checkout there, fills the disk
# but for some bytes, runs the tool, and prints the results as JSON.
SCRIPT = """
import json, shutil, subprocess, sys
from pathlib import Path

room, disk, source, *command = sys.argv[1:]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk],
               check=True)
work = Path(disk, "work")
shutil.copytree(source, work, symlinks=True)
filler = Path(disk, "filler")
filler.write_bytes(bytes(shutil.disk_usage(disk).free - int(room)))
result = subprocess.run(command, capture_output=True, text=True)
filler.unlink()
again = subprocess.run(command, capture_output=True, text=True)
print(json.dumps([result.returncode, result.stderr, again.returncode, again.stderr]))
"""


@pytest.fixture(autouse=True)
def _needs_a_namespace():
    if not support.mount_namespace():
        pytest.skip(support.NO_MOUNT)


def test_a_clone_onto_a_full_disk(sandbox):
    disk = sandbox.root.parent / "disk"
    disk.mkdir()
    words = ["env", "--chdir", disk / "work", *sandbox.command("checkout")]
    python = (*support.mount_namespace(), sys.executable)
    result = sandbox.program(*python, "-c", SCRIPT, 16 * 1024, disk, sandbox.root, *words)
    assert result.returncode == 0, result.stderr
    code, message, again, last = json.loads(result.stdout)
    assert code == 1 and "no space left" in message.lower() and "next: " in message, message
    assert again == 0, last

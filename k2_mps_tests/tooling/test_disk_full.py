"""A full disk: a file system of a few hundred kilobytes, really filled.

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


def run_on_full_disk(sandbox, room_kib, source, *command):
    """Runs a command on a copy of `source` with so much room, which it has or refuses; then, with
    enough room, again.  Returns whether it had enough."""
    disk = sandbox.root.parent / "disk"
    disk.mkdir(exist_ok=True)
    python = (*support.mount_namespace(), sys.executable)
    result = sandbox.program(*python, "-c", SCRIPT, room_kib * 1024, disk, source, *command)
    assert result.returncode == 0, result.stderr
    code, message, again, last = json.loads(result.stdout)
    if code:
        assert code == 1 and "no space left" in message.lower() and "next: " in message, message
        assert again == 0, last
    return code == 0


# From no free space, where git cannot even write an index, over space for all objects
# but not for the files, to enough space.
@pytest.mark.parametrize("room_kib", [0, 8, 16, 24, 40, 64, 96, 128, 160, 192])
def test_apply_on_a_full_disk(sandbox, room_kib):
    own = sandbox.clone("own")
    command = sandbox.command("apply", "--k2", str(sandbox.root.parent / "disk/work"))
    enough = run_on_full_disk(sandbox, room_kib, own, *command)
    assert not enough or room_kib > 0


# What is done before in the checkout, which is on another disk than the project.
COMMANDS = {
    "export": "echo other > k2/csrc/array.cu; echo > new1; git add --all; git commit -qm more",
    "rebase --onto {onto}": "",
    "new more k2/new.cu": "for i in $(seq 4000); do echo new; done > k2/new.cu",
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("room_kib", [0, 8, 24])
def test_a_change_of_patches_on_a_full_disk(sandbox, k2, command, room_kib):
    onto = support.commit(sandbox.upstream, "Newer", {"docs/new": "x\n"})
    support.shell(k2, COMMANDS[command])
    k2 = k2.rename(sandbox.root.parent / "k2-elsewhere")
    words = ["env", "--chdir", sandbox.root.parent / "disk/work"]
    words += sandbox.command(*command.format(onto=onto).split(" "), "--k2", str(k2))
    enough = run_on_full_disk(sandbox, room_kib, sandbox.root, *words)
    assert not enough or room_kib > 0


def test_clone_onto_a_full_disk(sandbox):
    words = ["env", "--chdir", sandbox.root.parent / "disk/work", *sandbox.command("checkout")]
    assert not run_on_full_disk(sandbox, 16, sandbox.root, *words)

"""A full disk: a file system of a few hundred kilobytes, really filled.

A helper mounts a tmpfs in a mount namespace, as root, or as a user if the system lets users have
namespaces.  All code that looks at the file system runs inside the namespace.
"""

import json
import os
import subprocess
import sys

import pytest

from k2_mps_tests.tooling import support

# Runs in the namespace: mounts the tmpfs, copies the checkout there, fills the disk
# but for some bytes, runs the tool, and prints the results as JSON.
SCRIPT = """
import json, os, shutil, subprocess, sys
sys.path[:0] = [{root!r}]
from pathlib import Path
from k2_mps_tests.tooling import support

room, disk, source, *command = sys.argv[1:]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk],
               check=True)
work = Path(disk, "work")
shutil.copytree(source, work, symlinks=True)
look = (lambda: support.snapshot(work)) if (work / ".git").exists() else (
    lambda: {{str(path): path.read_bytes() for path in work.rglob("*")
             if path.is_file()}})
before = look()
filler = open(Path(disk, "filler"), "wb")
try:
    while True:
        filler.write(b"x" * 4096)
        filler.flush()
except OSError:
    pass
try:
    filler.close()
except OSError:
    pass
os.truncate(filler.name, os.path.getsize(filler.name) - int(room))
result = subprocess.run(command, capture_output=True, text=True)
same = look() == before
os.unlink(filler.name)
again = subprocess.run(command, capture_output=True, text=True)
print(json.dumps([result.returncode, result.stderr, same,
                  again.returncode, again.stderr]))
"""


@pytest.fixture(autouse=True)
def _needs_a_namespace():
    if not support.mount_namespace():
        pytest.skip(support.NO_MOUNT)


def is_told(code, message):
    """Whether a command failed with the message that the disk is full."""
    return code == 1 and "no space left" in message.lower()


def run_on_full_disk(sandbox, room, source, *command):
    disk = sandbox.root.parent / "disk"
    disk.mkdir(exist_ok=True)
    root = str(support.TOOLS.parent)
    result = subprocess.run(
        [
            *support.mount_namespace(),
            sys.executable,
            "-c",
            SCRIPT.format(root=root),
            str(room),
            str(disk),
            str(source),
            *map(str, command),
        ],
        cwd=sandbox.root,
        env=sandbox.environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


# From no free space, where git cannot even write an index, over space for all objects
# but not for the files, to enough space.
@pytest.mark.parametrize("room_kib", range(0, 192, 8))
def test_apply_on_a_full_disk(sandbox, room_kib):
    own = sandbox.clone("own")
    where = sandbox.root.parent / "disk/work"
    code, message, same, again, last = run_on_full_disk(
        sandbox, room_kib * 1024, own, *sandbox.command("apply", "--k2", str(where))
    )
    if code == 0:
        assert room_kib > 0
    else:
        assert is_told(code, message) and "next: " in message, message
        assert same
    assert again == 0, last


def test_the_sizes_above_include_failure(sandbox):
    own = sandbox.clone("own")
    where = sandbox.root.parent / "disk/work"
    code, message, _, _, _ = run_on_full_disk(
        sandbox, 0, own, *sandbox.command("apply", "--k2", str(where))
    )
    assert is_told(code, message)


@pytest.mark.parametrize("room_kib", [0, 4, 8, 16, 28])
def test_export_on_a_full_disk(sandbox, room_kib):
    sandbox.ok("apply")
    support.commit(
        sandbox.checkout, "more", {"k2/csrc/array.cu": "other\n", "new1": "x\n", "new2": "x\n"}
    )
    k2 = sandbox.checkout.rename(sandbox.root.parent / "k2-edited")
    where = sandbox.root.parent / "disk/work"
    there = ("env", "--chdir", where)
    code, message, same, again, last = run_on_full_disk(
        sandbox, room_kib * 1024, sandbox.root, *there, *sandbox.command("export", "--k2", str(k2))
    )
    if code != 0:
        assert is_told(code, message), message
        assert same
    assert again == 0, last
    assert code == 1 or room_kib > 0


@pytest.mark.parametrize("command", ["rebase", "drop", "new"])
@pytest.mark.parametrize("room_kib", [0, 8, 24])
def test_carrying_on_a_full_disk(sandbox, command, room_kib):
    """The project is on the full disk, the checkout on another."""
    sandbox.ok("apply")
    k2 = sandbox.checkout.rename(sandbox.root.parent / "k2-elsewhere")
    onto = support.commit(sandbox.upstream, "Newer", {"docs/new": "x\n"})
    words = {
        "rebase": ["--onto", onto],
        "drop": ["python-add-only-new-files"],
        "new": ["more: a thing", "k2/new.cu"],
    }[command]
    if command == "new":
        support.write(k2, {"k2/new.cu": "new\n" * 4000})
    where = sandbox.root.parent / "disk/work"
    tip = support.git(k2, "rev-parse", "k2-mps")
    there = ("env", "--chdir", where)
    code, message, same, again, last = run_on_full_disk(
        sandbox,
        room_kib * 1024,
        sandbox.root,
        *there,
        *sandbox.command(command, *words, "--k2", str(k2)),
    )
    if code != 0:
        assert is_told(code, message), message
        assert same
        assert again == 0, last
    assert code == 1 or room_kib > 0
    if command == "rebase":
        assert support.git(k2, "rev-parse", "k2-mps") == tip


def test_clone_onto_a_full_disk(sandbox):
    where = sandbox.root.parent / "disk/work"
    code, message, same, again, last = run_on_full_disk(
        sandbox, 16 * 1024, sandbox.root, "env", "--chdir", where, *sandbox.command("checkout")
    )
    assert is_told(code, message), message
    assert same
    assert again == 0, last
    assert not os.path.exists(where)

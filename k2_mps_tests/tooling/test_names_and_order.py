"""The names, order and messages of patches come from patches/, not from the commits."""

import json
import re

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.sandbox import ARRAY, CONTEXT, MPS, NEW
from k2_mps_tests.tooling.series_files import patches
from k2_mps_tests.tooling.support import git, snapshot

OTHER = "zz-new-name.patch"


def names(k2) -> list[str]:
    """Returns the names of the patches in the last three commits, the oldest first."""
    return git(
        k2, "log", "--reverse", "-3", "--format=%(trailers:key=Patch-Filename,valueonly,separator=)"
    ).splitlines()


def reorder(sandbox, *wanted: str) -> None:
    (sandbox.root / "patches/series").write_text("".join(f"{name}\n" for name in wanted))


def rename(sandbox, old: str) -> None:
    folder = sandbox.root / "patches"
    (folder / old).rename(folder / OTHER)
    reorder(sandbox, *[OTHER if name == old else name for name in sandbox.order()])


def reword(sandbox) -> None:
    support.edit(sandbox.root / "patches" / ARRAY, "array: a mode and", "array: the mode and")


def move_a_hunk(sandbox) -> None:
    """Moves a hunk, which removes a line of context.h, from the patch ARRAY to the patch MPS."""
    folder = sandbox.root / "patches"
    array = (folder / ARRAY).read_bytes()
    context = (folder / MPS).read_bytes()
    start = array.index(b"diff --git a/k2/csrc/context.h")
    end = array.index(b"diff --git", start + 1)
    hunk = array[array.index(b"@@", start) : end]
    assert hunk.startswith(b"@@ -90,3 +90,2 @@")
    after = context.index(b"diff --git", context.index(b"diff --git a/k2/csrc/context.h") + 1)
    hunk = hunk.replace(b"@@ -90,3 +90,2 @@", b"@@ -89,3 +90,2 @@")
    (folder / MPS).write_bytes(context[:after] + hunk + context[after:])
    (folder / ARRAY).write_bytes(array[:start] + array[end:])


CHANGES = {
    "order": lambda sandbox: reorder(sandbox, NEW, MPS, ARRAY),
    "order of two patches of a file": lambda sandbox: reorder(sandbox, ARRAY, MPS, NEW),
    "name": lambda sandbox: rename(sandbox, ARRAY),
    "words": reword,
    "which patch": move_a_hunk,
}


@pytest.fixture(params=CHANGES)
def changed(request, sandbox, k2):
    """Changes patches/ by hand, but not the resulting files of k2; returns the change's name."""
    CHANGES[request.param](sandbox)
    return request.param


def test_status_says_that_the_patches_changed(sandbox, k2, changed):
    found = json.loads(sandbox.ok("status", "--json"))
    assert found["state"] == "applied" and found["patches"] == "changed"
    assert found["patch_changes"] and found["next_command"] == "k2mps apply"


def test_apply_touches_no_file(sandbox, k2, changed):
    before = snapshot(k2)
    assert "changed 0 files" in sandbox.ok("apply")
    after = snapshot(k2)
    assert after["files"] == before["files"]
    assert after["status"] == before["status"] == ""


def test_apply_makes_the_commits_again(sandbox, k2, changed):
    sandbox.ok("apply")
    assert names(k2) == sandbox.order()
    sandbox.ok("export")
    own = sandbox.clone("own")
    sandbox.ok("apply", "--k2", str(own))
    assert git(own, "rev-parse", "HEAD") == git(k2, "rev-parse", "HEAD")


@pytest.mark.parametrize("command", [f"fold {MPS}", "new more"])
def test_fold_and_new_do_not_bring_the_old_series_back(sandbox, k2, command):
    """The commands refuse, and tell the user to run `k2mps apply` first."""
    rename(sandbox, ARRAY)
    reorder(sandbox, NEW, MPS, OTHER)
    support.edit(k2 / CONTEXT, "line 20\n", "twenty\n")
    before = patches(sandbox)
    assert "next: k2mps apply" in sandbox.fails(1, *command.split())
    assert patches(sandbox) == before
    git(k2, "stash", "--quiet")
    sandbox.ok("apply")
    git(k2, "stash", "pop", "--quiet")
    sandbox.ok(*command.split())
    more = ["more.patch"] if command[0] == "n" else []
    assert sandbox.order() == [NEW, MPS, OTHER, *more]
    assert names(k2) == sandbox.order()[-3:]


def test_export_of_old_commits_is_refused(sandbox, k2, changed):
    support.commit(k2, "more: a thing", {"more.txt": "x\n"})
    before = snapshot(k2), patches(sandbox)
    message = sandbox.fails(1, "export")
    assert "has changed since it was applied here" in message
    assert "or another clone of k2-mps uses this checkout" in message
    assert (snapshot(k2), patches(sandbox)) == before
    # The command in the message puts the user's commit on top of the new series.
    support.shell(k2, re.search("next: (.*), then k2mps export", sandbox.fails(1, "apply"))[1])
    assert "already applied" in sandbox.ok("apply")
    old = sandbox.order()
    sandbox.ok("export")
    assert sandbox.order() == [*old, "more-a-thing.patch"]


def test_commits_that_cancel_each_other_are_not_overwritten(sandbox, k2):
    """The files are the same as in the series, but the two commits are the user's work."""
    support.commit(k2, "more: a thing", {"more.txt": "x\n"})
    git(k2, "revert", "--no-edit", "HEAD")
    before = snapshot(k2)
    assert "already applied" in sandbox.ok("apply")
    support.edit(k2 / CONTEXT, "line 20\n", "twenty\n")
    assert "edits more.txt, which more-a-thing.patch adds" in sandbox.fails(1, "fold", MPS)
    git(k2, "checkout", "--quiet", CONTEXT)
    assert snapshot(k2)["refs"] == before["refs"]
    assert sandbox.state() == "edited"

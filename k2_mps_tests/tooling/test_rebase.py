"""`k2mps rebase` runs git's rebase, and `k2mps export --onto` writes patches/ and the pin."""

import os
import re

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.rebasing import (
    OTHERS_WORK,
    SUPERSEDES,
    onto_a_release,
    pin,
    rebase,
    resolve,
    stopped,
)
from k2_mps_tests.tooling.sandbox import ARRAY, CONTEXT, MPS, NEW
from k2_mps_tests.tooling.series_files import patches
from k2_mps_tests.tooling.support import git

# `git rebase` makes commits, for which git needs a name.
pytestmark = pytest.mark.usefixtures("user_name")


def test_a_rebase_writes_the_new_pin(sandbox, k2):
    onto, out = onto_a_release(sandbox)
    assert f"3 patches on k2 1.1, {onto[:12]}" in out
    found = pin(sandbox)
    assert found["commit"] == onto and found["version"] == "1.1"
    text = (sandbox.root / "upstream.toml").read_text()
    assert git(k2, "rev-parse", f"{onto}^{{tree}}") in text and "# where it comes from" in text
    assert "k2_mps_tests.docs" in out and "docs/pull-requests.md" in out


def test_the_commands_of_git_are_printed(sandbox, k2):
    onto, out = onto_a_release(sandbox)
    url = sandbox.upstream.as_uri()
    assert re.findall(r"^\+ (.*)$", out, re.MULTILINE) == [
        f"git -C {k2} fetch {url} refs/heads/master",
        f"git -C {k2} -c core.hooksPath=/dev/null -c i18n.commitEncoding=UTF-8"
        " -c merge.default= -c merge.renormalize=false -c rebase.updateRefs=false"
        " rebase --merge --strategy=ort --no-autostash --no-gpg-sign"
        f" --onto {onto} {sandbox.pin} k2-mps",
        f"k2mps export --onto {onto[:12]}",
    ]


def test_after_a_rebase_the_series_is_applied(sandbox, k2):
    onto, _ = onto_a_release(sandbox)
    assert "already applied" in sandbox.ok("apply")
    text = (k2 / CONTEXT).read_text()
    assert text.startswith("a line before\nline 1\n")
    assert "line 49\nline fifty\nand a half\nline 51" in text
    assert git(k2, "rev-parse", "HEAD~3") == onto
    own = sandbox.clone("own")
    sandbox.ok("apply", "--k2", str(own))
    assert git(own, "rev-parse", "HEAD") == git(k2, "rev-parse", "HEAD")


def test_a_rebase_back_gives_the_same_bytes(sandbox, k2):
    before = patches(sandbox)
    onto_a_release(sandbox)
    sandbox.ok("rebase", "--onto", sandbox.pin)
    assert patches(sandbox) == before


def test_a_name_is_looked_up_in_upstream_not_in_the_checkout(sandbox, k2):
    """The checkout's branch master is older than upstream's, and upstream lacks `only-here`."""
    refs = "for-each-ref", "refs/heads/master", "refs/remotes", "refs/tags"
    old = git(k2, *refs)
    mine = git(k2, "commit-tree", "-m", "mine", "-p", "master", "master^{tree}")
    git(k2, "branch", "only-here", mine)
    onto = support.commit(sandbox.upstream, "Newer", {"a": "1\n"})
    git(sandbox.upstream, "tag", "-a", "v9", "-m", "v9")
    last = support.commit(sandbox.upstream, "Newer yet", {"a": "2\n"})
    for name, commit in (("v9", onto), ("master", last), (onto[:9], onto)):
        sandbox.ok("rebase", "--onto", name)
        assert pin(sandbox)["commit"] == commit, name
    assert git(k2, *refs) == old
    for name in ("only-here", mine, "v10", ""):
        assert f"has no commit {name}\n" in sandbox.fails(1, "rebase", "--onto", name)


def test_a_rebase_keeps_what_the_user_has_fetched_last(sandbox, k2):
    git(k2, "fetch", "--quiet", "origin")
    before = (k2 / ".git/FETCH_HEAD").read_text()
    onto = support.commit(sandbox.upstream, "Newer", OTHERS_WORK)
    sandbox.ok("rebase", "--onto", onto)
    assert (k2 / ".git/FETCH_HEAD").read_text() == before


def test_a_fetch_writes_all_objects_or_none(sandbox, k2):
    """git renames a pack when it is complete, but writes unpacked objects one by one."""
    onto = support.commit(sandbox.upstream, "Others' work", OTHERS_WORK)
    sandbox.ok("rebase", "--onto", onto)
    assert git(k2, "cat-file", "-t", onto) == "commit"
    assert not (k2 / ".git/objects" / onto[:2] / onto[2:]).exists()


def test_without_upstream_only_a_known_commit_is_accepted(sandbox, k2):
    os.rename(sandbox.upstream, sandbox.upstream.with_name("gone"))
    before = patches(sandbox), git(k2, "rev-parse", "k2-mps")
    assert "cannot be reached" in sandbox.fails(20, "rebase", "--onto", "master")
    sandbox.fails(14, "rebase", "--onto", git(k2, "rev-parse", f"{sandbox.pin}~1"))
    git(k2, "rebase", "--abort")
    assert (patches(sandbox), git(k2, "rev-parse", "k2-mps")) == before


def test_a_conflict_is_gits_and_export_ends_the_rebase(sandbox, k2):
    onto, message = stopped(sandbox)
    export = f"k2mps export --onto {onto[:12]}"
    assert f"CONFLICT (content): Merge conflict in {CONTEXT}" in message
    assert f"rebase --continue, --skip or --abort; after the last one, {export}" in message
    assert "--skip and --abort also discard other edits" in message
    status = sandbox.ok("status")
    assert export in status and "an unfinished rebase" in status
    assert "Better line" not in status  # upstream's commit is not the user's
    for command in (["export"], ["fold", MPS], ["rebase", "--onto", onto], ["apply"]):
        sandbox.fails(1, *command)
    resolve(k2)
    assert f"next: {export}\n" in sandbox.ok("status")
    assert "Better line" not in sandbox.fails(1, "apply")
    support.edit(k2 / "k2/csrc/array.cu", "array 7\n", "seven\n")
    assert "commit the edits, or git" in sandbox.ok("status")  # fold would refuse
    git(k2, "checkout", "k2/csrc/array.cu")
    for command in (["export"], ["new", "x"], ["rebase", "--onto", onto]):
        assert export in sandbox.fails(1, *command)
    before = patches(sandbox)
    sandbox.ok("export", "--onto", onto[:12])
    assert sandbox.state() == "applied" and pin(sandbox)["commit"] == onto
    text = (sandbox.root / f"patches/{MPS}").read_text()
    assert "+line fifty, better\n" in text
    head = before[f"patches/{MPS}"].decode().partition("---\n")[0]
    assert text.startswith(head)  # Subject, author, date, status and body stay.


@pytest.mark.parametrize("left", ["<<<<<<< HEAD", ">>>>>>> 1234567 (x)"])
def test_a_conflict_marker_that_is_left_is_refused(sandbox, k2, left):
    onto, _ = stopped(sandbox)
    resolve(k2, f"line fifty\n{left}\n")
    before = patches(sandbox)
    assert "adds a conflict marker of git" in sandbox.fails(1, "export", "--onto", onto)
    assert patches(sandbox) == before


def test_a_patch_that_upstream_has_is_named_and_deleted(sandbox, k2):
    git(sandbox.upstream, "update-index", "--chmod=+x", "k2/csrc/array.cu")
    onto = support.commit(sandbox.upstream, "Merge array", SUPERSEDES)
    out = sandbox.ok("rebase", "--onto", onto)
    assert f"k2 has the changes of patches/{ARRAY} at {onto[:12]}" in out
    assert f"removed patches/{ARRAY}\n" in out and "2 patches" in out
    assert pin(sandbox)["commit"] == onto and sandbox.state() == "applied"


def test_a_patch_that_the_user_skips_is_named(sandbox, k2):
    onto, _ = stopped(sandbox)
    support.shell(k2, "git rebase --skip || git rebase --skip || git rebase --skip")
    message = sandbox.fails(1, "export", "--onto", onto)
    assert f"patches/{MPS}" in message and "dropped by mistake" in message


def test_a_patch_that_a_rebase_has_lost_is_brought_back(sandbox, k2):
    """Runs the command that the refusal names first."""
    onto = support.commit(sandbox.upstream, "Others' work", OTHERS_WORK)
    rebase(sandbox, k2, onto)
    git(k2, "reset", "--quiet", "--hard", "HEAD~2")
    message = sandbox.fails(1, "export", "--onto", onto)
    (command,) = re.findall(r"next: (git .* cherry-pick [0-9a-f ]+), which", message)
    support.shell(k2, command)
    sandbox.ok("export", "--onto", onto)
    assert sandbox.order() == [MPS, ARRAY, NEW] and sandbox.state() == "applied"


def test_commits_of_the_user_are_rebased_too(sandbox, k2):
    support.commit(k2, "mine", {"mine": "1\n"})
    onto = support.commit(sandbox.upstream, "Newer", OTHERS_WORK)
    sandbox.ok("rebase", "--onto", onto)
    assert (sandbox.root / "patches/mine.patch").exists() and sandbox.state() == "applied"


def test_a_file_that_was_renamed_is_followed(sandbox, k2):
    git(sandbox.upstream, "mv", CONTEXT, "k2/csrc/ctx.h")
    sandbox.ok("rebase", "--onto", support.commit(sandbox.upstream, "Rename", {}))
    assert "line fifty\n" in (k2 / "k2/csrc/ctx.h").read_text()
    assert "diff --git a/k2/csrc/ctx.h" in (sandbox.root / f"patches/{MPS}").read_text()


@pytest.mark.parametrize("command", [["export"], ["new", "mine"], ["fold", MPS]])
def test_after_a_revert_of_the_pin_no_commit_of_upstream_becomes_a_patch(sandbox, k2, command):
    config = sandbox.root / "upstream.toml"
    before = config.read_text()
    onto_a_release(sandbox)
    config.write_text(before)
    support.write(k2, {"CMakeLists.txt": "mine\n"})
    if command == ["export"]:
        git(k2, "commit", "--quiet", "--all", "-m", "mine")
    old = patches(sandbox)
    error = sandbox.fails(1, *command)
    assert "changed upstream.toml" in error and "next: k2mps apply" in error
    assert patches(sandbox) == old


def test_another_change_of_upstream_toml_is_no_change_of_the_pin(sandbox, k2):
    support.edit(sandbox.root / "upstream.toml", "# Which", "# This is which")
    support.write(k2, {"CMakeLists.txt": "mine\n"})
    sandbox.ok("new", "mine")

"""`k2mps apply` makes a commit of each patch."""

import os

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import git, snapshot

# The id of the tree that k2 has after `sample_series` is applied.
TREE = "fb9b52df22fdff689711f865d3fe5ee377ddbade"


def test_apply_makes_one_commit_for_each_patch(sandbox):
    out = sandbox.ok("apply")
    assert "applied the series" in out
    k2 = sandbox.checkout
    assert git(k2, "rev-parse", "HEAD^{tree}") == TREE
    assert git(k2, "symbolic-ref", "HEAD") == "refs/heads/k2-mps"
    assert git(k2, "rev-parse", "HEAD~3") == sandbox.pin
    assert git(k2, "log", "--format=%s", "-3").split("\n") == [
        "python: add only new files",
        "array: a mode and line ends",
        "context: know mps",
    ]
    assert git(k2, "status", "--porcelain") == ""
    assert (k2 / "cmake/mps.cmake").read_text() == "option(K2_WITH_MPS)\n"
    assert not (k2 / "k2/csrc/old.cu").exists()
    assert os.access(k2 / "k2/python/k2/mps/tool", os.X_OK)
    assert os.access(k2 / "k2/csrc/array.cu", os.X_OK)
    assert (k2 / "k2/csrc/crlf.txt").read_bytes() == b"one\r\nTWO\r\nthree\r\n"
    assert (k2 / "k2/python/k2/mps/blob.bin").read_bytes() == b"\0\1\2"
    date = git(sandbox.upstream, "log", "-1", "--format=%ct", sandbox.pin)
    who = "--format=%an <%ae>%n%cn <%ce>%n%ct %at%n%B"
    assert git(k2, "log", "-1", "--skip=2", who).strip().split("\n") == [
        "A Contributor <contributor@example.org>",
        "k2-mps <k2-mps@k2-mps.invalid>",
        f"{date} 1700000000",
        "context: know mps",
        "",
        "Because it is needed.",
        "",
        "  indented",
        "",
        "Upstream-Status: Pending (not sent yet)",
        "Patch-Filename: context-know-mps.patch",
    ]


def test_a_first_apply_touches_only_what_the_series_changes(sandbox):
    """ninja compiles a file again if the file was written again, even with the same content."""
    sandbox.obtain()
    before = snapshot(sandbox.checkout)["files"]
    sandbox.ok("apply")
    after = snapshot(sandbox.checkout)["files"]
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    folders = {path for path in changed if after.get(path) == "directory"}
    series_paths = git(sandbox.checkout, "diff", "--name-only", "-z", sandbox.pin).strip("\0")
    assert changed - folders == set(series_paths.split("\0"))


def test_another_version_of_the_series_touches_only_what_differs(sandbox):
    sandbox.ok("apply")
    (sandbox.root / "patches/files/cmake/mps.cmake").write_text("# new\n")
    before = snapshot(sandbox.checkout)["files"]
    old = git(sandbox.checkout, "rev-parse", "--short=12", "HEAD")
    output = sandbox.ok("apply")
    assert "changed 1 files" in output and f"was at {old} before" in output
    after = snapshot(sandbox.checkout)["files"]
    assert {path for path in after if after[path] != before.get(path)} == {"cmake/mps.cmake"}
    assert sandbox.state() == "applied"


def test_below_a_commit_of_the_user_the_series_counts_without_the_ref(sandbox, k2):
    """The next apply writes the tool's ref again, and leaves the commit checked out."""
    mine = support.commit(k2, "mine", {"mine.txt": "1\n"})
    git(k2, "update-ref", "-d", "refs/k2mps/applied")
    sandbox.ok("apply")
    assert git(k2, "rev-parse", "k2-mps", "HEAD").split() == [mine, mine]
    assert git(k2, "for-each-ref", "refs/k2mps/applied")


def test_untracked_files_elsewhere_do_not_matter(sandbox):
    own = sandbox.clone("own")
    support.write(own, {"notes.txt": "mine\n", "a.log": "x"})
    git(own, "branch", "k2-mps", "HEAD~1")  # a branch without commits of the user
    sandbox.ok("apply", "--k2", str(own))
    assert (own / "notes.txt").read_text() == "mine\n"
    assert sandbox.state(own) == "applied"


def test_the_error_for_a_clone_without_the_pin_shows_how_to_fetch_it(sandbox):
    own = sandbox.clone("own")
    pin = support.commit(sandbox.upstream, "later", {"later.txt": "x\n"})
    sandbox.write_config(pin)
    message = sandbox.fails(1, "apply", "--k2", str(own))
    assert f"fetch {sandbox.upstream.as_uri()} {pin}" in message


@pytest.mark.parametrize("applied", [False, True])
def test_the_tools_own_clone_follows_the_pin(sandbox, applied):
    sandbox.ok("apply") if applied else sandbox.obtain()
    pin = support.commit(sandbox.upstream, "later", {"later.txt": "x\n"})
    sandbox.write_config(pin)
    assert sandbox.state() == "other commit"
    sandbox.ok("apply")
    assert sandbox.state() == "applied"
    assert git(sandbox.checkout, "rev-parse", "HEAD~3") == pin
    assert (sandbox.checkout / "later.txt").exists()


def test_filters_of_the_checkout_are_kept(sandbox):
    own = sandbox.clone("own")
    git(own, "config", "core.autocrlf", "true")  # the files still have LF, but git sees no edit
    git(own, "config", "filter.upper.clean", "tr A-Z a-z")
    git(own, "config", "filter.upper.smudge", "tr a-z A-Z")
    (own / ".git/info/attributes").write_text("*.cmake filter=upper\n")
    sandbox.ok("apply", "--k2", str(own))
    assert (own / "cmake/mps.cmake").read_bytes() == b"OPTION(K2_WITH_MPS)\r\n"
    assert git(own, "rev-parse", "HEAD^{tree}") == TREE

"""`k2mps apply` refuses a checkout or a patch, and then changes nothing."""

import re

import pytest
from k2mps.core import errors

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.sandbox import NEW
from k2_mps_tests.tooling.series_files import patches
from k2_mps_tests.tooling.support import git, snapshot

DIVERGED = """
git checkout -q -b other HEAD~1
echo "project(other)" > CMakeLists.txt; git commit -qam other; git checkout -q master
echo "project(more)" > CMakeLists.txt; git commit -qam more
echo "project(last)" > CMakeLists.txt; git commit -qam last
"""
IN_PROGRESS = {
    "rebase": "GIT_SEQUENCE_EDITOR='sed -i.bak 1s/^pick/edit/' git rebase -q -i HEAD~1",
    "cherry-pick": "git cherry-pick other || true",
    "merge": "git merge other || true",
    "revert": "git revert --no-edit HEAD~1 || true",
    "am": "git format-patch -q --stdout other~1..other >am || true; git am -q am || true",
}

REFUSED, BUSY = 1, errors.BusyError.exit_code
HEADER = "k2/csrc/context.h"


def refused(name: str, message: str, script: str, status: int = REFUSED):
    """Returns a case: a script that changes a checkout, and how `apply` then refuses it."""
    return pytest.param(message, script, status, id=name)


@pytest.mark.parametrize(
    "message, script, status",
    [
        refused("an edit", f"\t{HEADER}\n", f"echo mine > {HEADER}"),
        refused("a staged edit", f"\t{HEADER}\n", f"echo mine > {HEADER}; git add --all"),
        refused("a shortened file", f"\t{HEADER}\n", f"sed -i '40,$d' {HEADER}"),
        refused("an empty file", f"\t{HEADER}\n", f": > {HEADER}"),
        refused(
            "a staged edit of a file that is now empty",
            f"\t{HEADER}\n",
            f"echo mine > {HEADER}; git add {HEADER}; : > {HEADER}",
        ),
        refused(
            "a file at the path of a new file",
            "\tcmake/mps.cmake\n",
            "mkdir cmake; echo mine > cmake/mps.cmake",
        ),
        refused("a file at the path of a new folder", "\tk2/csrc/mps\n", "echo mine > k2/csrc/mps"),
        refused(
            "a symbolic link at the path of a new folder",
            "\tcmake\n",
            "mkdir ../elsewhere; ln -s ../elsewhere cmake",
        ),
        refused(
            "a folder at the path of a new file",
            "blob.bin\n",
            "mkdir -p k2/python/k2/mps/blob.bin; echo > k2/python/k2/mps/blob.bin/x",
        ),
        refused(
            "an ignored file at the path of a new file",
            "files are in the way in {own}: cmake/mps.cmake\n",
            "echo '*.cmake' > .git/info/exclude; mkdir cmake; echo mine > cmake/mps.cmake",
        ),
        refused(
            "an ignored file at the path of a new folder",
            "files are in the way in {own}: cmake\n",
            "echo cmake > .git/info/exclude; echo mine > cmake",
        ),
        *(
            refused(
                f"an edit that git hides by {flag}",
                f"\t{HEADER}\n",
                f"git update-index {flag} {HEADER}; echo hidden > {HEADER}",
            )
            for flag in ("--assume-unchanged", "--skip-worktree")
        ),
        refused(
            "a commit on branch k2-mps",
            "has commits that patches/ lacks",
            "git checkout -q -b k2-mps; git commit -q --allow-empty -m mine; git checkout -q -",
        ),
        refused(
            "a commit to which no branch leads",
            "no branch or tag leads to it",
            "git checkout -q --detach; echo > new; git add new; git commit -q -m mine",
        ),
        refused(
            "the branch in another worktree",
            "is checked out in {other}",
            "git worktree add -q ../other -b k2-mps",
        ),
        *(
            refused(
                f"the branch in another worktree's {name}",
                "is checked out in {other}",
                f"git worktree add -q ../other -b k2-mps; cd ../other; {script}",
            )
            for name, script in {
                "rebase": "git rebase -q --exec false HEAD~1 || true",
                "bisection": "git bisect start -q; git checkout -q --detach",
            }.items()
        ),
        refused("no index", "index is missing", "rm .git/index"),
        refused("a locked index", "index.lock exists", "touch .git/index.lock", BUSY),
        refused("a locked HEAD", "HEAD.lock exists", "touch .git/HEAD.lock", BUSY),
        refused("a locked branch", "k2-mps.lock exists", "touch .git/refs/heads/k2-mps.lock", BUSY),
        refused(
            "a branch whose name begins with k2-mps/",
            "'refs/heads/k2-mps/mine' exists",
            "git branch k2-mps/mine",
        ),
        *(
            refused(f"an unfinished {name}", f"has an unfinished {name}", f"{DIVERGED}{begin}")
            for name, begin in IN_PROGRESS.items()
        ),
        refused(
            "a commit that is still to be picked",
            "an unfinished cherry-pick",
            f"{DIVERGED} git checkout -q other; echo > two; git add two; git commit -qm two;"
            " git checkout -q master; git cherry-pick other~1 other || true;"
            " git add --all; git commit -qm picked",
        ),
        refused(
            "a commit that is still to be reverted",
            "an unfinished revert",
            f"{DIVERGED} git revert --no-edit HEAD~1 HEAD || true;"
            " git add --all; git commit -qm reverted",
        ),
    ],
)
def test_a_checkout_that_cannot_be_moved_is_refused(sandbox, message, script, status):
    own = sandbox.clone("own")
    support.shell(own, script)
    before = snapshot(own)
    error = sandbox.fails(status, "apply", "--k2", str(own))
    assert message.format(own=own, other=own.parent / "other") in error
    assert snapshot(own) == before


def test_a_rebase_in_the_main_worktree_has_the_branch(sandbox):
    own = sandbox.clone("own")
    support.shell(
        own,
        "git worktree add -q --detach ../linked; git switch -q -c k2-mps;"
        " git rebase -q --exec false HEAD~1 || true",
    )
    linked = own.parent / "linked"
    assert f"is checked out in {own}\n" in sandbox.fails(REFUSED, "apply", "--k2", str(linked))


def test_the_advice_for_commits_beside_changed_patches_can_be_followed(sandbox):
    sandbox.ok("apply")
    git(sandbox.checkout, "reset", "--quiet", "--hard", "HEAD~1")
    mine = support.commit(sandbox.checkout, "mine", {"mine": "x\n"})
    (sandbox.root / "patches/files/cmake/mps.cmake").write_text("# new\n")
    message = sandbox.fails(1, "apply")
    assert "k2mps export" not in message  # It would refuse: patches/ has changed.
    support.shell(sandbox.root, re.search(r"next: (git .*), which .*; then k2mps", message)[1])
    sandbox.ok("apply")
    assert git(sandbox.checkout, "rev-parse", f"my-k2-mps-{mine[:12]}") == mine


def test_the_advice_for_a_branch_that_the_user_has_made_can_be_followed(sandbox):
    own = sandbox.clone("own")
    git(own, "checkout", "--quiet", "-b", "k2-mps")
    mine = support.commit(own, "mine", {"mine": "x\n"})
    message = sandbox.fails(1, "apply", "--k2", str(own))
    assert "k2mps export" not in message  # It would refuse: the branch lacks the series.
    support.shell(sandbox.root, re.search(r"next: (git .*), which .*; then k2mps", message)[1])
    sandbox.ok("apply", "--k2", str(own))
    assert git(own, "rev-parse", f"my-k2-mps-{mine[:12]}") == mine


def test_a_commit_on_another_branch_stays_there(sandbox):
    own = sandbox.clone("own")
    mine = support.commit(own, "mine", {"mine": "x\n"})
    sandbox.ok("apply", "--k2", str(own))
    assert git(own, "rev-parse", "master") == mine and sandbox.state(own) == "applied"


def test_the_advice_for_a_commit_without_a_branch_keeps_it(sandbox, k2):
    git(k2, "branch", "mine", "HEAD~1")  # a name that the advice must not need
    git(k2, "checkout", "--quiet", "--detach")
    mine = support.commit(k2, "mine", {"mine": "x\n"})
    support.write(k2, {"scripts/run.sh": "mine\n"})
    git(k2, "stash")  # whose ref leads to the commit, until `git stash pop`
    support.shell(k2, re.search("next: (.*), which keeps it", sandbox.fails(1, "apply"))[1])
    sandbox.ok("apply")
    assert git(k2, "branch", "--contains", mine) and sandbox.state() == "applied"


def test_the_advice_for_commits_on_the_branch_loses_none_of_a_detached_head(sandbox, k2):
    support.commit(k2, "one", {"one": "x\n"})
    git(k2, "checkout", "--quiet", "--detach")
    mine = support.commit(k2, "two", {"two": "x\n"})
    (sandbox.root / "patches/files/cmake/mps.cmake").write_text("# new\n")
    support.shell(k2, re.search("next: (.*), which keeps it", sandbox.fails(1, "apply"))[1])
    support.shell(k2, re.search("next: (.*), then k2mps exp", sandbox.fails(1, "apply"))[1])
    sandbox.ok("export")
    assert git(k2, "branch", "--contains", mine)


def test_the_advice_for_commits_on_the_branch_overwrites_no_ignored_file(sandbox, k2):
    """A pull brings a patch that adds a file at the path of an ignored file of the user."""
    patch = sandbox.root / "patches" / NEW
    support.edit(patch, "New-files:\n", "New-files:\n\ta.log\n")
    support.write(sandbox.root / "patches/files", {"a.log": "theirs\n"})
    support.commit(k2, "one", {"one": "x\n"})
    support.write(k2, {"a.log": "mine\n"})
    assert "files are in the way in " in sandbox.fails(1, "apply")
    (k2 / "a.log").rename(k2 / "b.log")
    support.shell(k2, re.search("next: (.*), then k2mps exp", sandbox.fails(1, "apply"))[1])
    assert (k2 / "b.log").read_text() + (k2 / "a.log").read_text() == "mine\ntheirs\n"


def break_first_patch(sandbox):
    patch = sandbox.root / "patches/context-know-mps.patch"
    support.edit(patch, "\n line 49\n", "\n line forty-nine\n")
    sandbox.obtain()


def test_a_patch_that_does_not_apply_is_named(sandbox):
    break_first_patch(sandbox)
    before = snapshot(sandbox.checkout)
    message = sandbox.fails(14, "apply")
    assert snapshot(sandbox.checkout) == before
    assert "patches/context-know-mps.patch:1: does not apply" in message
    assert "docs/contributing.md" in message


def test_a_patch_of_a_file_that_k2_lacks_is_refused(sandbox):
    """The patch names contexts.h, which k2 lacks, instead of context.h."""
    patch = sandbox.root / "patches/context-know-mps.patch"
    patch.write_text(patch.read_text().replace("context.h", "contexts.h"))
    before = patches(sandbox)
    assert "k2 has no file k2/csrc/contexts.h" in sandbox.fails(1, "apply")
    assert patches(sandbox) == before


@pytest.mark.parametrize("path, code", [("k2/csrc/array.cu", 14), ("CMakeLists.txt/x", 14)])
def test_a_new_file_that_k2_has_is_refused(sandbox, path, code):
    support.write(sandbox.root / "patches/files", {path: "mine\n"})
    patch = sandbox.root / "patches/python-add-only-new-files.patch"
    support.edit(patch, "New-files:\n", f"New-files:\n\t{path}\n")
    before = patches(sandbox)
    assert path in sandbox.fails(code, "apply")
    assert patches(sandbox) == before


@pytest.mark.parametrize(
    "folder, message",
    [
        ("vendor", "not the top of a git checkout"),
        ("vendor", "why: it is a folder inside a checkout, ../ leads to its top\n"),
        ("../plain", "not a git repository"),
        (".git", "why: it is a git directory, which has no files of k2\n"),
    ],
)
def test_a_folder_that_is_no_checkout_is_refused(sandbox, folder, message):
    git(sandbox.root, "init", "--quiet")
    path = sandbox.root / folder
    path.mkdir(exist_ok=True)
    assert message in sandbox.fails(1, "apply", "--k2", str(path))


def test_a_configuration_that_git_cannot_read_is_named(sandbox, k2):
    sandbox.config.write_text("[broken\n")
    message = sandbox.fails(1, "apply")
    assert f"line 1 in file {sandbox.config}" in message
    assert "next: correct what git complains of" in message

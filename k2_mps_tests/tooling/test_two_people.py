"""Two people change patches/ on two branches, and git merges the branches."""

import re

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.sandbox import ARRAY, CONTEXT, MPS, NEW
from k2_mps_tests.tooling.support import git


@pytest.fixture
def project(sandbox, k2):
    """The sandbox, after `git init` and a first commit."""
    support.write(sandbox.root, {".gitignore": "/build/\n/.k2mps/\n"})
    git(sandbox.root, "init", "--quiet", "--initial-branch=main")
    git(sandbox.root, "config", "core.autocrlf", "false")
    git(sandbox.root, "add", "--all")
    git(sandbox.root, "commit", "--quiet", "-m", "first")
    return sandbox


def fold(project, branch, patch, path, old, new):
    """Folds an edit into a patch, and commits patches/ on a new branch from main."""
    git(project.root, "checkout", "--quiet", "-b", branch, "main")
    project.ok("apply")
    support.edit(project.checkout / path, old, new)
    project.ok("fold", patch)
    git(project.root, "commit", "--quiet", "--all", "-m", branch)


def make_patch(project):
    """Makes a patch that adds a line after line 20 of context.h, and commits it on branch a.

    The commit adds a page, too.
    """
    support.edit(project.checkout / CONTEXT, "line 20\n", "line 20\nmine\n")
    support.write(project.root, {"page.md": "theirs\n"})
    git(project.root, "checkout", "--quiet", "-b", "a")
    project.ok("new", "context: mine")
    git(project.root, "add", "--all")
    git(project.root, "commit", "--quiet", "-m", "a")
    git(project.root, "checkout", "--quiet", "main")


def merge(project, branch):
    env = {**project.environment, **support.IDENTITY}
    return project.program("git", "merge", "--quiet", "-m", "merge", branch, env=env)


def test_different_patches_merge(project):
    """Each of three branches changes one patch; the branches change different patches."""
    fold(project, "a", MPS, "cmake/mps.cmake", "K2_WITH_MPS", "K2_MPS")
    fold(project, "b", ARRAY, "k2/csrc/array.cu", "array 7\n", "seven\n")
    fold(project, "c", NEW, "k2/python/k2/mps/tool", "python3", "python")
    assert merge(project, "a").returncode == merge(project, "b").returncode == 0
    project.ok("apply")
    assert "seven\n" in (project.checkout / "k2/csrc/array.cu").read_text()
    assert (project.checkout / "cmake/mps.cmake").read_text() == ("option(K2_MPS)\n")
    assert project.state() == "applied"


ADDS = {"line 95\n": "ninety-five\nand a half\n"}  # in a hunk of its own
GROWS = {"line 91\n": ""}  # in a hunk that the patch has already


def merge_headers(project, change, side):
    """Merges two branches that conflict only in lines `index` and `@@`; keeps one side of them.

    Branch `a`, theirs, changes the first patch of context.h, and branch `b`, ours, the second.
    """
    ((old, new),) = change.items()
    fold(project, "a", MPS, CONTEXT, "line 20\n", "twenty\nand a half\n")
    fold(project, "b", ARRAY, CONTEXT, old, new)
    assert merge(project, "a").returncode == 1
    text = (project.root / "patches" / ARRAY).read_text()
    lines = "".join(re.findall("<{7} .*\n((?s:.*?))>{7} ", text)).splitlines()
    assert lines and all(re.match("index |--- |[+]{3} |@@ |=======", line) for line in lines)
    git(project.root, "merge", "--abort")
    git(project.root, "merge", "--quiet", "-m", "merge", f"-X{side}", "a")


@pytest.mark.parametrize("change, side", [(ADDS, "ours"), (ADDS, "theirs"), (GROWS, "ours")])
def test_headers_of_the_branch_that_changed_the_patch_are_right(project, change, side):
    merge_headers(project, change, side)
    project.ok("apply")
    project.ok("export")
    found = (project.checkout / CONTEXT).read_text()
    ((old, new),) = change.items()
    assert "twenty\nand a half\nline 21\n" in found and new in found and old not in found
    assert "line 50\n" not in found and "line 90\n" not in found
    project.ok("apply", "--k2", str(project.clone("own")))


def test_headers_of_the_other_branch_may_be_refused(project):
    merge_headers(project, GROWS, "theirs")
    assert "the hunk does not fit its header" in project.fails(1, "apply")


def test_conflict_markers_are_refused(project):
    """git leaves the markers in a new file of a patch."""
    fold(project, "a", MPS, "cmake/mps.cmake", "K2_WITH_MPS", "A")
    fold(project, "b", MPS, "cmake/mps.cmake", "K2_WITH_MPS", "B")
    assert merge(project, "a").returncode == 1
    before = support.snapshot(project.checkout)
    for command in ("apply", "export"):
        assert "patches/files/cmake/mps.cmake:1: a merge conflict" in project.fails(1, command)
    assert "conflict" in project.run("lint").stdout
    assert support.snapshot(project.checkout) == before
    git(project.root, "checkout", "--ours", "patches/files/cmake/mps.cmake")
    project.ok("apply")
    assert (project.checkout / "cmake/mps.cmake").read_text() == "option(B)\n"


def cover(project, branch):
    """Applies the patches of a branch, and keeps the commits on branch `theirs` of the checkout."""
    git(project.root, "checkout", "--quiet", branch)
    project.ok("apply")
    git(project.checkout, "branch", "--quiet", "theirs", "k2-mps")


def apply_both_after_a_conflict(project):
    """Gives up the merge of a, which conflicts; then `theirs` is a's series, and `k2-mps` b's.

    Returns the checkout.
    """
    assert merge(project, "a").returncode == 1
    git(project.root, "merge", "--abort")
    cover(project, "a")
    git(project.root, "checkout", "--quiet", "b")
    project.ok("apply")
    return project.checkout


def finish_merge(project, branch):
    """Ends a merge as docs/contributing.md says: the branch k2-mps has the patches of both."""
    support.shell(project.root, f"git merge --quiet --no-commit {branch} || true")
    git(project.root, "restore", "--source=HEAD", "--staged", "--worktree", "patches")
    project.ok("export")
    git(project.root, "add", "patches")
    git(project.root, "commit", "--quiet", "-m", "merge")
    assert project.state() == "applied"
    assert "already applied" in project.ok("apply")


def test_a_new_patch_that_conflicts_is_picked_by_git(project):
    """One person's patch changes line 20, and the other person's patch adds a line after it."""
    make_patch(project)
    fold(project, "b", MPS, CONTEXT, "line 20\n", "twenty\n")
    assert merge(project, "a").returncode == 0
    before = support.snapshot(project.checkout)
    message = project.fails(14, "apply")
    assert "patches/context-mine.patch:1: does not apply: conflicts" in message
    assert CONTEXT in message and "Two people's patches" in message
    assert support.snapshot(project.checkout) == before
    git(project.root, "reset", "--quiet", "--hard", "HEAD~")
    k2 = project.checkout
    cover(project, "a")
    git(project.root, "checkout", "--quiet", "b")
    project.ok("apply")
    support.shell(k2, "git cherry-pick theirs || true")
    support.resolve(k2 / CONTEXT, "twenty\nmine\n")
    git(k2, "add", CONTEXT)
    git(k2, "cherry-pick", "--continue", env={"GIT_EDITOR": ":"})
    finish_merge(project, "a")
    assert "twenty\nmine\n" in (k2 / CONTEXT).read_text()
    assert project.order()[-1] == "context-mine.patch"
    assert (project.root / "page.md").read_text() == "theirs\n"


def test_a_changed_patch_that_conflicts_is_rebased_by_git(project):
    """Each of two people changes a patch, in neighbouring lines."""
    fold(project, "a", MPS, CONTEXT, "line 88\n", "eighty-eight\n")
    fold(project, "b", ARRAY, CONTEXT, "line 89\n", "eighty-nine\n")
    k2 = apply_both_after_a_conflict(project)
    # The first commit of three is the patch that a changed; b's commits above it move onto it.
    support.shell(k2, "git rebase --onto theirs~2 k2-mps~2 k2-mps || true")
    support.resolve(k2 / CONTEXT, "eighty-eight\neighty-nine\n")
    git(k2, "add", CONTEXT)
    git(k2, "rebase", "--continue", env={"GIT_EDITOR": ":"})
    finish_merge(project, "a")
    assert "eighty-eight\neighty-nine\n" in (k2 / CONTEXT).read_text()
    assert "+eighty-eight" in (project.root / "patches" / MPS).read_text()


def test_a_patch_that_both_changed_is_combined_by_git(project):
    """The list of the rebase has the others' commit, and b's commit as a fixup."""
    fold(project, "a", MPS, CONTEXT, "line 70\n", "seventy\n")
    fold(project, "b", MPS, CONTEXT, "line 71\n", "seventy-one\n")
    k2 = apply_both_after_a_conflict(project)
    theirs = git(k2, "rev-parse", "theirs~2")
    change_list = f"sed -i.bak -e '1s/^pick/fixup/' -e '1i\\\npick {theirs}'"
    environment = {"GIT_SEQUENCE_EDITOR": change_list, "GIT_EDITOR": ":"}
    support.ran(
        "git",
        "rebase",
        "--interactive",
        project.pin,
        "k2-mps",
        cwd=k2,
        env={**project.environment, **support.IDENTITY, **environment},
    )
    support.resolve(k2 / CONTEXT, "seventy\nseventy-one\n")
    git(k2, "add", CONTEXT)
    git(k2, "rebase", "--continue", env={"GIT_EDITOR": ":"})
    finish_merge(project, "a")
    assert len(project.order()) == 3
    text = (project.root / "patches" / MPS).read_text()
    assert "+seventy\n+seventy-one\n" in text


def test_a_clone_without_the_versions_that_a_patch_names_says_how_to_make_them(project):
    """Two branches changed different lines of a file, and nobody has exported the series since.

    The new patch names a blob of context.h that is a result of the patches before the merge.
    """
    make_patch(project)
    fold(project, "b", MPS, CONTEXT, "line 70\n", "seventy\n")
    assert merge(project, "a").returncode == 0
    support.shell(project.root, "rm -rf build")
    message = project.fails(14, "apply")
    assert "it was made for other versions" in message and "each of the branches" in message
    for branch in ("a", "b"):
        git(project.root, "checkout", "--quiet", branch)
        project.ok("apply")
    text = (project.checkout / CONTEXT).read_text()
    assert "line 20\nmine\n" in text and "\nseventy\n" in text


def test_a_conflict_in_upstream_toml_is_left_to_the_user(project):
    config = project.root / "upstream.toml"
    for branch in ("a", "b"):
        git(project.root, "checkout", "--quiet", "-b", branch, "main")
        support.edit(config, 'version = "1.0"', f'version = "{branch}"')
        git(project.root, "commit", "--quiet", "--all", "-m", branch)
    assert merge(project, "a").returncode == 1
    conflicting = config.read_text()
    for command in ("apply", "export", "status"):
        assert "resolve git's conflict" in project.fails(1, command)
    assert config.read_text() == conflicting


def test_two_new_patches_conflict_only_in_patches_series(project):
    for branch in ("a", "b"):
        git(project.root, "checkout", "--quiet", "-b", branch, "main")
        project.ok("apply")
        support.write(project.checkout, {f"{branch}.h": "x\n"})
        project.ok("new", branch, f"{branch}.h")
        git(project.root, "add", "--all")
        git(project.root, "commit", "--quiet", "-m", branch)
    assert merge(project, "a").returncode == 1
    order = project.root / "patches/series"
    message = project.fails(1, "apply")
    assert "git merge may have left a conflict in that line" in message
    lines = order.read_text().splitlines(keepends=True)
    order.write_text("".join(line for line in lines if line[0] not in "<=>"))
    project.ok("apply")
    assert (project.checkout / "a.h").exists()
    assert (project.checkout / "b.h").exists()

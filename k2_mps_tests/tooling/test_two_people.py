"""Two people change patches/ on two branches, and git merges the branches."""

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import ARRAY, CONTEXT, MPS, NEW, git


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
    """Makes a patch that adds a line after line 20 of context.h, and commits it on branch a."""
    support.edit(project.checkout / CONTEXT, "line 20\n", "line 20\nmine\n")
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


def test_patches_that_merged_cleanly_but_do_not_apply_stop_as_a_rebase_does(project):
    """One person's patch changes line 20, and the other person's patch adds a line after it."""
    make_patch(project)
    fold(project, "b", MPS, CONTEXT, "line 20\n", "twenty\n")
    assert merge(project, "a").returncode == 0
    before = support.snapshot(project.checkout)
    message = project.fails(14, "apply")
    assert "patches/context-mine.patch, conflicts" in message and CONTEXT in message
    after = support.snapshot(project.checkout)
    assert (after["files"], after["refs"]) == (before["files"], before["refs"])
    assert "rebase --continue" in project.fails(14, "apply")
    support.resolve(project.root / "build/rebase" / CONTEXT, "twenty\nmine\n")
    project.ok("rebase", "--continue")
    project.ok("apply")
    assert "twenty\nmine\n" in (project.checkout / CONTEXT).read_text()
    assert project.state() == "applied"


def test_a_fresh_clone_applies_what_merged_cleanly(project):
    """The new patch names a blob of context.h that the new clone lacks.

    This blob is a result of the patches before the merge, and nobody has exported the series since.
    The two patches change different lines of context.h, so the new patch still applies.
    """
    make_patch(project)
    fold(project, "b", MPS, CONTEXT, "line 70\n", "seventy\n")
    assert merge(project, "a").returncode == 0
    support.shell(project.root, "rm -rf build")
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

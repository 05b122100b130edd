"""`k2mps clean` deletes only files that other commands make again."""

import os
import subprocess

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import git


@pytest.fixture
def k2(k2, sandbox):
    support.write(
        sandbox.root / "build", {"cpu-torch/build.ninja": "x\n", "tests/tooling.xml": "x\n"}
    )
    return k2


def test_build_trees_go_and_the_clone_stays(sandbox, k2):
    out = sandbox.ok("clean")
    assert "cpu-torch" in out
    assert os.listdir(sandbox.root / "build") == ["k2"]
    assert sandbox.state() == "applied"


def test_all_takes_the_clone_as_well(sandbox, k2):
    sandbox.ok("clean", "--all")
    assert os.listdir(sandbox.root / "build") == []
    sandbox.ok("clean", "--all")


def test_nothing_to_clean(sandbox):
    sandbox.ok("clean")
    sandbox.ok("clean", "--all")


def test_exported_work_does_not_keep_a_clone(sandbox, k2):
    support.commit(k2, "mine", {"a": "1\n"})
    sandbox.ok("export")
    sandbox.ok("clean", "--all")


def edit(k2):
    support.write(k2, {"CMakeLists.txt": "mine\n"})
    return "uncommitted edits"


def untracked(k2):
    support.write(k2, {"notes.txt": "mine\n"})
    return "notes.txt"


def commit(k2):
    support.commit(k2, "mine", {"a": "1\n"})
    return "commits on k2-mps"


def branch(k2):
    git(k2, "checkout", "--quiet", "-b", "feature", "HEAD~3")
    support.commit(k2, "mine", {"a": "1\n"})
    git(k2, "checkout", "--quiet", "k2-mps")
    return "commits on feature"


def detached(k2):
    git(k2, "checkout", "--quiet", "--detach")
    support.commit(k2, "mine", {"a": "1\n"})
    return "commits on HEAD"


def stash(k2):
    support.write(k2, {"CMakeLists.txt": "mine\n"})
    subprocess.run(
        ["git", "stash"],
        cwd=k2,
        check=True,
        capture_output=True,
        env={**os.environ, **support.IDENTITY},
    )
    return "stashed changes"


def worktree(k2):
    git(k2, "worktree", "add", "--quiet", "--detach", str(k2) + "-linked")
    return "linked worktrees"


@pytest.mark.parametrize("work", [edit, untracked, commit, branch, detached, stash, worktree])
def test_a_clone_with_work_in_it_is_kept(sandbox, k2, work):
    named = work(k2)
    before = support.snapshot(k2)
    assert named in sandbox.fails(1, "clean", "--all")
    assert support.snapshot(k2) == before
    assert (sandbox.root / "build/cpu-torch").exists()

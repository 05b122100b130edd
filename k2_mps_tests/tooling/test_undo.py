"""`k2mps undo` restores the state before a command, without loss."""

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import git, patches, snapshot


def state(sandbox, directory):
    """The state that undo restores: all but the files' times."""
    found = snapshot(directory, times=False)
    found["git directory"] = [name for name in found["git directory"] if name != "COMMIT_EDITMSG"]
    return found, patches(sandbox)


def commands(sandbox, directory):
    out = sandbox.ok("undo", "--list", "--k2", str(directory))
    return [line.split("\t")[2] for line in out.splitlines()]


@pytest.mark.parametrize("where", ["branch", "detached"])
def test_undo_of_apply_and_back_again(sandbox, own, where):
    if where == "detached":
        git(own, "checkout", "--quiet", "--detach")
    before = state(sandbox, own)
    sandbox.ok("apply", "--k2", str(own))
    after = state(sandbox, own)
    assert "as before `k2mps apply`" in sandbox.ok("undo", "--k2", str(own))
    assert state(sandbox, own) == before
    assert sandbox.state(own) == "pristine"
    sandbox.ok("undo", "--k2", str(own))
    assert state(sandbox, own) == after
    assert sandbox.state(own) == "applied"
    assert commands(sandbox, own) == ["undo of undo of apply", "undo of apply", "apply"]


def test_undo_of_export(sandbox, own):
    sandbox.ok("apply", "--k2", str(own))
    git(own, "rm", "--quiet", "k2/python/k2/mps/blob.bin")
    support.write(own, {"k2/python/k2/mps/größe.txt": "anders\n"})
    git(own, "commit", "--quiet", "--all", "--amend", "--no-edit")
    before = state(sandbox, own)
    sandbox.ok("export", "--prune", "--k2", str(own))
    after = state(sandbox, own)
    assert before[1].keys() - after[1].keys()
    sandbox.ok("undo", "--k2", str(own))
    assert state(sandbox, own) == before
    sandbox.ok("undo", "--k2", str(own))
    assert state(sandbox, own) == after
    executable = sandbox.root / "patches/files/k2/python/k2/mps/tool"
    assert executable.stat().st_mode & 0o100


def test_any_operation_of_the_log(sandbox, own):
    states = [state(sandbox, own)]
    sandbox.ok("apply", "--k2", str(own))
    for number in range(3):
        support.commit(own, f"more {number}", {f"new{number}": "1\n"})
        states.append(state(sandbox, own))
        sandbox.ok("export", "--k2", str(own))
    entries = sandbox.ok("undo", "--list", "--k2", str(own)).splitlines()
    ids = [line.split("\t")[0] for line in entries][::-1]
    assert len(ids) == 4
    for number in (2, 0, 3, 1):
        sandbox.ok("undo", ids[number], "--k2", str(own))
        assert state(sandbox, own) == states[number]


def test_what_changes_nothing_is_no_operation(sandbox, own):
    sandbox.ok("apply", "--k2", str(own))
    for command in ("apply", "export", "status", "lint"):
        k2 = [] if command == "lint" else ["--k2", str(own)]
        sandbox.run(command, *k2)
    assert commands(sandbox, own) == ["apply"]


def test_nothing_to_undo(sandbox, own):
    assert "nothing to undo" in sandbox.fails(1, "undo", "--k2", str(own))
    sandbox.ok("apply", "--k2", str(own))
    assert "names no operations" in sandbox.fails(1, "undo", "abcdef", "--k2", str(own))


def test_undo_takes_nobodys_later_work(sandbox, own):
    """Commits and hand-made patches that came after the operation stay."""
    sandbox.ok("apply", "--k2", str(own))
    tip = support.commit(own, "my work", {"mine": "1\n"})
    assert "has changed since `k2mps apply`" in sandbox.fails(1, "undo", "--k2", str(own))
    sandbox.ok("export", "--k2", str(own))
    config = sandbox.root / "patches/files/cmake/mps.cmake"
    config.write_text("by hand\n")
    # What undo takes away, git keeps; what is not the command's, undo leaves alone.
    sandbox.ok("undo", "--k2", str(own))
    assert config.read_text() == "by hand\n"
    assert git(own, "rev-parse", "HEAD") == tip
    assert not (sandbox.root / "patches/my-work.patch").exists()
    git(own, "reflog", "expire", "--expire=now", "--all")
    git(own, "gc", "--quiet", "--prune=now")
    sandbox.ok("undo", "--k2", str(own))
    assert (sandbox.root / "patches/my-work.patch").exists()
    series = sandbox.root / "patches/series"
    series.write_text("# by hand\n" + series.read_text())
    assert "patches/series changed since" in sandbox.fails(1, "undo", "--k2", str(own))
    assert series.read_text().startswith("# by hand\n")


@pytest.mark.parametrize(
    "path, message",
    [("k2/csrc/array.cu", "uncommitted edits"), ("k2/csrc/old.cu", "\tk2/csrc/old.cu\n")],
)
def test_what_is_not_committed_is_not_lost(sandbox, own, path, message):
    sandbox.ok("apply", "--k2", str(own))
    support.write(own, {path: "mine\n"})
    before = state(sandbox, own)
    assert message in sandbox.fails(1, "undo", "--k2", str(own))
    assert state(sandbox, own) == before


def test_a_branch_of_the_users_stays_checked_out(sandbox, own):
    sandbox.ok("apply", "--k2", str(own))
    support.commit(own, "more", {"new": "1\n"})
    sandbox.ok("export", "--k2", str(own))
    git(own, "checkout", "--quiet", "feature")
    sandbox.ok("undo", "--k2", str(own))
    assert git(own, "symbolic-ref", "HEAD") == "refs/heads/feature"
    assert not (sandbox.root / "patches/more.patch").exists()


def test_worktrees_have_logs_of_their_own(sandbox, own):
    git(own, "worktree", "add", "--quiet", "--detach", "../other")
    other = own.parent / "other"
    sandbox.ok("apply", "--k2", str(other))
    assert commands(sandbox, own) == []
    assert "nothing to undo" in sandbox.fails(1, "undo", "--k2", str(own))
    sandbox.ok("undo", "--k2", str(other))
    assert sandbox.state(other) == "pristine"

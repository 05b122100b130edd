"""The user works, or something kills git, while `k2mps apply` runs."""

import re

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.sandbox import ARRAY, CONTEXT, LONG_FILE, MPS
from k2_mps_tests.tooling.support import git

HEADER = CONTEXT


def test_an_edit_made_while_it_runs_is_not_lost(sandbox, tmp_path):
    sandbox.obtain()
    path = sandbox.checkout / "k2/csrc/array.cu"
    edit = f'echo mine > "{path}"'
    env = support.shim(tmp_path / "bin", f'case "$*" in *"switch --quiet"*) {edit};; esac')
    head = git(sandbox.checkout, "rev-parse", "HEAD")
    assert "\tk2/csrc/array.cu\n" in sandbox.fails(1, "apply", env=env)
    assert path.read_text() == "mine\n"
    assert git(sandbox.checkout, "rev-parse", "HEAD") == head
    assert sandbox.state() == "edited"


@pytest.mark.parametrize("moment", ["*switch*", "*update-ref*", '*"-worktrees k2-mps"'])
def test_a_commit_made_while_it_runs_stays_on_the_branch(sandbox, k2, tmp_path, moment):
    """The user commits before git switches; or afterwards, while HEAD is detached."""
    (sandbox.root / "patches/files/cmake/mps.cmake").write_text("# new\n")
    done = tmp_path / "done"
    too_early = "false" if "switch" in moment else f"$real -C {k2} symbolic-ref -q HEAD >{done}.not"
    commit = f"[ -e {done} ] || {too_early} || {{ touch {done}; echo mine > {k2}/mine; cd {k2};"
    commit += " $real add mine; $real -c user.name=a -c user.email=a@b commit -qm mine; }"
    env = support.shim(tmp_path / "bin", f'case "$*" in {moment}) {commit};; esac')
    result = sandbox.run("apply", env=env)
    assert done.exists() and git(k2, "show", "k2-mps:mine") == "mine"
    assert git(k2, "symbolic-ref", "HEAD") == "refs/heads/k2-mps"
    assert git(k2, "status", "--porcelain") == ""
    if "switch" in moment:
        assert result.returncode == 1 and "has moved meanwhile" in result.stderr
        assert "has commits that patches/ lacks" in sandbox.fails(1, "apply")
    else:
        assert result.returncode == 0
        assert sandbox.state() == "edited" and "already applied" in sandbox.ok("apply")


@pytest.mark.parametrize("moment", ["*update-ref*", '*"-worktrees k2-mps"'])
@pytest.mark.parametrize("on_top", [False, True])
def test_a_switch_made_while_it_runs_is_undone(sandbox, k2, tmp_path, moment, on_top):
    """The user switches to another branch, perhaps on top of the series, while HEAD is detached."""
    file = sandbox.root / "patches/files/cmake/mps.cmake"
    old = file.read_text()
    file.write_text("# new\n")
    if on_top:
        sandbox.ok("apply")
        git(k2, "checkout", "--quiet", "-b", "topic")
        support.commit(k2, "topic", {"topic": "x\n"})
        file.write_text(old)
        sandbox.ok("apply")
        file.write_text("# new\n")
    else:
        git(k2, "branch", "topic", "HEAD~1")
    done = tmp_path / "done"
    switch = f"$real -C {k2} symbolic-ref -q HEAD >{done}.not"
    switch += f" || {{ touch {done}; $real -C {k2} switch -q topic; }}"
    env = support.shim(tmp_path / "bin", f'case "$*" in {moment}) {switch};; esac')
    sandbox.ok("apply", env=env)
    assert done.exists() and git(k2, "status", "--porcelain") == ""
    assert (k2 / "cmake/mps.cmake").read_text() == "# new\n" and sandbox.state() == "applied"


def test_an_apply_that_was_killed_before_the_branch_moved_goes_on(sandbox, k2):
    """git has switched the files, and HEAD is detached; the branch and the ref are the old ones."""
    old = git(k2, "rev-parse", "k2-mps"), git(k2, "rev-parse", "refs/k2mps/applied")
    (sandbox.root / "patches/files/cmake/mps.cmake").write_text("# new\n")
    sandbox.ok("apply")
    git(k2, "checkout", "--quiet", "--detach")
    git(k2, "update-ref", "refs/heads/k2-mps", old[0])
    git(k2, "update-ref", "refs/k2mps/applied", old[1])
    support.write(k2, {"scripts/run.sh": "mine\n"})
    assert "next: k2mps apply\n" in sandbox.fails(1, "fold", MPS)
    sandbox.ok("apply")
    assert (k2 / "scripts/run.sh").read_text() == "mine\n"
    assert git(k2, "symbolic-ref", "HEAD") == "refs/heads/k2-mps"
    sandbox.ok("fold", ARRAY)
    assert sandbox.state() == "applied"


def test_the_files_that_a_killed_switch_has_left_are_completed_by_git(sandbox):
    sandbox.obtain()
    k2 = sandbox.checkout
    # A kill of git leaves some files written, one of them in part.
    lines = LONG_FILE.replace("line 50\n", "line fifty\nand a half\n")
    support.write(k2, {"cmake/mps.cmake": "option(K2_WITH_MPS)\n", HEADER: lines[:300]})
    message = sandbox.fails(1, "apply")
    command = re.search("a killed command has left them, (git .*), then the same", message)[1]
    assert command.endswith(f" -- {HEADER} cmake/mps.cmake")
    support.shell(k2, command)
    # The files might be the user's work, so the command keeps them.
    assert git(k2, "show", f"stash:{HEADER}") == lines[:300]
    sandbox.ok("apply")
    assert sandbox.state() == "applied"


def test_a_file_that_the_user_has_removed_from_the_index_is_named_once(sandbox, k2):
    git(k2, "rm", "--quiet", "--cached", "cmake/mps.cmake")
    (sandbox.root / "patches/files/cmake/mps.cmake").write_text("# new\n")
    assert "stash -u -- cmake/mps.cmake, then" in sandbox.fails(1, "apply")


def test_a_file_that_git_could_not_write_is_named(sandbox, tmp_path):
    """In a read-only folder, git prints "error: unable to unlink old ..." but exits with 0."""
    sandbox.obtain()
    refusal = "echo 'error: unable to unlink old' >&2"
    late = f'$real "$@" && echo old > k2/csrc/array.cu && {refusal}; exit'
    env = support.shim(tmp_path / "bin", f'case "$*" in *"switch --quiet"*) {late};; esac')
    for environment in (env, None):
        message = sandbox.fails(1, "apply", env=environment)
        assert "could not write k2/csrc/array.cu in " in message
        # The first run has git's reason, the second run does not know it.
        assert ("unable to unlink old" in message) == (environment is env)
        # `fold` would take the file's old text for an edit.
        assert "is not on branch k2-mps" in sandbox.fails(1, "fold", ARRAY)
        assert "next: k2mps apply\n" in sandbox.fails(1, "export")
        assert "next: k2mps apply\n" in sandbox.ok("status")
    support.shell(sandbox.root, re.search("writable; then (git .*), which writes", message)[1])
    assert git(sandbox.checkout, "show", "stash:k2/csrc/array.cu") == "old"
    assert "applied the series" in sandbox.ok("apply") and sandbox.state() == "applied"

"""What `k2mps rebase` and `export` say after a signal or a kill, and of a left-out commit."""

import os
import re
import shlex
import signal

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.rebasing import LEFT_OUT, OTHERS_WORK, pin, resolve
from k2_mps_tests.tooling.sandbox import ARRAY, CONTEXT, LONG_FILE
from k2_mps_tests.tooling.series_files import patches
from k2_mps_tests.tooling.support import git

# `git rebase` makes commits, for which git needs a name.
pytestmark = pytest.mark.usefixtures("user_name")


UNDO = (
    r"next: (git .* stash -u), which .*; then (git .* --abort), which .* discards commits .*;"
    r" if git refuses that, (git .* --quit); (git .* checkout --no-overwrite-ignore k2-mps)"
)


def during_a_pick(k2, subject: str, script: str) -> None:
    """Makes git run a shell script while a rebase picks a commit whose subject has a pattern.

    git asks a program which files have changed; here, the program runs the script.
    """
    program = k2 / ".git/monitor"
    done = shlex.quote(str(k2 / ".git/rebase-merge/done"))
    picking = f'test -e {done} && tail -n 1 {done} | grep -q "{subject}"'
    program.write_text(f"#!/bin/sh\nif {picking}; then {script}; fi\nexit 1\n")
    program.chmod(0o755)
    git(k2, "config", "core.fsmonitor", str(program))


def interrupted(sandbox, k2, whole_group: bool) -> tuple[str, str]:
    """Interrupts a rebase while git picks a commit; returns the new base and the tool's output.

    Args:
      whole_group: whether git gets the signal, too, as from Ctrl-C in a terminal.
    """
    onto = support.commit(sandbox.upstream, "Others' work", OTHERS_WORK)
    during_a_pick(k2, ".", f"touch {k2}/started; sleep 1")
    running = sandbox.start("rebase", "--onto", onto, start_new_session=True)
    support.wait_for(k2 / "started")
    (os.killpg if whole_group else os.kill)(running.pid, signal.SIGINT)
    output, _ = running.communicate(timeout=60)
    assert running.returncode == 130 and "error: interrupted\n  next: " in output, output
    git(k2, "config", "--unset", "core.fsmonitor")
    (k2 / "started").unlink()
    return onto, output


def test_a_rebase_that_ctrl_c_ends_is_undone_by_git(sandbox, k2):
    before = patches(sandbox), git(k2, "rev-parse", "k2-mps")
    _, output = interrupted(sandbox, k2, whole_group=True)
    (undo,) = re.findall(UNDO, output)
    support.write(k2, {"CMakeLists.txt": "mine\n", "cmake/mps.cmake": "mine\n"})
    git(k2, "rm", "--quiet", "--cached", "--ignore-unmatch", "cmake/mps.cmake")
    support.shell(k2, f"{undo[0]}; {undo[1]} || ({undo[2]}; {undo[3]})")
    assert git(k2, "show", "stash:CMakeLists.txt", "stash^3:cmake/mps.cmake") == "mine\nmine"
    assert (patches(sandbox), git(k2, "rev-parse", "HEAD")) == before
    assert sandbox.state() == "applied" and not git(k2, "status", "--porcelain")


def test_a_signal_that_ends_git_is_not_a_conflict(sandbox, k2):
    onto = support.commit(sandbox.upstream, "Others' work", OTHERS_WORK)
    script = 'case "$*" in *"rebase "*"--onto"*) kill -KILL $$;; esac'
    variables = support.shim(sandbox.root.parent / "bin", script)
    error = sandbox.fails(1, "rebase", "--onto", onto, env=variables)
    assert f"git rebase was ended by signal {signal.SIGKILL}" in error and re.search(UNDO, error)


@pytest.fixture
def killed(sandbox, k2) -> str:
    """A rebase that was killed while git picked the second of two commits of the user.

    Returns:
      The new base.
    """
    for line in (20, 30):
        support.edit(k2 / CONTEXT, f"line {line}\n", f"mine {line}\n")
        git(k2, "commit", "--quiet", "--all", "-m", f"mine {line}")
    onto = support.commit(sandbox.upstream, "Others' work", OTHERS_WORK)
    during_a_pick(k2, "mine 30", "kill -9 $PPID")
    assert "git rebase was ended by signal 9" in sandbox.fails(1, "rebase", "--onto", onto)
    (k2 / ".git/index.lock").unlink()
    git(k2, "config", "--unset", "core.fsmonitor")
    return onto


def test_a_rebase_that_was_killed_is_undone_by_git(sandbox, k2, killed):
    status = sandbox.ok("status")
    assert "a rebase is running, or was killed" in status and "--continue" not in status
    (undo,) = re.findall(UNDO.replace("next: ", "next: if .*, "), status)
    assert "next: k2mps status, which" in sandbox.fails(1, "rebase", "--onto", killed)
    support.shell(k2, f"{undo[0]}; {undo[1]}")
    sandbox.ok("rebase", "--onto", killed)
    assert sandbox.order()[-2:] == ["mine-20.patch", "mine-30.patch"]


def test_a_commit_that_git_skips_after_a_kill_is_named(sandbox, k2, killed):
    """If the user continues the rebase, git drops the commit without a word."""
    git(k2, "rebase", "--continue")
    assert (k2 / CONTEXT).read_text().count("mine") == 1
    message = sandbox.run("export", "--onto", killed).stderr
    skipped = re.search(f"{LEFT_OUT} ([0-9a-f]{{12}}) mine 30; `(git .*)` brings", message)
    support.shell(k2, f"{skipped[2]} {skipped[1]}")
    assert LEFT_OUT not in sandbox.run("export").stderr
    assert sandbox.order()[-2:] == ["mine-20.patch", "mine-30.patch"]
    assert "is up to date already" in sandbox.ok("export")


def test_a_merge_that_a_rebase_has_left_out_is_brought_back(sandbox, k2):
    """The user resolved a conflict in the merge; `git rebase` leaves merges out."""
    support.shell(
        k2,
        "git checkout -qb side HEAD~; echo side > a; git add a; git commit -qm side;"
        " git checkout -q k2-mps; git merge -q --no-commit side; echo merged > b; git add b;"
        " git commit -qm merged",
    )
    merge = git(k2, "rev-parse", "--short=12", "HEAD")
    git(k2, "rebase", "--quiet", sandbox.pin)
    left_out = re.search(f"{LEFT_OUT} {merge} merged; `(.*)`", sandbox.run("export").stderr)
    git(k2, "reset", "--quiet", "--hard", "HEAD~")  # the merge brings the commit `side`, too
    support.shell(k2, f"{left_out[1]} {merge}")
    assert (k2 / "a").read_text() + (k2 / "b").read_text() == "side\nmerged\n"


def test_a_left_out_commit_with_the_subject_of_another_is_named(sandbox, k2):
    """Two commits of one second have one subject, as the halves of a commit that was split."""
    date = {"GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z"}
    for line in (20, 30):
        support.edit(k2 / CONTEXT, f"line {line}\n", f"mine {line}\n")
        git(k2, "commit", "--quiet", "--all", "-m", "wip", env=date)
    drop = {"GIT_SEQUENCE_EDITOR": "sed -i.bak 1s/^pick/drop/"}
    first = git(k2, "rev-parse", "--short=12", "HEAD~1")
    git(k2, "rebase", "--quiet", "--interactive", "HEAD~2", env=drop)
    assert f"{LEFT_OUT} {first} wip;" in sandbox.run("export").stderr


def test_a_left_out_commit_that_deletes_a_file_is_named(sandbox, k2):
    """git keeps a file that one side has deleted and the other has changed."""
    git(k2, "rm", "--quiet", CONTEXT)
    git(k2, "commit", "--quiet", "-m", "gone")
    drop = {"GIT_SEQUENCE_EDITOR": "sed -i.bak 1s/^pick/drop/"}
    first = git(k2, "rev-parse", "--short=12", "HEAD")
    git(k2, "rebase", "--quiet", "--interactive", "HEAD~1", env=drop)
    support.edit(k2 / CONTEXT, "line 20\n", "mine\n")
    git(k2, "commit", "--quiet", "--all", "-m", "mine")
    assert f"{LEFT_OUT} {first} gone;" in sandbox.run("export").stderr


def test_a_commit_without_changes_is_not_missed(sandbox, k2):
    git(k2, "commit", "--quiet", "--allow-empty", "-m", "no change")
    git(k2, "rebase", "--quiet", "--no-keep-empty", "--force-rebase", "HEAD~2")
    assert git(k2, "log", "-1", "--format=%s") != "no change"
    result = sandbox.run("export")
    assert not result.returncode and LEFT_OUT not in result.stderr


def test_two_fixups_of_one_line_are_exported(sandbox, k2):
    """The steps of docs/rebasing.md, twice before `export`."""
    for old, new in (("array 7", "first"), ("first", "second")):
        patched = git(k2, "log", "--format=%h", f"--grep=Patch-Filename: {ARRAY}")
        support.edit(k2 / "k2/csrc/array.cu", f"{old}\n", f"{new}\n")
        git(k2, "commit", "--quiet", "--all", f"--fixup={patched}")
        rebase = ("rebase", "--quiet", "--interactive", "--autosquash", f"{patched}~")
        git(k2, *rebase, env={"GIT_SEQUENCE_EDITOR": "true"})
    sandbox.ok("export")
    assert "+second\n" in (sandbox.root / "patches" / ARRAY).read_text()


def test_a_commit_that_a_rebase_has_changed_is_not_missed(sandbox, k2):
    """git stops at a conflict; then the user rewords one commit, and squashes another."""
    conflict = {CONTEXT: (k2 / CONTEXT).read_text().replace("line 30", "mine 30")}
    for subject, files in {"one": conflict, "two": {"2": "2\n"}, "three": {"3": "3\n"}}.items():
        support.commit(k2, subject, files)
    upstreams = {CONTEXT: LONG_FILE.replace("line 30", "thirty")}
    onto = support.commit(sandbox.upstream, "Line 30", upstreams)
    sandbox.fails(14, "rebase", "--onto", onto)
    resolve(k2, "thirty, mine\n")
    todo = "sed -i.bak -e '1s/^pick/reword/' -e '2s/^pick/fixup/'"
    env = {"GIT_SEQUENCE_EDITOR": todo, "GIT_EDITOR": "sed -i.bak 1s/two/reworded/"}
    git(k2, "rebase", "--interactive", "HEAD~2", env=env)
    assert f"k2mps export --onto {onto[:12]}\n" in sandbox.ok("status")
    result = sandbox.run("export", "--onto", onto)
    assert not result.returncode and LEFT_OUT not in result.stderr
    assert sandbox.order()[-2:] == ["one.patch", "reworded.patch"]


def test_a_signal_to_the_tool_alone_does_not_end_git(sandbox, k2):
    onto, output = interrupted(sandbox, k2, whole_group=False)
    assert f"next: k2mps export --onto {onto[:12]}, because git has ended" in output
    sandbox.ok("export", "--onto", onto)
    assert pin(sandbox)["commit"] == onto and sandbox.state() == "applied"

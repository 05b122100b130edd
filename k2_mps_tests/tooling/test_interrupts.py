"""Ctrl-C, termination and kill -9 at every stage of `k2mps apply`.

A program `git` in front of the real git sends the signal at a chosen git command of
the tool.  Between git commands a function of the tool sends the signal during its
own work.  The processes, the repositories and the signals are real.
"""

import os
import signal
import time

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import git, snapshot

# More than the git commands of one apply, as a test asserts.
COMMANDS = 20


def test_the_stages_below_are_all_of_them(sandbox, own):
    commands = support.git_commands(sandbox, "apply", "--k2", str(own))
    assert len(commands) < COMMANDS
    assert support.names(commands)[-1] == "symbolic-ref"


@pytest.mark.parametrize(
    "name, stage",
    [
        *(("INT", stage) for stage in range(1, COMMANDS)),
        *(("TERM", stage) for stage in range(1, COMMANDS, 4)),
    ],
)
def test_a_signal_leaves_everything_as_it_was(sandbox, own, tmp_path, name, stage):
    before = snapshot(own)
    env = support.shim(tmp_path / "bin", f"[ $count = {stage} ] && kill -{name} $PPID")
    result = sandbox.run("apply", "--k2", str(own), env=env)
    number = getattr(signal, f"SIG{name}")
    if result.returncode == 0:
        # The signal was for a command that this run did not reach, or came after
        # the last command.
        assert int((tmp_path / "bin/count").read_text()) <= stage
        assert sandbox.state(own) == "applied"
        return
    assert result.returncode == 128 + number
    assert "interrupted" in result.stderr
    if git(own, "symbolic-ref", "HEAD") == "refs/heads/k2-mps":
        # The signal came with the last step, which was complete.
        assert sandbox.state(own) == "applied"
    else:
        assert snapshot(own) == before
    sandbox.ok("apply", "--k2", str(own))
    assert sandbox.state(own) == "applied"


@pytest.mark.parametrize("stage", range(1, COMMANDS, 2))
def test_kill_9_is_mended_by_the_next_run(sandbox, own, tmp_path, stage):
    before = snapshot(own)
    env = support.shim(tmp_path / "bin", f"[ $count = {stage} ] && kill -KILL $PPID")
    result = sandbox.run("apply", "--k2", str(own), env=env)
    assert result.returncode in (0, -signal.SIGKILL)
    time.sleep(0.2)  # waits until the git command that killed its parent has ended
    state = sandbox.state(own)
    assert state in ("pristine", "applied")
    if state == "pristine":
        left = snapshot(own)
        names = left.pop("git directory")
        assert set(names) - {"k2mps-index"} == set(before.pop("git directory"))
        assert left == before
    sandbox.ok("apply", "--k2", str(own))
    assert sandbox.state(own) == "applied"
    # Only the note of the last series stays.
    assert [name for name in os.listdir(own / ".git") if "k2mps" in name] == ["k2mps-series"]


@pytest.mark.parametrize("method", ["replace", "remove"])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
@pytest.mark.parametrize("countdown", [1, 2, 5, 10])
def test_a_signal_amid_the_files(sandbox, own, method, name, countdown):
    if method == "remove" and countdown > 1:
        countdown = 1  # the series removes one file
    before = snapshot(own)
    result = sandbox.amid(method, countdown, name, "apply", "--k2", str(own))
    number = getattr(signal, name)
    if name == "SIGKILL":
        assert result.returncode == -number
        again = sandbox.run("status", "--k2", str(own))
        assert again.returncode == 0, again.stderr
        assert "have been undone" in again.stderr
        assert "pristine" in again.stdout
    else:
        assert result.returncode == 128 + number, result.stderr
    assert snapshot(own) == before


@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
@pytest.mark.parametrize(
    "method, countdown",
    [("remove", 1), ("remove", 2), ("remove", 3), ("replace", 1), ("replace", 2), ("replace", 3)],
)
def test_a_signal_amid_folders_and_files_that_change_places(exchanged, method, countdown, name):
    before = snapshot(exchanged.checkout)
    result = exchanged.amid(method, countdown, name, "apply")
    number = getattr(signal, name)
    if name == "SIGKILL":
        assert result.returncode == -number
        assert "have been undone" in exchanged.run("status").stderr
    else:
        assert result.returncode == 128 + number, result.stderr
    assert snapshot(exchanged.checkout) == before


def test_an_edit_made_after_kill_9_is_not_lost(sandbox, own):
    sandbox.amid("replace", 6, "SIGKILL", "apply", "--k2", str(own))
    (own / "k2/csrc/array.cu").write_text("my edit\n")
    assert "array.cu was edited" in sandbox.fails(1, "apply", "--k2", str(own))
    assert (own / "k2/csrc/array.cu").read_text() == "my edit\n"
    (own / "k2/csrc/array.cu").rename(own / "saved.txt")
    sandbox.ok("status", "--k2", str(own))
    assert sandbox.state(own) == "pristine"


def test_random_moments(sandbox, own):
    """Signals at random moments, independent of the tool's stages."""
    before = snapshot(own)
    counts = {"before": 0, "after": 0}
    for number in range(30):
        process = sandbox.start("apply", "--k2", str(own))
        time.sleep(0.02 + 0.012 * number)
        process.send_signal(signal.SIGINT)
        process.communicate()
        if git(own, "rev-parse", "--abbrev-ref", "HEAD") == "k2-mps":
            counts["after"] += 1
            assert sandbox.state(own) == "applied"
            git(own, "checkout", "--quiet", "master")
            git(own, "branch", "--quiet", "-D", "k2-mps")
            git(own, "update-ref", "-d", "refs/k2mps/base")
            before = snapshot(own)
        else:
            counts["before"] += 1
            assert snapshot(own) == before
    assert counts["before"] >= 5, counts


def test_an_interrupted_clone_leaves_nothing(sandbox, tmp_path):
    env = support.shim(
        tmp_path / "bin", f'case "$*" in *clone*) touch "{tmp_path}/here"; sleep 5;; esac'
    )
    process = sandbox.start("checkout", env=env)
    while not (tmp_path / "here").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    assert list((sandbox.root / "build").iterdir()) == []


def test_a_clone_that_was_killed_is_made_anew(sandbox, tmp_path):
    partial = sandbox.root / "build/k2.partial"
    support.write(partial, {"half": "x"})
    sandbox.ok("checkout")
    assert not partial.exists()


@pytest.mark.parametrize("after", ["lock", "status", "export"])
@pytest.mark.parametrize("method, countdown", [("replace", 2), ("replace", 4), ("remove", 2)])
@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
def test_a_signal_amid_export(sandbox, method, countdown, name, after):
    sandbox.ok("apply")
    k2 = sandbox.checkout
    git(k2, "reset", "--quiet", "--hard", "HEAD~1")
    support.commit(k2, "one more", {"k2/csrc/array.cu": "x\n", "n": "new\n"})
    before = support.patches(sandbox)
    result = sandbox.amid(method, countdown, name, "export", "--prune")
    number = getattr(signal, name)
    assert result.returncode in (-number, 128 + number), result.stderr
    if after != "export":
        # Any command repairs the state.
        if name == "SIGKILL":
            sandbox.ok(after)
        assert support.patches(sandbox) == before
        assert not (sandbox.root / ".k2mps").exists()
    sandbox.ok("export", "--prune")
    assert support.patches(sandbox) != before
    assert sandbox.state() == "applied"
    assert '"patches": "locked"' in sandbox.ok("status", "--json")


def test_a_second_ctrl_c_while_cleaning_up(sandbox, own, tmp_path):
    before = snapshot(own)
    env = support.shim(
        tmp_path / "bin", 'case "$*" in *read-tree*) kill -INT $PPID; kill -INT $PPID;; esac'
    )
    result = sandbox.run("apply", "--k2", str(own), env=env)
    assert result.returncode == 130
    assert snapshot(own) == before

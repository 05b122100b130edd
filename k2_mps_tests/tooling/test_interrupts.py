"""Ctrl-C, termination and kill -9 at every stage of the commands.

A program `git` in front of the real git sends the signal at a chosen git command of the tool.  The
processes, the repositories and the signals are real.
"""

import signal

import pytest
from k2mps.core import process

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import ARRAY, git, patches, snapshot


def commit(sandbox) -> None:
    support.commit(sandbox.checkout, "more", {"n": "new\n", "k2/csrc/array.cu": "x\n"})


def fold(sandbox) -> None:
    file = sandbox.checkout / "k2/csrc/context.h"
    file.write_text("first\n" + file.read_text())


# What the user did before, and the command.
COMMANDS = {
    "apply": (
        lambda sandbox: git(sandbox.checkout, "checkout", "--quiet", "--detach", sandbox.pin)
    ),
    "export": commit,
    f"fold {ARRAY}": fold,
    "new more": fold,
    f"drop {ARRAY}": lambda sandbox: None,
    "undo": lambda sandbox: sandbox.ok("drop", ARRAY),
}


def look(sandbox) -> tuple:
    """The state that a user could miss."""
    found = snapshot(sandbox.checkout, times=False)
    # A killed run leaves a worktree of its own in the git directory until the next one.
    del found["git directory"], found["refs"], found["worktrees"]
    return found, git(sandbox.checkout, "rev-parse", "HEAD"), patches(sandbox)


@pytest.mark.parametrize("name", ["INT", "TERM", "KILL"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_signal_at_any_stage(sandbox, k2, tmp_path, command, name):
    """Nothing has changed, or all has; a second run completes what was killed."""
    COMMANDS[command](sandbox)
    words = command.split(" ")
    before, after = look(sandbox), None
    count = len(support.git_commands(sandbox, *words))
    after = look(sandbox)
    assert after != before
    reached = set()
    # The stages of undo are those at which a kill once left patches/ without a state.
    step = 11 if name != "KILL" else 1 if command == "undo" else 7
    ended = tmp_path / "ended"
    signalled = f'kill -{name} $PPID; $real "$@"; status=$?; touch {ended}; exit $status'
    for stage in range(1, count + 1, step):
        sandbox.ok("undo")
        assert look(sandbox) == before
        ended.unlink(missing_ok=True)
        env = support.shim(tmp_path / "bin", f"[ $count = {stage} ] && {{ {signalled}; }}")
        result = sandbox.run(*words, env=env)
        number = getattr(signal, f"SIG{name}")
        assert result.returncode in (0, -number if name == "KILL" else 128 + number)
        if name == "KILL":
            if result.returncode:  # a later run may have fewer stages than the first one
                support.wait_for(ended)  # git ends by itself
            sandbox.ok("status")
        found = look(sandbox)
        assert found in (before, after), stage
        reached.add(found == after)
        if found == before:
            sandbox.ok(*words)
            assert look(sandbox) == after, stage
    assert False in reached


def test_a_process_ends_with_its_children(tmp_path):
    """A script that is git on the PATH ends at once, and git when it has removed its lock."""
    here, ended = tmp_path / "here", tmp_path / "ended"
    slow = (
        f"trap 'sleep 0.5; touch \"{ended}\"; exit' TERM; touch '{here}';"
        " while :; do sleep 0.01; done"
    )
    script = ["sh", "-c", 'sh -c "$1"; exit $?', "sh", slow]
    with pytest.raises(KeyError), process.started(script, start_new_session=True):
        support.wait_for(here)
        raise KeyError
    assert ended.exists()


@pytest.mark.parametrize("added", ["--all", "--update"])
def test_the_lock_of_a_killed_run_is_in_nobodys_way(sandbox, k2, tmp_path, added):
    """git is killed, too, while it writes an index of the tool's."""
    fold(sandbox)
    spoil = 'touch "$GIT_INDEX_FILE.lock"; kill -9 $PPID; exit 1'
    env = support.shim(tmp_path / "bin", f'case "$*" in *" add {added}"*) {spoil};; esac')
    assert sandbox.run("new", "more", env=env).returncode == -signal.SIGKILL
    sandbox.ok("new", "more")


@pytest.mark.parametrize("mine", [False, True])
def test_a_kill_amid_the_files_is_undone(sandbox, tmp_path, mine):
    """git and the tool are killed when some files have been written, one of them in part."""
    sandbox.ok("checkout")
    k2 = sandbox.checkout
    before = snapshot(k2)
    spoil = (
        f"cd '{k2}'; mkdir -p cmake k2/csrc/mps; printf 'option(K2_WITH_MPS)\\n' > cmake/mps.cmake;"
        " rm k2/csrc/old.cu; printf '// Met' > k2/csrc/mps/context.mm; kill -9 $PPID; exit 1"
    )
    env = support.shim(tmp_path / "bin", f'case "$*" in *"checkout --quiet"*) {spoil};; esac')
    assert sandbox.run("apply", env=env).returncode == -signal.SIGKILL
    if mine:
        (k2 / "k2/csrc/array.cu").write_text("my edit\n")
        (k2 / "cmake/mps.cmake").write_text("mine\n")
    result = sandbox.run("status")
    assert "have been undone" in result.stderr
    if mine:
        assert (k2 / "k2/csrc/array.cu").read_text() == "my edit\n"
        assert (k2 / "cmake/mps.cmake").read_text() == "mine\n"
        assert (k2 / "k2/csrc/old.cu").exists()
        git(k2, "checkout", "--quiet", ".")
        (k2 / "cmake/mps.cmake").unlink()
        (k2 / "cmake").rmdir()
    found = snapshot(k2, times=False)
    assert found["files"].keys() == before["files"].keys()
    assert found["status"] == before["status"] == ""
    sandbox.ok("apply")
    assert sandbox.state() == "applied"


def test_an_interrupted_clone_leaves_nothing(sandbox, tmp_path):
    env = support.shim(
        tmp_path / "bin", f'case "$*" in *clone*) touch "{tmp_path}/here"; sleep 5;; esac'
    )
    process = sandbox.start("checkout", env=env)
    support.wait_for(tmp_path / "here")
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    assert list((sandbox.root / "build").iterdir()) == []


def test_a_clone_that_was_killed_is_made_anew(sandbox):
    partial = sandbox.root / "build/k2.partial"
    support.write(partial, {"half": "x"})
    sandbox.ok("checkout")
    assert not partial.exists()

"""kill -9 at random moments leaves the state before or the state after.

`--kill-rounds N` sets the number of killed processes.  The moments are random over the whole time
of a command.  A killed process cannot clean up, so the test looks at the state after a further
command, which repairs.
"""

import random
import shutil
import subprocess
import time

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import ARRAY
from k2_mps_tests.tooling.test_interrupts import COMMANDS, look

# A rebase has a worktree of its own; the second one stops at a conflict.
OTHERS = dict.fromkeys(("rebase --onto {fine}", "rebase --onto {onto}"), lambda sandbox: None)


def killed_after(sandbox, words, seconds) -> bool:
    """Runs the command and kills it; returns whether it was still running."""
    process = sandbox.start(*words)
    try:
        process.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        process.kill()
        return True
    finally:
        process.communicate()


@pytest.mark.parametrize("command", [*COMMANDS, *OTHERS])
def test_kill_at_a_random_moment(sandbox, k2, request, command):
    lines = support.LONG_FILE.replace("line 50\n", "line 50, better\n")
    fine = support.commit(sandbox.upstream, "More", {"k2/csrc/new.cu": "new\n"})
    onto = support.commit(sandbox.upstream, "Better", {"k2/csrc/context.h": lines})
    {**COMMANDS, **OTHERS}[command](sandbox)
    words = command.format(fine=fine, onto=onto).split(" ")
    copy = sandbox.root.with_name("copy")
    shutil.copytree(sandbox.root, copy, symlinks=True)
    begin = time.monotonic()
    sandbox.start(*words).communicate()
    seconds = time.monotonic() - begin
    after = settled(sandbox)
    moments = random.Random(1)
    for _ in range(1 + request.config.getoption("--kill-rounds") // len(COMMANDS)):
        shutil.rmtree(sandbox.root)
        shutil.copytree(copy, sandbox.root, symlinks=True)
        before = look(sandbox)
        killed = killed_after(sandbox, words, moments.uniform(0.05, seconds))
        assert settled(sandbox) in (before, after), killed


@pytest.mark.parametrize(("command", "slow"), [("apply", "checkout"), (f"fold {ARRAY}", "reset")])
def test_git_of_a_killed_run_ends_before_the_next_run(sandbox, k2, tmp_path, command, slow):
    """A git that goes on after the repair would leave a branch that patches/ does not know."""
    COMMANDS[command](sandbox)
    inside, words = tmp_path / "inside", command.split(" ")
    script = f'case "$*" in *" {slow} "*) touch "{inside}"; sleep 0.5;; esac'
    process = sandbox.start(*words, env=support.shim(tmp_path / "bin", script))
    support.wait_for(inside)
    process.kill()
    assert f"`k2mps {command}`, which is complete now" in sandbox.run("status").stderr
    assert sandbox.state() == "applied"


def settled(sandbox) -> tuple:
    """The state after the command that a user runs next."""
    sandbox.ok("status")
    if (sandbox.root / "build/rebase").exists():
        sandbox.ok("rebase", "--abort")
    return look(sandbox)

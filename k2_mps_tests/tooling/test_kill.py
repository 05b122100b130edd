"""kill -9 at random moments leaves the state before or the state after.

`--kill-rounds N` sets the number of killed processes.  The moments are random over
the whole time of a command.  A killed process cannot clean up, so the test looks at
the state after a further command, which repairs.
"""

import collections
import random
import shutil
import subprocess
import time

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import LONG_FILE, git, patches, snapshot

OTHERS_WORK = {"k2/csrc/new.cu": "new\n", "k2/csrc/context.h": "a line before\n" + LONG_FILE}
# Files of the tool, and files that git leaves after a fetch or a removed worktree.
OWN = ("k2mps-work", "k2mps-edits", "rr-cache-k2mps-before")


class Stage:
    """A project and a checkout that can be restored to their first state."""

    def __init__(self, sandbox, command):
        self.sandbox = sandbox
        self.checkout = sandbox.clone("own")
        self.command = [*command, "--k2", str(self.checkout)]
        self._copies = sandbox.root.parent / "copies"

        self._parts = (self.checkout, sandbox.root / "patches", sandbox.root / "upstream.toml")

    def save(self):
        self._copies.mkdir()
        for part in self._parts:
            _copy(part, self._copies / part.name)

    def restore(self):
        for name in ("build", ".k2mps"):
            shutil.rmtree(self.sandbox.root / name, ignore_errors=True)
        for part in self._parts:
            if part.is_dir():
                shutil.rmtree(part)
            _copy(self._copies / part.name, part)

    def look(self):
        """The state that a user could miss."""
        found = snapshot(self.checkout, times=False)
        del found["worktrees"]
        found["git directory"] = [name for name in found["git directory"] if name not in OWN]
        return found, patches(self.sandbox)

    def killed_after(self, seconds):
        """Runs the command and kills it; returns whether it was still running."""
        process = self.sandbox.start(*self.command)
        try:
            process.wait(seconds)
            return False
        except subprocess.TimeoutExpired:
            process.kill()
            return True
        finally:
            process.communicate()
            # A git command of the killed tool ends by itself.
            time.sleep(0.15)

    def mend(self):
        """Runs the user's next command; returns whether the command undid something."""
        result = self.sandbox.run("status", "--k2", str(self.checkout))
        assert result.returncode == 0, result.stderr
        if (self.sandbox.root / "build/rebase").exists():
            self.sandbox.ok("rebase", "--abort", "--k2", str(self.checkout))
        return "have been undone" in result.stderr


def _copy(source, target):
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy(source, target)


def stage(sandbox, name) -> Stage:
    if name == "apply":
        return Stage(sandbox, ["apply"])
    if name == "export":
        made = Stage(sandbox, ["export", "--prune"])
        sandbox.ok("apply", "--k2", str(made.checkout))
        git(made.checkout, "rm", "--quiet", "k2/python/k2/mps/tool")
        git(made.checkout, "commit", "--quiet", "--amend", "--no-edit")
        support.commit(made.checkout, "more", {"n": "new\n", "k2/csrc/array.cu": "x\n"})
        return made
    onto = support.commit(sandbox.upstream, "Others' work", OTHERS_WORK)
    return Stage(sandbox, ["rebase", "--onto", onto])


@pytest.mark.parametrize("name", ["apply", "export", "rebase"])
def test_kill_9_at_random_moments(sandbox, name, pytestconfig, capsys):
    rounds = pytestconfig.getoption("--kill-rounds", 15) // 3
    seed = pytestconfig.getoption("--kill-seed", "1")
    chance = random.Random(f"{name} {seed}")
    made = stage(sandbox, name)
    made.save()
    made.restore()
    before = made.look()
    started = time.monotonic()
    sandbox.ok(*made.command)
    duration = time.monotonic() - started
    after = made.look()
    assert after != before
    counts: collections.Counter = collections.Counter()
    for number in range(rounds):
        made.restore()
        if not made.killed_after(chance.uniform(0.0, duration)):
            counts["ended by itself"] += 1
        counts["undone by the next command"] += made.mend()
        found = made.look()
        assert found in (before, after), (name, seed, number)
        counts["before" if found == before else "after"] += 1
        if found == before:
            sandbox.ok(*made.command)
            assert made.look() == after, (name, seed, number)
    with capsys.disabled():
        print(f"\n{name}: {rounds} rounds, {dict(counts)}")
    assert counts["before"] + counts["after"] == rounds

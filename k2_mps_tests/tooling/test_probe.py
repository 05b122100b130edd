"""`k2mps probe` finds the first upstream commit that breaks each patch.

The tests make upstream histories for which the answer is known.
"""

import json

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import ARRAY, CONTEXT, LONG_FILE, MPS, NEW, git, patches, snapshot

BETTER = LONG_FILE.replace("line 50\n", "line 50, better\n")
NINETY = LONG_FILE.replace("line 90\n", "line ninety\n")
TAKEN = LONG_FILE.replace("line 50\n", "line fifty\nand a half\n")


def history(sandbox, breaking: dict[int, dict[str, str]]) -> list[str]:
    """Makes twenty upstream commits; returns the ids of the pin and of these commits.

    Args:
      breaking: {number of a commit, from 1: the files that the commit also writes}.
    """
    made = [sandbox.pin]
    for number in range(1, 21):
        files = {"docs/log.md": f"{number}\n", **breaking.get(number, {})}
        made.append(support.commit(sandbox.upstream, f"Commit {number}", files))
    return made


def probe(sandbox, *args) -> dict:
    found = json.loads(sandbox.ok("probe", "--json", *args))
    found["patches"] = {one["name"]: one["broken"] for one in found["patches"]}
    return found


@pytest.mark.parametrize(
    "breaking, steps",
    [
        # A patch that edits other lines of the same file is not broken.
        *(({number: {CONTEXT: BETTER}}, {MPS: number}) for number in (1, 2, 10, 19, 20)),
        # A patch is not broken if its lines only move.
        ({5: {CONTEXT: "first\n" + LONG_FILE.replace("line 70\n", "line seventy\n")}}, {}),
        (
            {
                4: {CONTEXT: NINETY},
                8: {CONTEXT: NINETY.replace("line 50\n", "line 50, better\n")},
                12: {"k2/python/k2/mps/tool": "upstream's\n"},
            },
            {ARRAY: 4, MPS: 8, NEW: 12},
        ),
        # Commit 5 makes the same change as the patch, which is no conflict.  Commit 9 changes the
        # next line, which is a conflict.
        (
            {5: {CONTEXT: TAKEN}, 9: {CONTEXT: TAKEN.replace("line 51\n", "line 51, new\n")}},
            {MPS: 9},
        ),
    ],
)
def test_the_probe_finds_the_commit_that_breaks_each_patch(sandbox, breaking, steps):
    made = history(sandbox, breaking)
    found = probe(sandbox)
    assert found["steps"] == 20 and found["end"]["id"] == made[-1]
    broken = {name: one for name, one in found["patches"].items() if one}
    assert {name: one["step"] for name, one in broken.items()} == steps
    for name, one in broken.items():
        facts = {"author": "A Contributor", "date": "2023-11-14"}
        number = steps[name]
        assert one["commit"] == {"id": made[number], "subject": f"Commit {number}", **facts}
        assert one["paths"] == ["k2/python/k2/mps/tool" if name == NEW else CONTEXT]
    assert found["carries_to"] == made[min(steps.values(), default=21) - 1]


@pytest.fixture
def probed(sandbox):
    """The sandbox, and the ids of upstream's commits; commit 3 breaks a patch."""
    sandbox.ok("apply")
    return sandbox, history(sandbox, {3: {CONTEXT: BETTER}})


def test_a_probe_changes_nothing(probed):
    sandbox, _ = probed
    before = snapshot(sandbox.checkout), patches(sandbox)
    sandbox.ok("probe")
    assert (snapshot(sandbox.checkout), patches(sandbox)) == before


def test_the_table_names_the_commit_that_breaks_a_patch(probed):
    sandbox, made = probed
    out = sandbox.ok("probe").splitlines()
    told = f"{made[3][:12]} 2023-11-14 A Contributor: Commit 3"
    assert f"{MPS}\t3\t{told}\tconflicts in {CONTEXT}" in out
    assert "  2 of 3 patches apply all the way" in out
    assert f"  all patches apply to {made[2][:12]}" in out


def test_a_probe_can_end_at_a_tag(probed):
    sandbox, made = probed
    git(sandbox.upstream, "tag", "v2", made[2])
    assert probe(sandbox, "v2")["patches"][MPS] is None


def test_a_probe_cannot_end_before_the_pin(probed):
    sandbox, _ = probed
    assert "is not after the pin" in sandbox.fails(1, "probe", f"{sandbox.pin}~1")


def test_a_probe_cannot_end_at_a_branch_of_the_checkout(probed):
    sandbox, _ = probed
    git(sandbox.checkout, "branch", "only-here")
    assert "has no commit only-here" in sandbox.fails(1, "probe", "only-here")


def test_a_renamed_file_is_followed(sandbox):
    """git also follows the renaming when the probe applies the patch to later commits."""
    made = history(sandbox, {})
    git(sandbox.upstream, "mv", CONTEXT, "k2/csrc/ctx.h")
    support.commit(sandbox.upstream, "Rename", {})
    support.commit(sandbox.upstream, "Else", {"else": "1\n"})
    last = support.commit(sandbox.upstream, "Better", {"k2/csrc/ctx.h": BETTER})
    broken = probe(sandbox)["patches"][MPS]
    assert broken["commit"]["id"] == last
    assert broken["step"] == len(made) - 1 + 3

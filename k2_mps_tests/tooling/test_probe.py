"""`k2mps probe`: the first upstream commit that breaks each patch.

The tests make histories with a known answer.
"""

import json

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import LONG_FILE, git, patches, snapshot

CONTEXT = "k2/csrc/context.h"
ARRAY = "array-a-mode-and-line-ends.patch"
MPS = "context-know-mps.patch"


def history(sandbox, breaking: dict[int, dict[str, str]]) -> list[str]:
    """Twenty upstream commits, some of which write given files."""
    made = [sandbox.pin]
    for number in range(1, 21):
        files = {"docs/log.md": f"{number}\n", **breaking.get(number, {})}
        made.append(support.commit(sandbox.upstream, f"Commit {number}", files))
    return made


def probe(sandbox, *args) -> dict:
    found = json.loads(sandbox.ok("probe", "--json", *args))
    found["patches"] = {one["name"]: one for one in found["patches"]}
    return found


@pytest.mark.parametrize("number", [1, 2, 10, 19, 20])
def test_the_commit_that_breaks_a_patch(sandbox, number):
    lines = LONG_FILE.replace("line 50\n", "line 50, better\n")
    made = history(sandbox, {number: {CONTEXT: lines}})
    found = probe(sandbox)
    assert found["steps"] == 20 and found["forward"]
    assert found["end"]["id"] == made[-1]
    broken = found["patches"][MPS]["broken"]
    assert broken["step"] == number
    assert broken["commit"] == {
        "id": made[number],
        "author": "A Contributor",
        "date": "2023-11-14",
        "subject": f"Commit {number}",
    }
    (place,) = broken["places"]
    assert place["path"] == CONTEXT
    assert [one["id"] for one in place["commits"]] == [made[number]]
    # A patch that edits other lines of the same file is not broken.
    assert found["patches"][ARRAY]["broken"] is None


def test_nothing_is_broken(sandbox):
    lines = "first\n" + LONG_FILE.replace("line 70\n", "line seventy\n")
    history(sandbox, {5: {CONTEXT: lines}})
    found = probe(sandbox)
    assert all(one["broken"] is None for one in found["patches"].values())
    out = sandbox.ok("probe")
    assert "3 of 3 patches apply all the way" in out


def test_backwards(sandbox):
    """A history that undoes the commit which a patch needs."""
    earlier = git(sandbox.upstream, "rev-parse", "HEAD~1")
    found = probe(sandbox, f"..{earlier}")
    assert found["forward"] is False and found["steps"] == 1
    broken = found["patches"][MPS]["broken"]
    assert broken["commit"]["id"] == sandbox.pin
    assert broken["step"] == 1
    assert CONTEXT in [place["path"] for place in broken["places"]]
    assert found["patches"]["python-add-only-new-files.patch"]["broken"] is None


def test_each_patch_has_its_own(sandbox):
    first = LONG_FILE.replace("line 90\n", "line ninety\n")
    second = first.replace("line 50\n", "line 50, better\n")
    made = history(
        sandbox,
        {4: {CONTEXT: first}, 8: {CONTEXT: second}, 12: {"k2/python/k2/mps/tool": "upstream's\n"}},
    )
    found = probe(sandbox)["patches"]
    assert {name: made.index(one["broken"]["commit"]["id"]) for name, one in found.items()} == {
        ARRAY: 4,
        MPS: 8,
        "python-add-only-new-files.patch": 12,
    }


def test_all_commits_that_touched_the_lines(sandbox):
    """The lines may move up and down in between."""
    first = LONG_FILE.replace("line 50\n", "line 50, better\n")
    made = history(
        sandbox,
        {
            3: {CONTEXT: "a\nb\nc\n" + LONG_FILE},
            6: {CONTEXT: "a\nb\nc\n" + first},
            9: {CONTEXT: first.replace("line 3\n", "")},
            12: {CONTEXT: first.replace("line 3\n", "").replace("better", "best")},
            15: {
                CONTEXT: first.replace("line 3\n", "")
                .replace("better", "best")
                .replace("line 80\n", "80\n")
            },
        },
    )
    assert probe(sandbox)["patches"][MPS]["broken"]["step"] == 6
    message = sandbox.fails(14, "rebase", "--onto", made[-1])
    touched = [line.split()[2] for line in message.splitlines() if "  touched by " in line]
    assert touched == [made[6][:12], made[12][:12]]


def test_a_patch_that_builds_on_another(sandbox):
    sandbox.ok("apply")
    k2 = sandbox.checkout
    text = (k2 / CONTEXT).read_text()
    support.commit(k2, "more", {CONTEXT: text.replace("and a half", "and b")})
    sandbox.ok("export")
    lines = LONG_FILE.replace("line 50\n", "line 50, better\n")
    made = history(sandbox, {7: {CONTEXT: lines}})
    found = probe(sandbox)["patches"]["more.patch"]
    assert found["builds_on"] == [MPS]
    assert found["broken"]["because_of"] == MPS
    assert found["broken"]["commit"]["id"] == made[7]


def test_what_upstream_has_taken(sandbox):
    lines = LONG_FILE.replace("line 50\n", "line fifty\nand a half\n")
    other = lines.replace("line 51\n", "line 51, new\n")
    history(sandbox, {5: {CONTEXT: lines}, 9: {CONTEXT: other}})
    found = probe(sandbox)["patches"][MPS]
    # The same change on both sides is no conflict; a change next to it is.
    assert found["broken"]["step"] == 9


def test_from_a_commit_that_it_is_broken_at(sandbox):
    lines = LONG_FILE.replace("line 50\n", "line 50, better\n")
    made = history(sandbox, {3: {CONTEXT: lines}})
    sandbox.ok("report")  # fetches
    sandbox.ok("checkout")
    git(sandbox.checkout, "fetch", "--quiet", "origin")
    found = probe(sandbox, f"{made[5]}..{made[9]}")
    assert found["steps"] == 4
    assert found["patches"][MPS]["broken"]["step"] == 0


def test_it_changes_nothing(sandbox):
    sandbox.ok("apply")
    lines = LONG_FILE.replace("line 50\n", "line 50, better\n")
    history(sandbox, {3: {CONTEXT: lines}})
    sandbox.ok("report")
    before = snapshot(sandbox.checkout), patches(sandbox)
    probe(sandbox)
    assert (snapshot(sandbox.checkout), patches(sandbox)) == before


def test_the_text_tells_the_commit_and_the_file(sandbox):
    lines = LONG_FILE.replace("line 50\n", "line 50, better\n")
    made = history(sandbox, {3: {CONTEXT: lines}})
    out = sandbox.ok("probe").splitlines()
    told = f"{made[3][:12]} 2023-11-14 A Contributor: Commit 3"
    assert f"{MPS}\t3\t{told}\tconflicts in {CONTEXT}" in out
    assert f"{MPS} at {made[3][:12]}" in out
    assert f"    touched by {told}" in out


@pytest.mark.parametrize("commits, missing", [("..abcdef", "abcdef"), ("x..HEAD", "x")])
def test_commits_that_do_not_exist(sandbox, commits, missing):
    sandbox.ok("apply")
    assert f"has no commit {missing}\n" in sandbox.fails(1, "probe", commits)


def test_commits_that_are_on_no_line(sandbox):
    sandbox.ok("apply")
    git(sandbox.checkout, "checkout", "--quiet", "--orphan", "other")
    git(sandbox.checkout, "commit", "--quiet", "-m", "other")
    assert "ancestor of the other" in sandbox.fails(1, "probe", "..other")


def test_a_renamed_file_is_followed(sandbox):
    """git too follows the renaming, in the check of later commits."""
    made = history(sandbox, {})
    git(sandbox.upstream, "mv", CONTEXT, "k2/csrc/ctx.h")
    git(sandbox.upstream, "commit", "--quiet", "-m", "Rename")
    support.commit(sandbox.upstream, "Else", {"else": "1\n"})
    last = support.commit(
        sandbox.upstream,
        "Better",
        {"k2/csrc/ctx.h": LONG_FILE.replace("line 50\n", "line 50, better\n")},
    )
    broken = probe(sandbox)["patches"][MPS]["broken"]
    assert broken["commit"]["id"] == last
    assert broken["step"] == len(made) - 1 + 3

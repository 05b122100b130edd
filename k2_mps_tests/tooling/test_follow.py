"""`ci/follow.py` carries the series as far as the patches allow, and reports what stops it."""

import json
import runpy
import shutil
import sys

import pytest
from k2mps.core import errors

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import LONG_FILE

CONTEXT = "k2/csrc/context.h"
BETTER = {CONTEXT: LONG_FILE.replace("line 50\n", "line 50, better\n")}
OTHER = {"docs/other": "x\n"}


def follow(sandbox) -> tuple[int, str]:
    """Runs ci/follow.py in the sandbox; returns its exit status, and the text of its report."""
    program = sandbox.root / ".venv/bin/k2mps"
    support.write(sandbox.root, {".venv/bin/k2mps": f'#!/bin/sh\n{sys.executable} -m k2mps "$@"\n'})
    program.chmod(0o755)
    (sandbox.root / "ci").mkdir()
    shutil.copy(support.TOOLS.parent / "ci/follow.py", sandbox.root / "ci")
    status = sandbox.program(sys.executable, "ci/follow.py").returncode
    text = sandbox.root / "build/follow.md"
    return status, text.read_text() if text.exists() else ""


def test_without_new_commits_the_report_is_one_line(sandbox):
    status, text = follow(sandbox)
    assert (status, text) == (0, "Upstream's default branch is 0 commits after the pin.\n")


def upstream_moves(sandbox, before):
    """Adds `before` good commits to upstream, then one that breaks a patch, then one more.

    Returns:
      The ids of the good commits, the id of the bad commit and the id of the last commit.
    """
    good = [
        support.commit(sandbox.upstream, f"Good {n}", {f"docs/{n}": "x\n"}) for n in range(before)
    ]
    bad = support.commit(sandbox.upstream, "@user `Better", BETTER)
    return good, bad, support.commit(sandbox.upstream, "Else", OTHER)


@pytest.mark.parametrize(
    ("name", "error"), [("FINDINGS", errors.CheckFailedError), ("CONFLICT", errors.ConflictError)]
)
def test_the_exit_codes_are_those_of_the_tool(name, error):
    program = runpy.run_path(str(support.TOOLS.parent / "ci/follow.py"))
    assert program[name] == error.exit_code


@pytest.mark.parametrize("before", [0, 2])
def test_the_culprit_is_named(sandbox, before):
    _, bad, last = upstream_moves(sandbox, before)
    status, text = follow(sandbox)
    assert status == 34
    assert f"is {before + 2} commits after the pin" in text
    # The report quotes upstream's text as code, because GitHub notifies no user named in code.
    assert f"\n    context-know-mps.patch: {CONTEXT}\n      since {bad} 2023-11-14" in text
    assert "A Contributor: @user `Better\n" in text
    assert f"`k2mps rebase --onto {last}`" in text


def test_if_no_commit_is_good_nothing_is_rebased(sandbox):
    upstream_moves(sandbox, 0)
    patches = support.patches(sandbox)
    _, text = follow(sandbox)
    assert support.patches(sandbox) == patches and "passed" not in text


def test_the_commit_before_the_culprit_is_tried(sandbox):
    good, _, _ = upstream_moves(sandbox, 2)
    _, text = follow(sandbox)
    assert f"All patches apply to {good[-1]}. There:" in text
    assert f"* `k2mps rebase --onto {good[-1]}`: passed" in text
    # lint refuses a file of the sample series, and ci/follow.py then builds nothing.
    assert "* `k2mps lint`: failed\n\n    patches/files/k2/python/k2/mps/blob.bin" in text
    assert good[-1] in (sandbox.root / "upstream.toml").read_text() and "k2mps build" not in text


def test_the_probe_finds_a_patch_whose_lines_upstream_has(sandbox):
    """Upstream's commit also adds a line next to the patch's lines, so git finds a conflict."""
    more = LONG_FILE.replace("line 50\n", "line fifty\n  and a half\nand more\n")
    support.commit(sandbox.upstream, "As the patch", {CONTEXT: more})
    [broken] = broken_patches(sandbox)
    assert (broken["name"], broken["broken"]["upstream_has"]) == ("context-know-mps.patch", True)
    assert "; upstream has its lines" in sandbox.ok("probe")
    support.commit(sandbox.upstream, "Half of it", {CONTEXT: more.replace("  and a half\n", "")})
    [broken] = broken_patches(sandbox)
    assert broken["broken"]["upstream_has"] is False


def test_a_patch_whose_lines_upstream_has_is_dropped(sandbox):
    more = LONG_FILE.replace("line 50\n", "line fifty\n  and a half\nand more\n")
    end = support.commit(sandbox.upstream, "As the patch", {CONTEXT: more})
    _, text = follow(sandbox)
    assert f"The others apply to {end}. There:" in text
    assert "* context-know-mps.patch is dropped: upstream has its lines" in text
    assert f"* `k2mps rebase --onto {end}`: passed" in text
    assert sandbox.order()[0] == "array-a-mode-and-line-ends.patch"
    assert end in (sandbox.root / "upstream.toml").read_text()


def broken_patches(sandbox) -> list[dict]:
    found = json.loads(sandbox.ok("probe", "--json"))
    return [one for one in found["patches"] if one["broken"]]


STAND_IN = """\
case "$*" in
  "probe --json") cat probe.json ;;
  "rebase --onto end") echo "error: patch 1 of 2, patches/one.patch, conflicts with end"; exit 14 ;;
  "rebase --continue --drop one.patch")
    echo "error: patch 2 of 2, patches/two.patch, changes nothing in build/rebase"; exit 14 ;;
  "rebase --continue --drop two.patch") echo "dropped two.patch" ;;
  *) echo "$*" >> ran ;;
esac
"""


def test_superseded_patches_are_dropped_before_the_build(tmp_path):
    """A stand-in for the tool stops at each patch until `--drop` names the patch."""
    commit = {"id": "end", "date": "", "author": "", "subject": ""}
    broken = {"commit": commit, "paths": ["a"], "step": 1, "upstream_has": True}
    probed = {
        "start": {"id": "start"},
        "end": {"id": "end"},
        "steps": 1,
        "carries_to": "start",
        "patches": [{"name": "one.patch", "broken": broken}, {"name": "two.patch", "broken": None}],
    }
    tool = {".venv/bin/k2mps": f"#!/bin/sh\n{STAND_IN}", "probe.json": json.dumps(probed)}
    support.write(tmp_path, tool)
    (tmp_path / ".venv/bin/k2mps").chmod(0o755)
    (tmp_path / "ci").mkdir()
    shutil.copy(support.TOOLS.parent / "ci/follow.py", tmp_path / "ci")
    assert support.ran(sys.executable, "ci/follow.py", cwd=tmp_path).returncode == 0
    assert (tmp_path / "ran").read_text() == "lint\nbuild\ntest upstream-cpu parity k2_mac\n"
    text = (tmp_path / "build/follow.md").read_text()
    assert "* one.patch is dropped: upstream has its lines\n* two.patch is dropped" in text


def test_without_upstream_there_is_no_report(sandbox):
    sandbox.obtain()
    shutil.rmtree(sandbox.upstream)
    assert follow(sandbox) == (20, "")

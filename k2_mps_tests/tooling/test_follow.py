"""`ci/follow.py` rebases the series onto upstream's newest commit, or reports what stops it."""

import runpy
import shutil
import sys

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.sandbox import CONTEXT, LONG_FILE, MPS, NEW
from k2_mps_tests.tooling.series_files import patches

BETTER = {CONTEXT: LONG_FILE.replace("line 50\n", "line 50, better\n")}
OTHER = {"docs/other": "x\n"}


def follow(sandbox) -> tuple[int, str]:
    """Runs ci/follow.py in the sandbox; returns its exit status, and the text of its report."""
    program = sandbox.root / ".venv/bin/k2mps"
    support.write(sandbox.root, {".venv/bin/k2mps": f'#!/bin/sh\n{sys.executable} -m k2mps "$@"\n'})
    program.chmod(0o755)
    (sandbox.root / "ci").mkdir()
    shutil.copy(support.TOOLS.parent / "ci/follow.py", sandbox.root / "ci")
    # git has no identity.
    sandbox.config.write_text("[user]\n\tuseConfigOnly = true\n")
    status = sandbox.program(sys.executable, "ci/follow.py").returncode
    text = sandbox.root / "build/follow.md"
    return status, text.read_text() if text.exists() else ""


def test_without_new_commits_the_report_is_one_line(sandbox):
    status, text = follow(sandbox)
    assert (status, text) == (0, "Upstream's default branch is 0 commits after the pin.\n")


def test_a_series_that_does_not_apply_has_no_report(sandbox):
    support.edit(sandbox.root / "patches" / MPS, "\n line 49\n", "\n line forty-nine\n")
    assert follow(sandbox) == (14, "")


def imported(root) -> dict:
    """Returns the functions of ci/follow.py, which is copied into a clone of k2-mps."""
    support.write(root, {"ci/x": ""})
    shutil.copy(support.TOOLS.parent / "ci/follow.py", root / "ci")
    return runpy.run_path(str(root / "ci/follow.py"))


@pytest.mark.parametrize("count", [None, "", "1"])
def test_the_settings_that_git_has_stay_beside_the_name_of_nobody(tmp_path, monkeypatch, count):
    monkeypatch.delenv("GIT_CONFIG_COUNT", raising=False)
    if count is not None:
        monkeypatch.setenv("GIT_CONFIG_COUNT", count)
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "alias.mine")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "log")
    git = imported(tmp_path)["git"]
    assert git(tmp_path, "config", "user.name").stdout == "follow\n"
    assert git(tmp_path, "config", "user.email").stdout == "follow@k2-mps.invalid\n"
    assert git(tmp_path, "config", "alias.mine").stdout == ("log\n" if count else "")


@pytest.mark.parametrize("failing", ["test", "no step"])
def test_the_report_has_the_last_lines_of_the_first_step_that_fails(tmp_path, capsys, failing):
    script = f'#!/bin/sh\nseq 99\ncase "$1" in {failing.split()[0]}) exit 3;; esac\n'
    support.write(tmp_path, {".venv/bin/k2mps": script})
    (tmp_path / ".venv/bin/k2mps").chmod(0o755)
    passed, lines = imported(tmp_path)["carry"]("abc")
    steps = ["rebase --onto abc", "lint", "build", "test upstream-cpu parity k2_mac"]
    if failing == "test":
        last = [f"* `k2mps {steps.pop()}`: failed", "", *(f"    {n}" for n in range(60, 100)), ""]
    else:
        last = []
    assert (passed, lines) == (not last, [*(f"* `k2mps {step}`: passed" for step in steps), *last])


def test_each_conflict_and_the_commits_that_touched_its_files_are_named(sandbox):
    """Two patches conflict; the second conflict is found although the first patch is skipped."""
    support.commit(sandbox.upstream, "Beside", OTHER)
    bad = support.commit(sandbox.upstream, "@user `Better", BETTER)
    tool = "k2/python/k2/mps/tool"
    last = support.commit(sandbox.upstream, "Tool", {tool: "upstream's\n"})
    before = patches(sandbox)
    status, text = follow(sandbox)
    assert status == 34
    assert "is 3 commits after the pin" in text
    # The report quotes upstream's text as code, because GitHub notifies no user named in code.
    assert f"\n    {MPS}: conflicts in {CONTEXT}\n      touched by {bad} 2023-11-14" in text
    assert "A Contributor: @user `Better\n" in text
    assert f"\n    {NEW}: conflicts in {tool}\n      touched by {last} " in text
    assert text.count("touched by") == 2 and f"`k2mps rebase --onto {last}`" in text
    assert patches(sandbox) == before


def test_without_a_conflict_the_series_is_rebased_and_tried(sandbox):
    end = support.commit(sandbox.upstream, "Beside", OTHER)
    status, text = follow(sandbox)
    assert f"* `k2mps rebase --onto {end}`: passed" in text
    # lint refuses a file of the sample series, and ci/follow.py then builds nothing.
    assert "* `k2mps lint`: failed\n\n    patches/files/k2/python/k2/mps/blob.bin" in text
    assert end in (sandbox.root / "upstream.toml").read_text()
    assert status == 34 and "k2mps build" not in text


def test_a_patch_whose_changes_upstream_has_is_dropped(sandbox):
    tool = "k2/python/k2/mps/"
    files = sandbox.root / "patches/files" / tool
    same = {f"{tool}{path.name}": path.read_text() for path in files.iterdir()}
    support.write(sandbox.upstream, same)
    (sandbox.upstream / tool / "tool").chmod(0o755)
    end = support.commit(sandbox.upstream, "As the patch", same)
    _, text = follow(sandbox)
    assert f"* patches/{NEW} is dropped: upstream has it\n" in text
    assert f"* `k2mps rebase --onto {end}`: passed" in text
    assert NEW not in sandbox.order() and len(sandbox.order()) == 2
    assert end in (sandbox.root / "upstream.toml").read_text()


def test_without_upstream_there_is_no_report(sandbox):
    sandbox.ok("apply")
    shutil.rmtree(sandbox.upstream)
    status, text = follow(sandbox)
    assert status == 1 and text == ""

"""`ci/follow.py` carries the series as far as it goes, and says what stops it."""

import shutil
import sys

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import LONG_FILE

CONTEXT = "k2/csrc/context.h"
BETTER = {CONTEXT: LONG_FILE.replace("line 50\n", "line 50, better\n")}
OTHER = {"docs/other": "x\n"}


def follow(sandbox) -> tuple[int, str]:
    """Runs the program in the sandbox; its exit status, and the text that it writes."""
    program = sandbox.root / ".venv/bin/k2mps"
    support.write(sandbox.root, {".venv/bin/k2mps": f'#!/bin/sh\n{sys.executable} -m k2mps "$@"\n'})
    program.chmod(0o755)
    (sandbox.root / "ci").mkdir()
    shutil.copy(support.TOOLS.parent / "ci/follow.py", sandbox.root / "ci")
    status = sandbox.program(sys.executable, "ci/follow.py").returncode
    text = sandbox.root / "build/follow.md"
    return status, text.read_text() if text.exists() else ""


def test_nothing_is_new(sandbox):
    status, text = follow(sandbox)
    assert (status, text) == (0, "Upstream's default branch is 0 commits after the pin.\n")


@pytest.mark.parametrize("before", [0, 2])
def test_the_culprit_is_told_and_the_commit_before_it_is_tried(sandbox, before):
    good = [
        support.commit(sandbox.upstream, f"Good {n}", {f"docs/{n}": "x\n"}) for n in range(before)
    ]
    bad = support.commit(sandbox.upstream, "@user `Better", BETTER)
    last = support.commit(sandbox.upstream, "Else", OTHER)
    patches = support.patches(sandbox)
    status, text = follow(sandbox)
    assert status == 34
    assert f"is {before + 2} commits after the pin" in text
    # As code, in which a name from upstream is no mention.
    assert f"\n    context-know-mps.patch: {CONTEXT}\n      since {bad} 2023-11-14" in text
    assert "A Contributor: @user `Better\n" in text
    assert f"`k2mps rebase --onto {last}`" in text
    if not before:
        assert support.patches(sandbox) == patches and "passed" not in text
        return
    assert f"All patches apply to {good[-1]}. There:" in text
    assert f"* `k2mps rebase --onto {good[-1]}`: passed" in text
    # lint refuses a file of the sample series; nothing is built then.
    assert "* `k2mps lint`: failed\n\n    patches/files/k2/python/k2/mps/blob.bin" in text
    assert good[-1] in (sandbox.root / "upstream.toml").read_text() and "k2mps build" not in text


def test_an_upstream_that_is_gone_is_no_finding(sandbox):
    sandbox.ok("checkout")
    shutil.rmtree(sandbox.upstream)
    assert follow(sandbox) == (20, "")

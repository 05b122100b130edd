"""`k2mps upstream --check` builds and tests each commit of a pull request to k2."""

import re
import shutil

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.series_files import write_cover_letters
from k2_mps_tests.tooling.stand_in import ROOT
from k2_mps_tests.tooling.support import git


@pytest.fixture
def checkable(buildable):
    """`buildable` with a pull request of three commits, of which the second does not compile."""
    work = buildable.root.parent / "authoring"
    answers = "# Copyright 2026\nimport k2\n\n\ndef test_answer():\n    assert k2.answer() == 43\n"
    for message, files in {
        "answer: broken": {"k2/csrc/answer.cc": "int Answer() { return wrong; }\n"},
        "answer: mended": {
            "k2/csrc/answer.cc": "int Answer() { return 43; }\n",
            "k2/python/tests/answer_test.py": answers,
        },
    }.items():
        support.commit(work, message, files)
    buildable.ok("export", "--k2", str(work))
    write_cover_letters(buildable)
    shutil.rmtree(buildable.root / "tools")
    (buildable.root / "tools").symlink_to(support.TOOLS)
    (buildable.root / "k2_mps_tests").mkdir()
    # `upstream --check --quick` runs the suite upstream-cpu on the last commit.
    for name in ("__init__.py", "ending.py", "commits", "upstream"):
        (buildable.root / "k2_mps_tests" / name).symlink_to(ROOT / "k2_mps_tests" / name)
    buildable.ok("apply")
    git(buildable.checkout, "config", "user.name", "A Sender")
    git(buildable.checkout, "config", "user.email", "sender@example.org")
    return buildable


def test_a_pull_request_is_checked_commit_by_commit(checkable):
    """`upstream --check` names the commit that fails; a second run checks only this commit."""
    for built in (["answer: 42", "answer: broken", "answer: mended"], ["answer: broken"]):
        result = checkable.run("upstream", "--check", "--quick")
        assert result.returncode == 34, result.stdout + result.stderr
        assert "1 of 3 commits fail; answer: broken" in result.stderr
        assert re.findall(r"^[0-9a-f]{12} (answer: \w+)$", result.stdout, re.MULTILINE) == built
        for fact in (
            "answer: 42: K2_WITH_MPS=OFF: import k2 and an FSA on cpu; ON: -; style: well",
            "answer: broken: K2_WITH_MPS=OFF: does not build: ",
            "k2/csrc/answer.cc:1:",
            "answer: mended: K2_WITH_MPS=OFF: 1 passed in ",
        ):
            assert fact in result.stdout


def test_a_folder_that_a_killed_check_has_left_is_named(checkable):
    """The error names the folder and says what to do with it, as the check itself does."""
    support.write(checkable.root, {"build/upstream/notes": "mine\n"})
    result = checkable.run("upstream", "--check", "--quick")
    assert result.returncode == 34
    folder = checkable.root / "build/upstream"
    assert f"error: {folder} exists\n  why: a check was killed, or" in result.stdout
    assert f"\n  why: {folder} exists\n  next: move it away, or delete it;" in result.stderr

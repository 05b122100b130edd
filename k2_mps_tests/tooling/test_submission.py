"""`k2mps upstream` makes the branch and the cover letter of a pull request to k2."""

import re

import pytest
from k2mps.carry import pull_request
from k2mps.core.project import Project
from k2mps.series.series_file import GROUPS

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.sandbox import ARRAY, MPS, NEW
from k2_mps_tests.tooling.series_files import patches, write_cover_letters
from k2_mps_tests.tooling.support import git, snapshot


@pytest.fixture
def k2(k2, sandbox):
    """The sandbox's checkout, with the series applied.

    git's configuration names a user, and the page of cover letters has sections.
    """
    sandbox.config.write_text("[user]\n\tname = Jörg Sender\n\temail = sender@example.org\n")
    write_cover_letters(sandbox, "shared-memory", "device")
    return k2


def test_a_branch_is_the_series_with_its_new_files(sandbox, k2):
    out = sandbox.ok("upstream", "--branch", "for-k2")
    assert out.startswith("An Apple MPS backend for k2\n")
    assert git(k2, "rev-parse", "for-k2^{tree}") == git(k2, "rev-parse", "k2-mps^{tree}")
    assert git(k2, "log", "--format=%an <%ae> %cn %s", "for-k2~3..for-k2").splitlines() == [
        "A Contributor <contributor@example.org> Jörg Sender " + subject
        for subject in (
            "python: add only new files",
            "array: a mode and line ends",
            "context: know mps",
        )
    ]
    assert git(k2, "rev-parse", "for-k2~3") == sandbox.pin
    assert "k2/csrc/mps/context.mm" in git(k2, "show", "--stat", "--format=", "for-k2~2")
    messages = git(k2, "log", "--format=%B", f"{sandbox.pin}..for-k2")
    assert "Because it is needed.\n\n  indented" in messages
    for word in ("Patch-Filename", "Upstream-Status", "k2-mps", "New-files"):
        assert word not in messages


def test_the_sender_becomes_the_author_of_patches_by_k2_mps(sandbox, k2):
    file = sandbox.root / "patches/array-a-mode-and-line-ends.patch"
    ours = b"From: k2-mps <k2-mps@k2-mps.invalid>\nSubject"
    file.write_bytes(re.sub(b"From(.|\n)*?Subject", ours, file.read_bytes(), count=1))
    sandbox.ok("upstream", "--branch", "for-k2")
    authors = git(k2, "log", "--format=%an %ad", "--date=raw", "-3", "for-k2").splitlines()
    theirs = "A Contributor 1700000000 +0100"
    assert (authors[0], authors[1].split(" 1")[0], authors[2]) == (theirs, "Jörg Sender", theirs)


def test_upstream_changes_neither_the_checkout_nor_patches(sandbox, k2):
    before = snapshot(k2), patches(sandbox)
    sandbox.ok("upstream")
    assert (snapshot(k2), patches(sandbox)) == before
    sandbox.ok("upstream", "--branch", "for-k2")
    after = snapshot(k2)
    # git refuses before --check, which needs the environment of a build.
    for name, message in {
        "for-k2": "a branch named 'for-k2' already exists",
        "k2-mps": "a branch named 'k2-mps' already exists",
        "no..name": "'no..name' is not a valid branch name",
    }.items():
        assert message in sandbox.fails(1, "upstream", "--check", "--branch", name)
    assert snapshot(k2) == after


@pytest.mark.parametrize(
    "known, missing",
    [
        ("useConfigOnly = true", "user.name"),
        ("email = a@b", "user.name"),
        ("name = A", "user.email"),
        ("name = <A>\n\temail = a@b", "user.email"),
    ],
)
def test_a_pull_request_needs_the_users_name_and_address(sandbox, k2, known, missing):
    sandbox.config.write_text(f"[user]\n\t{known}\n")
    message = sandbox.fails(1, "upstream", env={"HOME": "/nonexistent"})
    assert f"git config --global {missing}" in message


def test_the_cover_letter_has_the_section_of_its_group_and_that_of_all_groups(sandbox, k2):
    page = "# x\n\n## ctc: A title\n\nOf ctc.\n\n## every group: x\n\n- Of all.\n"
    support.write(sandbox.root, {"docs/pull-requests.md": page})
    order = sandbox.root / "patches/series"
    order.write_text("# ctc: x\n" + order.read_text())
    out = sandbox.ok("upstream", "--group", "ctc")
    assert "\n* context: know mps\n" in out
    assert out.startswith("A title\n") and out.endswith("\n\nOf ctc.\n\n- Of all.\n")


@pytest.mark.parametrize("has_page", [True, False])
def test_a_group_without_a_section_has_no_cover_letter(sandbox, k2, has_page):
    if not has_page:
        (sandbox.root / "docs/pull-requests.md").unlink()
    order = sandbox.root / "patches/series"
    order.write_text("# ctc: x\n" + order.read_text())
    message = sandbox.fails(1, "upstream", "--group", "ctc", "--branch", "for-k2")
    assert "docs/pull-requests.md has no section for ctc" in message
    assert git(k2, "branch", "--list", "for-k2") == ""


def test_a_group_that_is_not_for_k2_has_the_title_of_the_series(sandbox, k2):
    order = sandbox.root / "patches/series"
    order.write_text(f"# device: x\n{MPS}\n{ARRAY}\n# profiling: x\n{NEW}\n")
    out = sandbox.ok("upstream", "--group", "profiling")
    assert out.startswith("An Apple MPS backend for k2\n\n* python: add only new files\n\n")


def test_quick_needs_check(sandbox, k2):
    result = sandbox.run("upstream", "--quick")
    assert result.returncode == 2 and "--quick is an option of --check" in result.stderr


def test_a_squashed_group_is_one_commit_with_all_messages(sandbox, k2):
    page = (
        "# x\n\n## shared-memory: Fix\n\nWhy.\n\n### Limits\n\nFew.\n\n## device: Device\n\nWhat.\n"
    )
    page += "\n## every group: x\n\n- Of all.\n"
    support.write(sandbox.root, {"docs/pull-requests.md": page})
    order = sandbox.root / "patches/series"
    order.write_text(f"# shared-memory: x\n{MPS}\n{ARRAY}\n# device: x\n{NEW}\n")
    sandbox.ok("upstream", "--group", "device", "--squash", "--branch", "for-k2")
    assert git(k2, "rev-parse", "for-k2^{tree}") == git(k2, "rev-parse", "k2-mps^{tree}")
    assert git(k2, "rev-parse", "for-k2~2") == sandbox.pin
    message = git(k2, "log", "--format=%B", "-1", "for-k2~").strip()
    assert message.startswith("Fix\n\nWhy.\n\n* context: know mps\n\nBecause it is needed.\n")
    assert message.endswith("* array: a mode and line ends") and "Few" not in message
    assert git(k2, "log", "--format=%an %s", "-1", "for-k2").strip() == "Jörg Sender Device"


def test_only_the_patch_that_k2_needs_to_build_is_below_a_group_of_fixes(sandbox, k2):
    write_cover_letters(sandbox, "shared-memory", "fixes-core")
    folder = sandbox.root / "patches"
    (folder / MPS).rename(folder / "torch-2.13.patch")
    order = f"# shared-memory: x\ntorch-2.13.patch\n{ARRAY}\n# fixes-core: x\n{NEW}\n"
    (folder / "series").write_text(order)
    sandbox.ok("upstream", "--group", "fixes-core", "--squash", "--branch", "for-k2")
    subjects = git(k2, "log", "--format=%s", f"{sandbox.pin}..for-k2").splitlines()
    assert subjects == ["Title", "context: know mps"]
    words = ("--in-series", "--squash", "--branch", "all-below")
    sandbox.ok("upstream", "--group", "fixes-core", *words)
    subjects = git(k2, "log", "--format=%s", f"{sandbox.pin}..all-below").splitlines()
    assert subjects == ["Title", "Title"]


def test_the_cover_letter_has_the_commands_that_run_the_added_tests(sandbox, k2):
    assert "pytest" not in sandbox.ok("upstream")
    tests = {"k2/python/tests/x_test.py": "pass\n", "k2/csrc/mps/y_test.cu": "//\n"}
    support.write(k2, tests)
    sandbox.ok("new", "mps: tests", *tests)
    out = sandbox.ok("upstream")
    assert "python3 -m pytest \\\n  k2/python/tests/x_test.py\n" in out
    assert "\nctest --test-dir build_release -R y_test\n" in out


def test_each_group_for_k2_has_a_cover_letter():
    project = Project(support.TOOLS.parent)
    for group in (*GROUPS[:-1], "every group"):
        title, text = pull_request.section_of(project, group)
        assert title and text, group
    assert "No Mac and no AMD GPU has run any part of the series" in text

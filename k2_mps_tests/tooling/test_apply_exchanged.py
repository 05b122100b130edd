"""`k2mps apply` replaces a file by a folder and a folder by a file, and keeps the user's work."""

import re

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import git, snapshot


@pytest.mark.parametrize("path", ["a/deep/file", "b"])
def test_apply_exchanges_a_file_for_a_folder_or_a_folder_for_a_file(exchanged, path):
    exchanged.ok("apply")
    assert (exchanged.checkout / path).is_file()
    pin = git(exchanged.upstream, "rev-parse", "HEAD")
    assert git(exchanged.checkout, "rev-parse", "HEAD") == pin
    assert git(exchanged.checkout, "status", "--porcelain") == ""


@pytest.mark.parametrize("mine", ["b/mine.txt", "b/deep/mine.txt"])
def test_a_folder_with_work_does_not_become_a_file(exchanged, mine):
    (exchanged.checkout / mine).write_text("mine\n")
    before = snapshot(exchanged.checkout)
    assert re.search("\tb(/mine.txt)?\n", exchanged.fails(1, "apply"))
    assert snapshot(exchanged.checkout) == before


@pytest.mark.parametrize(
    "script, mine",
    [
        ("echo mine > b/mine", "b/mine"),
        ("git rm -q b/two; mkdir b/two; echo mine > b/two/mine", "b/two/mine"),
        ("git rm -q a; mkdir -p a/two; echo mine > a/two/mine", "a/two/mine"),
        ("git rm -q a; mkdir a; echo mine > a/deep", "a/deep"),
    ],
)
def test_a_staged_file_in_place_of_a_folder_or_file_is_kept(exchanged, script, mine):
    """git switch deletes the file if nobody has edited it since it was staged."""
    k2 = exchanged.checkout
    support.shell(k2, f"{script}; git add --all")
    before = snapshot(k2)
    message = exchanged.fails(1, "apply")
    assert f"files are in the way in {k2}: {mine}\n" in message
    assert snapshot(k2) == before
    support.shell(k2, re.search("next: (git .*), which keeps", message)[1])
    assert (k2 / mine).read_text() == "mine\n"


def test_the_only_copy_of_a_staged_file_in_the_way_is_kept(exchanged):
    k2 = exchanged.checkout
    support.shell(k2, "echo mine > b/mine; git add b/mine; rm b/mine")
    assert "next: k2mps status, which says how to keep" in exchanged.fails(1, "apply")
    restore = re.search("staged versions, (git .*) keeps the staged", exchanged.ok("status"))
    support.shell(k2, restore[1])
    unstage = re.search("next: (git .*), which keeps", exchanged.fails(1, "apply"))
    support.shell(k2, unstage[1])
    assert (k2 / "b/mine").read_text() == "mine\n"
    assert git(k2, "status", "--porcelain") == "?? b/mine"


def test_a_folder_at_the_path_of_a_staged_file_in_the_way_is_moved_first(exchanged):
    k2 = exchanged.checkout
    support.shell(k2, "echo mine > b/mine; git add b/mine; rm b/mine; mkdir b/mine; touch b/mine/x")
    message = exchanged.fails(1, "apply")
    assert f"move what is at b/mine out of {k2}; then the same" in message
    assert "rm --cached" not in message

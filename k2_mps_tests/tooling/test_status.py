"""`k2mps status` compares trees and changes nothing."""

import json
import re

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.sandbox import CONTEXT, MPS
from k2_mps_tests.tooling.series_files import patches
from k2_mps_tests.tooling.support import git, snapshot


def status(sandbox, *args):
    return json.loads(sandbox.ok("status", "--json", *args))


def test_the_state_is_absent_then_pristine_then_applied(sandbox):
    found = status(sandbox)
    assert (found["state"], found["next_command"]) == ("absent", "k2mps apply")
    assert not (sandbox.root / "build").exists()
    sandbox.obtain()
    assert status(sandbox)["state"] == "pristine"
    sandbox.ok("apply")
    found = status(sandbox)
    assert found["state"] == "applied"
    assert found["patches"] == "as applied"
    assert found["details"] == []
    assert found["next_command"] == ""
    assert found["head"]["branch"] == "refs/heads/k2-mps"
    # The tool's refs and branch remain, but the files are upstream's, so the state is pristine.
    git(sandbox.checkout, "reset", "--quiet", "--hard", sandbox.pin)
    assert git(sandbox.checkout, "symbolic-ref", "HEAD") == "refs/heads/k2-mps"
    assert sandbox.state() == "pristine"


FILE = "k2/csrc/array.cu"
EXCHANGES = {
    "a folder for a file": (f"rm {FILE}; mkdir {FILE}; echo mine > {FILE}/part.cu"),
    "a file for a folder": ("rm -r k2/csrc; echo mine > k2/csrc"),
}


@pytest.mark.parametrize("script", EXCHANGES.values(), ids=EXCHANGES)
def test_status_advises_no_command_that_deletes_what_replaced_a_file(sandbox, k2, script):
    """git deletes it with `stash` and `restore`, and keeps it nowhere."""
    support.write(k2, {"k2/csrc/context.h": "mine\n"})
    support.shell(k2, f"git commit --quiet --all -m mine; {script}")
    found = status(sandbox)
    assert FILE in found["edited_files"]
    said = " ".join([*found["details"], found["next_command"]])
    assert "git stash, restore and checkout would delete it" in said
    assert "move what is there away" in found["next_command"]
    assert " stash;" not in said


def test_the_advice_names_one_file_although_its_name_is_a_pattern(sandbox, k2):
    support.write(k2, {"log[1h].h": "staged\n", "log1.h": "committed\n"})
    support.shell(k2, "git add --all; git commit --quiet -m logs; echo x >> 'log[1h].h'; git add .")
    support.write(k2, {"log[1h].h": "file\n", "log1.h": "mine\n"})
    advice = status(sandbox)["next_command"]
    support.shell(k2, re.search("versions, (git .*) keeps the staged", advice)[1])
    assert (k2 / "log1.h").read_text() == "mine\n"
    assert (k2 / "log[1h].h").read_text() == "staged\nx\n"


@pytest.mark.parametrize("applied", [False, True])
def test_status_lists_edited_files(sandbox, applied):
    sandbox.ok("apply") if applied else sandbox.obtain()
    support.write(sandbox.checkout, {"k2/csrc/array.cu": "mine\n"})
    found = status(sandbox)
    assert found["state"] == "edited"
    assert found["edited_files"] == ["k2/csrc/array.cu"]
    assert ("fold" if applied else "k2mps apply") in found["next_command"]
    out = sandbox.ok("status")
    assert f"checkout: edited ({sandbox.checkout})" in out
    assert "1 file(s) with uncommitted edits: k2/csrc/array.cu" in out
    assert "next: " in out


def test_status_lists_the_users_commits(sandbox):
    sandbox.ok("apply")
    support.commit(sandbox.checkout, "mine", {"a": "1\n"})
    found = status(sandbox)
    assert found["state"] == "edited"
    assert found["user_commits"][0].endswith(" mine")
    assert found["next_command"] == "k2mps export"
    # The user amends a commit of the series, and so becomes the committer.
    git(sandbox.checkout, "reset", "--quiet", "--hard", "HEAD~1")
    git(sandbox.checkout, "commit", "--quiet", "--amend", "--no-edit")
    assert status(sandbox)["state"] == "edited"


def test_an_edit_of_another_commit_is_no_edit_of_the_series(sandbox, k2):
    """`k2mps build` would build an edit of the series, but not of another commit."""
    git(k2, "checkout", "--quiet", f"{sandbox.pin}~")
    support.write(k2, {"CMakeLists.txt": "mine\n"})
    found = status(sandbox)
    assert (found["state"], found["edited_files"]) == ("other commit", ["CMakeLists.txt"])


def test_the_state_of_a_clone_that_lacks_the_pin(sandbox):
    sandbox.obtain()
    newer = support.commit(sandbox.upstream, "Newer", {"new.txt": "1\n"})
    sandbox.write_config(newer)
    found = status(sandbox)
    assert (found["state"], found["next_command"]) == ("other commit", "k2mps apply")
    assert found["details"] == [f"it does not have the pinned commit {newer[:12]} (k2 1.0)"]
    assert found["head"]["commit"] == sandbox.pin


def test_the_state_of_a_series_that_another_clone_of_k2_mps_has_applied(sandbox, k2):
    git(k2, "update-ref", "-d", "refs/k2mps/applied")  # The other clone's record is elsewhere.
    assert sandbox.state() == "applied by another version of the series"


def test_status_changes_nothing(sandbox):
    sandbox.ok("apply")
    # The index records an older time for the file, so `git status` would update the index.
    (sandbox.checkout / "CMakeLists.txt").touch()
    git_dir = sandbox.checkout / ".git"
    before = snapshot(sandbox.checkout)
    index = (git_dir / "index").read_bytes()
    status(sandbox)
    assert snapshot(sandbox.checkout) == before
    assert (git_dir / "index").read_bytes() == index


def test_status_after_a_new_that_was_killed_between_the_files_of_patches(sandbox, k2):
    before = patches(sandbox)
    support.edit(k2 / CONTEXT, "line 20\n", "twenty\n")
    ref = git(k2, "rev-parse", "refs/k2mps/applied")
    sandbox.ok("new", "more")
    git(k2, "update-ref", "refs/k2mps/applied", ref)
    (sandbox.root / "patches/series").write_bytes(before["patches/series"])
    assert status(sandbox)["next_command"] == "k2mps export"
    sandbox.ok("export")
    assert sandbox.order()[-1] == "more.patch"


def test_status_lists_untracked_files(sandbox):
    sandbox.ok("apply")
    support.write(sandbox.checkout, {"notes.txt": "", "new/a.h": ""})
    found = status(sandbox)
    assert found["state"] == "applied"
    assert found["untracked_files"] == ["new/", "notes.txt"]
    assert "not tracked by git: new/, notes.txt;" in sandbox.ok("status")
    support.write(sandbox.checkout, {"a\nnext: b": ""})
    assert r"not tracked by git: a\nnext: b, new/," in sandbox.ok("status")


# The states of a project and its checkout: shell commands that lead from the applied series to the
# state, and the next step that `k2mps status` then prints.  The commands run in the project's
# folder, where $pin is the pinned commit.  K2 in a next step is `git -C CHECKOUT`.
ENDINGS = (
    "K2 {0} --continue, --skip, or --abort; all but --continue discard edits that are not"
    " committed, and --abort also the commits since the {0} began"
)
NEXT_STEPS = {
    "no checkout": ("rm -rf build", "k2mps build"),
    "a checkout of the pin": (
        "git -C build/k2 checkout -q $pin; git -C build/k2 branch -qD k2-mps;"
        " git -C build/k2 update-ref -d refs/k2mps/applied",
        "k2mps build",
    ),
    "the pin, and patches changed": ("git -C build/k2 checkout -q $pin; $change", "k2mps apply"),
    "another commit": ("git -C build/k2 checkout -q $pin~", "k2mps apply"),
    "another commit, and an edit": (
        "git -C build/k2 checkout -q $pin~; echo >>build/k2/CMakeLists.txt",
        "k2mps apply",
    ),
    "applied, and no build": ("true", "k2mps build"),
    "applied, and patches changed": ("$change", "k2mps apply"),
    "applied, and a note in patches/": ("echo >patches/NOTES", "k2mps apply"),
    "a part of the series": ("git -C build/k2 checkout -q k2-mps~", "k2mps apply"),
    "a branch at a part of the series": ("git -C build/k2 reset -q --hard HEAD~", "k2mps apply"),
    "an edit": ("$edit", "k2mps fold PATCH, or k2mps new SUBJECT"),
    "an edit, and patches changed": ("$edit; $change", "k2mps apply"),
    "an edit of the pin": ("git -C build/k2 checkout -q $pin; $edit", "k2mps apply"),
    "an edit of another branch": (
        "git -C build/k2 checkout -q -b mine $pin; $edit",
        "commit the edits, or K2 stash; then k2mps status",
    ),
    "an edit that only the index has": (
        "$edit; git -C build/k2 add .; git -C build/k2 show HEAD:CMakeLists.txt"
        " >build/k2/CMakeLists.txt",
        "K2 diff -- CMakeLists.txt shows the difference; K2 add -- CMakeLists.txt keeps the files"
        " and discards the staged versions, K2 checkout -- CMakeLists.txt keeps the staged versions"
        " and discards the files; then k2mps status",
    ),
    "a commit": ("$edit; git -C build/k2 commit -qam mine", "k2mps export"),
    "a commit, and an edit": (
        "$edit; git -C build/k2 commit -qam mine; $edit",
        "commit the edits, or K2 stash; then k2mps status",
    ),
    "a commit, and patches changed": (
        "$edit; git -C build/k2 commit -qam mine; $change",
        "k2mps apply",
    ),
    "a commit, HEAD elsewhere, and patches changed": (
        "$edit; git -C build/k2 commit -qam mine; git -C build/k2 checkout -q $pin; $change",
        "k2mps apply",
    ),
    "a rebase that has stopped": (
        "git -C build/k2 rebase -q --exec false HEAD~ 2>/dev/null || true",
        ENDINGS.format("rebase"),
    ),
    "a rebase that has stopped, and an edit": (
        "git -C build/k2 rebase -q --exec false HEAD~ 2>/dev/null || true; $edit",
        ENDINGS.format("rebase"),
    ),
    "a rebase onto the pin that has stopped": (
        "git -C build/k2 rebase -q --exec false --force-rebase $pin 2>/dev/null || true",
        ENDINGS.format("rebase"),
    ),
    "a rebase onto a newer commit that has stopped": (
        "git -C build/k2 fetch -q origin newer; git -C build/k2 rebase -q --exec false"
        " --onto FETCH_HEAD $pin 2>/dev/null || true",
        ENDINGS.format("rebase") + "; after the last --continue, k2mps export --onto NEWER",
    ),
    "a cherry-pick that has stopped": (
        "cd build/k2; echo mine >>CMakeLists.txt; git commit -qam mine; git checkout -q --detach"
        " HEAD~; echo other >>CMakeLists.txt; git commit -qam other;"
        " git cherry-pick k2-mps >/dev/null 2>&1 || true",
        ENDINGS.format("cherry-pick"),
    ),
    "a cherry-pick whose second commit changes nothing": (
        "cd build/k2; echo 1 >a; git add a; git commit -qm a; echo 2 >b; git add b;"
        " git commit -qm b; git reset -q --hard HEAD~2; git checkout -q k2-mps@{1} -- b;"
        " git commit -qm 'b too'; git cherry-pick k2-mps@{2}~ k2-mps@{2} >/dev/null 2>&1 || true",
        ENDINGS.format("cherry-pick"),
    ),
    "a merge that has stopped": (
        "cd build/k2; git checkout -q -b topic; $edit; git commit -qam topic; git checkout -q -"
        "; echo mine >>CMakeLists.txt; git commit -qam mine; git merge topic >/dev/null || true",
        ENDINGS.format("merge").replace(" --skip,", ""),
    ),
    "a stash that conflicts": (
        "cd build/k2; $edit; git stash -q; echo other >>CMakeLists.txt; git commit -qam other;"
        " git stash pop >/dev/null 2>&1 || true",
        "edit the conflicts in CMakeLists.txt, and K2 add; then k2mps status",
    ),
    "a rebase that has ended": (
        "git -C build/k2 fetch -q origin newer; git -C build/k2 rebase -q --onto FETCH_HEAD $pin",
        "k2mps export --onto NEWER",
    ),
}


@pytest.mark.parametrize("script, step", NEXT_STEPS.values(), ids=NEXT_STEPS)
def test_the_next_step_of_each_state(sandbox, k2, script, step):
    git(sandbox.upstream, "checkout", "--quiet", "-b", "newer")
    newer = support.commit(sandbox.upstream, "Newer", {"new.txt": "1\n"})
    names = f"pin={sandbox.pin}; change='sed -i s/mps/metal/ patches/{MPS}';"
    names += f" edit='sed -i $a#mine {k2}/CMakeLists.txt';"
    support.shell(sandbox.root, f"{names} {script}")
    step = step.replace("K2", f"git -C {k2}").replace("NEWER", newer[:12])
    assert f"\nnext: {step}\n" in sandbox.ok("status")

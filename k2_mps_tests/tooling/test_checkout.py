"""The facts that the tool reads of a checkout, and small parts of what it makes of them."""

import os

import pytest
from k2mps.core import errors
from k2mps.core.objects import File
from k2mps.core.pins import Pin
from k2mps.stack import extraction, transaction, unfinished, upstream
from k2mps.stack.checkout import BRANCH_REF, Checkout
from k2mps.stack.commits import Line

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import git


@pytest.fixture
def k2(tmp_path):
    """A repository with one commit on branch k2-mps."""
    folder = tmp_path / "k2"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=k2-mps")
    support.commit(folder, "first", {"a/b": "1\n", "c": "2\n"})
    return folder


def configure(k2, *settings: str) -> Checkout:
    """Writes settings "NAME VALUE" into the repository's configuration."""
    for setting in settings:
        git(k2, "config", *setting.split(" ", 1))
    return Checkout(k2)


@pytest.mark.parametrize(
    "settings, mark",
    [
        ([], "#"),
        (["core.commentChar ;"], ";"),
        (["core.commentChar auto"], "#"),
        (["core.commentString //"], "//"),
        (["core.commentChar ;", "core.commentString //"], "//"),
        (["commit.cleanup strip", "core.commentChar ;"], ";"),
        (["commit.cleanup scissors", "core.commentChar ;"], ""),
    ],
)
def test_what_begins_a_comment_in_a_message(k2, settings, mark):
    assert configure(k2, *settings).comment_mark() == mark


@pytest.mark.parametrize(
    "setting, problem",
    [
        ("core.sparseCheckout true", "sparse checkout"),
        ("core.sparseCheckout 1", "sparse checkout"),
        ("remote.mine.promisor true", "partial clone"),
        ("core.sparseCheckout No", ""),
        ("core.sparseCheckout off", ""),
        ("core.sparseCheckout 0", ""),
        ("remote.mine.promisor false", ""),
        ("core.commentChar ;", ""),
        ("user.name Me", ""),
        ("commit.cleanup strip", ""),
    ],
)
def test_a_checkout_must_have_every_file_and_blob(k2, setting, problem):
    checkout = configure(k2, setting)
    if problem:
        with pytest.raises(errors.K2mpsError, match=f"is a {problem} of k2"):
            checkout.objects
    else:
        assert checkout.objects.entries(checkout.head().commit).keys() == {"a/b", "c"}


def test_blanks_around_the_name_of_the_user_are_left_out(k2):
    assert configure(k2, "user.name  Me ").user() == ("Me", "")


def test_only_the_name_of_a_commit_leads_to_one(k2):
    """None of the others is an option of git, because git gets the kind after the name."""
    checkout = Checkout(k2)
    for name in ("none", "--all", "--since=2020", "--glob=*", "--git-dir", "-n", "--"):
        assert checkout.commit_of(name) is None
    assert checkout.commit_of("HEAD", "tree") == git(k2, "rev-parse", "HEAD^{tree}")


def test_staged_versions_that_the_files_do_not_have(k2):
    kept = ["added", "added, deleted", "deleted", "edited", "linked"]
    support.write(k2, dict.fromkeys(["deleted", "edited", "linked", "staged", "unstaged"], "1\n"))
    support.shell(k2, "git add .; git commit -qm more")
    names = ["added", "added, deleted", "added, staged", "deleted", "edited", "linked", "staged"]
    support.write(k2, dict.fromkeys(names, "2\n"))
    support.shell(
        k2,
        "git add .; git rm -q --cached c; rm c a/b deleted 'added, deleted' linked;"
        " ln -s a linked; echo 3 >added; echo 1 >edited; echo 3 >unstaged; echo 3 >new",
    )
    found = Checkout(k2).changed_files("all")
    assert (found.staged_only, found.untracked, found.unmerged) == (kept, ["new"], [])
    assert sorted(found.edited) == sorted([*names, "a/b", "c", "unstaged"])


def test_a_link_that_was_staged_and_then_edited_is_a_staged_version(k2):
    support.shell(k2, "rm c; ln -s a c; git add c; rm c; echo 3 >c")
    assert Checkout(k2).changed_files().staged_only == ["c"]


@pytest.mark.parametrize("stages", ["1", "2", "3", "12", "13", "23", "123"])
def test_files_in_which_git_has_left_conflicts(k2, stages):
    blob = git(k2, "rev-parse", "HEAD:c")
    lines = "".join(f"100644 {blob} {stage}\tc\\n" for stage in stages)
    support.shell(k2, f"git rm -q --cached c; printf '{lines}' | git update-index --index-info")
    found = Checkout(k2).changed_files()
    assert (found.edited, found.unmerged) == (["c"], ["c"])


@pytest.mark.parametrize(
    "script, exchanged",
    [
        ("rm c; mkdir c", ["c"]),
        ("rm -r a; echo >a", ["a/b"]),
        ("rm -r a; ln -s nowhere a", ["a/b"]),
        ("rm c; ln -s a c", []),
        ("rm -r a c", []),
        ("echo >c; mv a aa; ln -s aa a", []),
    ],
)
def test_files_that_became_folders_and_folders_that_became_files(k2, script, exchanged):
    support.shell(k2, script)
    assert Checkout(k2).exchanged(["a/b", "c"]) == exchanged


@pytest.mark.parametrize(
    "files, operation",
    [
        ({}, ""),
        ({"rebase-merge/x": ""}, "rebase"),
        ({"rebase-apply/x": ""}, "rebase"),
        ({"rebase-apply/applying": ""}, "am"),
        ({"MERGE_HEAD": ""}, "merge"),
        ({"CHERRY_PICK_HEAD": "", "sequencer/todo": "pick 1 x\n"}, "cherry-pick"),
        ({"REVERT_HEAD": ""}, "revert"),
        ({"sequencer/todo": "pick 1 x\n"}, "cherry-pick"),
        ({"sequencer/todo": "revert 1 x\n"}, "revert"),
    ],
)
def test_the_unfinished_command_of_git(k2, files, operation):
    support.write(k2 / ".git", files)
    assert unfinished.operation_in_progress(Checkout(k2)) == operation


@pytest.mark.parametrize(
    "done, following, stopped_at, was_killed",
    [
        (None, "", "", True),
        ("pick HEAD first\n", "", "", True),
        ("pick HEAD first\n", "", "HEAD", False),
        ("pick HEAD fi\xeferst\n", "pick HEAD~ x\n", "HEAD", False),
        # git could not write a file, and is to pick the commit again.
        ("pick HEAD~ before\n", "pick HEAD first\n", "HEAD", False),
        ("pick HEAD~ before\n", "pick HEAD~ x\npick HEAD first\n", "HEAD", True),
        ("pick HEAD~ before\nexec false\n", "", "", False),
        ("exec false\ns HEAD first\n", "", "", True),
    ],
)
def test_a_rebase_was_killed_if_it_has_not_stopped_at_a_commit(
    k2, done, following, stopped_at, was_killed
):
    """In the list of a rebase, HEAD stands for the id of a commit, and HEAD~ for another."""
    assert not unfinished.rebase_was_killed(Checkout(k2))
    support.write(k2 / ".git", {"rebase-merge/git-rebase-todo": ""})
    ids = {"HEAD~": "1" * 40, "HEAD": git(k2, "rev-parse", "HEAD")}
    for name, text in {"done": done, "git-rebase-todo": following}.items():
        for short, id_ in ids.items():
            text = text and text.replace(f"{short} ", f"{id_} ")
        if text is not None:
            (k2 / ".git/rebase-merge" / name).write_text(text, encoding="latin-1")
    if stopped_at:
        git(k2, "update-ref", "REBASE_HEAD", stopped_at)
    assert unfinished.rebase_was_killed(Checkout(k2)) == was_killed


@pytest.mark.parametrize("script", ["true", "git rebase -q --exec false --root || true"])
def test_a_worktree_that_was_deleted_does_not_use_the_branch(k2, script):
    support.shell(
        k2, f"git checkout -q --detach; git worktree add -q ../other k2-mps; cd ../other\n{script}"
    )
    other = k2.parent / "other"
    assert Checkout(k2).other_user(BRANCH_REF) == str(other)
    assert Checkout(other).other_user(BRANCH_REF) == ""
    support.shell(k2, "rm -rf ../other")
    assert Checkout(k2).other_user(BRANCH_REF) == ""


@pytest.mark.parametrize(
    "attribute, in_rebase, is_refused",
    [
        ("filter=x", False, True),
        ("filter=text", False, True),
        ("-filter", False, False),
        ("ident", False, True),
        ("working-tree-encoding=UTF-16", False, True),
        ("merge=ours", False, False),
        ("merge=ours", True, True),
        ("filter=x", True, True),
        ("merge", True, False),
        ("merge=text", True, False),
        ("merge=binary", True, False),
        ("-merge", True, False),
        ("text", True, False),
    ],
)
def test_attributes_by_which_git_does_not_keep_a_file_as_it_is(
    k2, attribute, in_rebase, is_refused
):
    support.write(k2, {".git/info/attributes": f"c {attribute}\n"})
    if is_refused:
        with pytest.raises(errors.K2mpsError, match="the git attribute .* applies to c"):
            Checkout(k2).check_attributes(["a/b", "c"], in_rebase)
    else:
        Checkout(k2).check_attributes(["a/b", "c"], in_rebase)


def test_the_files_of_a_commit_are_those_whose_blobs_are_there(k2):
    support.shell(
        k2,
        f"git update-index --add --cacheinfo 160000,{'1' * 40},module;"
        " git update-index --chmod=+x c; git commit -qm more",
    )
    checkout = Checkout(k2)
    commit = checkout.head().commit
    assert checkout.objects.entries(commit).keys() == {"a/b", "c", "module"}
    files = {"a/b": File(b"1\n"), "c": File(b"2\n", executable=True)}
    assert checkout.objects.files(commit) == files
    assert checkout.objects.files(commit, ["a"]) == {"a/b": files["a/b"]}


def test_paths_that_are_not_free(k2):
    line = Line(Checkout(k2), git(k2, "rev-parse", "HEAD"), "0 +0000")
    for path in ("c", "c/d", "a", "a/b"):
        assert line.taken(["new", path], []) == path
    assert line.taken(["new", "a/c", "aa"], []) == ""
    assert (
        line.taken(["c/d"], ["c"]) == line.taken(["c"], ["c"]) == line.taken(["a"], ["a/b"]) == ""
    )
    line.commit({"n/m": File(b""), "c": None}, "more", "A <a@b> 0 +0000")
    assert (line.taken(["n"], []), line.taken(["n/m"], []), line.taken(["c"], [])) == (
        "n",
        "n/m",
        "",
    )


@pytest.mark.parametrize(
    "files, version",
    [
        ({"CMakeLists.txt": "project(k2)\nset(K2_VERSION 1.2)\n"}, "1.2"),
        ({"CMakeLists.txt": '  set(K2_VERSION "9.9")\nset(K2_VERSION "1.3")\n'}, "1.3"),
        ({"CMakeLists.txt": "project(k2)\n"}, "1.1"),
        ({}, "1.1"),
    ],
)
def test_the_version_of_a_pin_is_that_of_its_cmake_file(k2, files, version):
    commit = support.commit(k2, "more", files) if files else git(k2, "rev-parse", "HEAD")
    pin = upstream.pin_at(Checkout(k2), Pin("url", "1" * 40, "2" * 40, "1.1"), commit)
    assert pin == Pin("url", commit, git(k2, "rev-parse", "HEAD^{tree}"), version)


@pytest.mark.parametrize(
    "subject, name",
    [
        ("x" * 60, "x" * 52),
        ("x" * 51 + "-y", "x" * 51),
        ("-- Fix: it!", "fix-it"),
        ("«»", "patch"),
        ("taken", "taken-3"),
    ],
)
def test_the_name_of_a_new_patch(subject, name):
    taken = {"taken.patch", "taken-2.patch"}
    assert extraction.name_for(subject, taken) == f"{name}.patch"


@pytest.mark.parametrize(
    "message, parts",
    [
        ("one\ntwo", ("one two", "", {})),
        ("\n\none\n \t\nbody", ("one", "body", {})),
        (
            "one\n\nbody\n\nUpstream-Status: a \t\nUpstream-Status: b\nPatch-Filename: c\n",
            ("one", "body", {"Upstream-Status": "a", "Patch-Filename": "c"}),
        ),
        ("one\n\n\n\nUpstream-Status:a", ("one", "", {"Upstream-Status": "a"})),
    ],
)
def test_the_parts_of_a_message(message, parts):
    assert extraction._split_message(message) == parts


def test_a_file_may_have_two_names_where_case_is_ignored(tmp_path):
    """A second link to the file stands for the file system."""
    support.write(tmp_path, {"a.h": ""})
    is_another_name = transaction._is_another_name
    files = {"b.h": File(b""), "a.h": File(b"")}
    assert not is_another_name(tmp_path, "A.h", files)
    support.write(tmp_path, {"A.h": ""})
    assert not is_another_name(tmp_path, "A.h", files)
    (tmp_path / "A.h").unlink()
    os.link(tmp_path / "a.h", tmp_path / "A.h")
    assert is_another_name(tmp_path, "A.h", files)
    assert not is_another_name(tmp_path, "c.h", files)

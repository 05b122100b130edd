"""`k2mps apply` makes a commit of each patch, or refuses and changes nothing."""

import os
import re

import pytest
from k2mps.core import errors

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import git, snapshot

# The id of the tree that k2 has after `support.sample_series` is applied.
TREE = "fb9b52df22fdff689711f865d3fe5ee377ddbade"


def test_apply_makes_one_commit_for_each_patch(sandbox):
    out = sandbox.ok("apply")
    assert "applied the series" in out
    k2 = sandbox.checkout
    assert git(k2, "rev-parse", "HEAD^{tree}") == TREE
    assert git(k2, "symbolic-ref", "HEAD") == "refs/heads/k2-mps"
    assert git(k2, "rev-parse", "HEAD~3") == sandbox.pin
    assert git(k2, "log", "--format=%s", "-3").split("\n") == [
        "python: add only new files",
        "array: a mode and line ends",
        "context: know mps",
    ]
    assert git(k2, "status", "--porcelain") == ""
    assert (k2 / "cmake/mps.cmake").read_text() == "option(K2_WITH_MPS)\n"
    assert not (k2 / "k2/csrc/old.cu").exists()
    assert os.access(k2 / "k2/python/k2/mps/tool", os.X_OK)
    assert os.access(k2 / "k2/csrc/array.cu", os.X_OK)
    assert (k2 / "k2/csrc/crlf.txt").read_bytes() == b"one\r\nTWO\r\nthree\r\n"
    assert (k2 / "k2/python/k2/mps/blob.bin").read_bytes() == b"\0\1\2"
    date = git(sandbox.upstream, "log", "-1", "--format=%ct", sandbox.pin)
    who = "--format=%an <%ae>%n%cn <%ce>%n%ct %at%n%B"
    assert git(k2, "log", "-1", "--skip=2", who).strip().split("\n") == [
        "A Contributor <contributor@example.org>",
        "k2-mps <k2-mps@k2-mps.invalid>",
        f"{date} 1700000000",
        "context: know mps",
        "",
        "Because it is needed.",
        "",
        "  indented",
        "",
        "Upstream-Status: Pending (not sent yet)",
        "Patch-Filename: context-know-mps.patch",
    ]


def test_a_first_apply_touches_only_what_the_series_changes(sandbox):
    """ninja compiles a file again if the file was written again, even with the same content."""
    sandbox.obtain()
    before = snapshot(sandbox.checkout)["files"]
    sandbox.ok("apply")
    after = snapshot(sandbox.checkout)["files"]
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    folders = {path for path in changed if after.get(path) == "directory"}
    of_series = git(sandbox.checkout, "diff", "--name-only", "-z", sandbox.pin).strip("\0")
    assert changed - folders == set(of_series.split("\0"))


def test_another_version_of_the_series_touches_only_what_differs(sandbox):
    sandbox.ok("apply")
    (sandbox.root / "patches/files/cmake/mps.cmake").write_text("# new\n")
    before = snapshot(sandbox.checkout)["files"]
    old = git(sandbox.checkout, "rev-parse", "--short=12", "HEAD")
    output = sandbox.ok("apply")
    assert "changed 1 files" in output and f"was at {old} before" in output
    after = snapshot(sandbox.checkout)["files"]
    assert {path for path in after if after[path] != before.get(path)} == {"cmake/mps.cmake"}
    assert sandbox.state() == "applied"


# Makes a branch `other` that conflicts with the commits of branch master.
DIVERGED = """
git checkout -q -b other HEAD~1
echo "project(other)" > CMakeLists.txt; git commit -qam other; git checkout -q master
echo "project(more)" > CMakeLists.txt; git commit -qam more
echo "project(last)" > CMakeLists.txt; git commit -qam last
"""
IN_PROGRESS = {
    "rebase": "GIT_SEQUENCE_EDITOR='sed -i.bak 1s/^pick/edit/' git rebase -q -i HEAD~1",
    "cherry-pick": "git cherry-pick other || true",
    "merge": "git merge other || true",
    "revert": "git revert --no-edit HEAD~1 || true",
}

REFUSED, BUSY = 1, errors.BusyError.exit_code
HEADER = "k2/csrc/context.h"


def refused(name: str, message: str, script: str, status: int = REFUSED):
    """Returns a case: a script that changes a checkout, and how `apply` then refuses it."""
    return pytest.param(message, script, status, id=name)


@pytest.mark.parametrize(
    "message, script, status",
    [
        refused("an edit", f"\t{HEADER}\n", f"echo mine > {HEADER}"),
        refused("a staged edit", f"\t{HEADER}\n", f"echo mine > {HEADER}; git add --all"),
        refused("a shortened file", f"\t{HEADER}\n", f"sed -i '40,$d' {HEADER}"),
        refused("an empty file", f"\t{HEADER}\n", f": > {HEADER}"),
        refused(
            "a staged edit of a file that is now empty",
            f"\t{HEADER}\n",
            f"echo mine > {HEADER}; git add {HEADER}; : > {HEADER}",
        ),
        refused(
            "a file at the path of a new file",
            "\tcmake/mps.cmake\n",
            "mkdir cmake; echo mine > cmake/mps.cmake",
        ),
        refused("a file at the path of a new folder", "\tk2/csrc/mps\n", "echo mine > k2/csrc/mps"),
        refused(
            "a symbolic link at the path of a new folder",
            "\tcmake\n",
            "mkdir ../elsewhere; ln -s ../elsewhere cmake",
        ),
        refused(
            "a folder at the path of a new file",
            "blob.bin\n",
            "mkdir -p k2/python/k2/mps/blob.bin; echo > k2/python/k2/mps/blob.bin/x",
        ),
        refused(
            "an ignored file at the path of a new file",
            "files are in the way in {own}: cmake/mps.cmake\n",
            "echo '*.cmake' > .git/info/exclude; mkdir cmake; echo mine > cmake/mps.cmake",
        ),
        refused(
            "an ignored file at the path of a new folder",
            "files are in the way in {own}: cmake\n",
            "echo cmake > .git/info/exclude; echo mine > cmake",
        ),
        *(
            refused(
                f"an edit that git hides by {flag}",
                f"\t{HEADER}\n",
                f"git update-index {flag} {HEADER}; echo hidden > {HEADER}",
            )
            for flag in ("--assume-unchanged", "--skip-worktree")
        ),
        refused(
            "a commit on branch k2-mps",
            "has commits that patches/ lacks",
            "git checkout -q -b k2-mps; git commit -q --allow-empty -m mine; git checkout -q -",
        ),
        refused(
            "a commit to which no branch leads",
            "no branch or tag leads to it",
            "git checkout -q --detach; echo > new; git add new; git commit -q -m mine",
        ),
        refused(
            "the branch in another worktree",
            "is checked out in {other}",
            "git worktree add -q ../other -b k2-mps",
        ),
        refused("no index", "index is missing", "rm .git/index"),
        refused("a locked index", "index.lock exists", "touch .git/index.lock", BUSY),
        refused("a locked HEAD", "HEAD.lock exists", "touch .git/HEAD.lock", BUSY),
        refused("a locked branch", "k2-mps.lock exists", "touch .git/refs/heads/k2-mps.lock", BUSY),
        refused(
            "a branch whose name begins with k2-mps/",
            "'refs/heads/k2-mps/mine' exists",
            "git branch k2-mps/mine",
        ),
        *(
            refused(f"a {name} in progress", f"a {name} in progress", f"{DIVERGED}{begin}")
            for name, begin in IN_PROGRESS.items()
        ),
        refused(
            "a commit that is still to be picked",
            "a cherry-pick in progress",
            f"{DIVERGED} git checkout -q other; echo > two; git add two; git commit -qm two;"
            " git checkout -q master; git cherry-pick other~1 other || true;"
            " git add --all; git commit -qm picked",
        ),
    ],
)
def test_a_checkout_that_cannot_be_moved_is_refused(sandbox, message, script, status):
    own = sandbox.clone("own")
    support.shell(own, script)
    before = snapshot(own)
    error = sandbox.fails(status, "apply", "--k2", str(own))
    assert message.format(own=own, other=own.parent / "other") in error
    assert snapshot(own) == before


def test_the_advice_for_commits_beside_changed_patches_can_be_followed(sandbox):
    sandbox.ok("apply")
    git(sandbox.checkout, "reset", "--quiet", "--hard", "HEAD~1")
    mine = support.commit(sandbox.checkout, "mine", {"mine": "x\n"})
    (sandbox.root / "patches/files/cmake/mps.cmake").write_text("# new\n")
    message = sandbox.fails(1, "apply")
    assert "k2mps export" not in message  # It would refuse: patches/ has changed.
    support.shell(sandbox.root, re.search(r"next: (git .*), which .*; then k2mps", message)[1])
    sandbox.ok("apply")
    assert git(sandbox.checkout, "rev-parse", f"my-k2-mps-{mine[:12]}") == mine


def test_the_advice_for_a_branch_that_the_user_has_made_can_be_followed(sandbox):
    own = sandbox.clone("own")
    git(own, "checkout", "--quiet", "-b", "k2-mps")
    mine = support.commit(own, "mine", {"mine": "x\n"})
    message = sandbox.fails(1, "apply", "--k2", str(own))
    assert "k2mps export" not in message  # It would refuse: the branch lacks the series.
    support.shell(sandbox.root, re.search(r"next: (git .*), which .*; then k2mps", message)[1])
    sandbox.ok("apply", "--k2", str(own))
    assert git(own, "rev-parse", f"my-k2-mps-{mine[:12]}") == mine


def test_a_commit_on_another_branch_stays_there(sandbox):
    own = sandbox.clone("own")
    mine = support.commit(own, "mine", {"mine": "x\n"})
    sandbox.ok("apply", "--k2", str(own))
    assert git(own, "rev-parse", "master") == mine and sandbox.state(own) == "applied"


def test_the_advice_for_a_commit_without_a_branch_keeps_it(sandbox, k2):
    git(k2, "branch", "mine", "HEAD~1")  # a name that the advice must not need
    git(k2, "checkout", "--quiet", "--detach")
    mine = support.commit(k2, "mine", {"mine": "x\n"})
    support.write(k2, {"scripts/run.sh": "mine\n"})
    git(k2, "stash")  # whose ref leads to the commit, until `git stash pop`
    support.shell(k2, re.search("next: (.*), which keeps it", sandbox.fails(1, "apply"))[1])
    sandbox.ok("apply")
    assert git(k2, "branch", "--contains", mine) and sandbox.state() == "applied"


def test_the_advice_for_commits_on_the_branch_loses_none_of_a_detached_head(sandbox, k2):
    support.commit(k2, "one", {"one": "x\n"})
    git(k2, "checkout", "--quiet", "--detach")
    mine = support.commit(k2, "two", {"two": "x\n"})
    (sandbox.root / "patches/files/cmake/mps.cmake").write_text("# new\n")
    support.shell(k2, re.search("next: (.*), which keeps it", sandbox.fails(1, "apply"))[1])
    support.shell(k2, re.search("next: (.*), then k2mps exp", sandbox.fails(1, "apply"))[1])
    sandbox.ok("export")
    assert git(k2, "branch", "--contains", mine)


def test_the_advice_for_commits_on_the_branch_overwrites_no_ignored_file(sandbox, k2):
    """A pull brings a patch that adds a file at the path of an ignored file of the user."""
    patch = sandbox.root / "patches" / support.NEW
    support.edit(patch, "New-files:\n", "New-files:\n\ta.log\n")
    support.write(sandbox.root / "patches/files", {"a.log": "theirs\n"})
    support.commit(k2, "one", {"one": "x\n"})
    support.write(k2, {"a.log": "mine\n"})
    assert "files are in the way in " in sandbox.fails(1, "apply")
    (k2 / "a.log").rename(k2 / "b.log")
    support.shell(k2, re.search("next: (.*), then k2mps exp", sandbox.fails(1, "apply"))[1])
    assert (k2 / "b.log").read_text() + (k2 / "a.log").read_text() == "mine\ntheirs\n"


def test_untracked_files_elsewhere_do_not_matter(sandbox):
    own = sandbox.clone("own")
    support.write(own, {"notes.txt": "mine\n", "a.log": "x"})
    git(own, "branch", "k2-mps", "HEAD~1")  # a branch without commits of the user
    sandbox.ok("apply", "--k2", str(own))
    assert (own / "notes.txt").read_text() == "mine\n"
    assert sandbox.state(own) == "applied"


def break_first_patch(sandbox):
    patch = sandbox.root / "patches/context-know-mps.patch"
    support.edit(patch, "\n line 49\n", "\n line forty-nine\n")
    sandbox.obtain()


def test_a_patch_that_does_not_apply_is_named(sandbox):
    break_first_patch(sandbox)
    before = snapshot(sandbox.checkout)
    message = sandbox.fails(14, "apply")
    assert snapshot(sandbox.checkout) == before
    assert "patches/context-know-mps.patch:1: does not apply" in message
    assert "docs/contributing.md" in message


def test_a_patch_of_a_file_that_k2_lacks_is_refused(sandbox):
    """The patch names contexts.h, which k2 lacks, instead of context.h."""
    patch = sandbox.root / "patches/context-know-mps.patch"
    patch.write_text(patch.read_text().replace("context.h", "contexts.h"))
    before = support.patches(sandbox)
    assert "k2 has no file k2/csrc/contexts.h" in sandbox.fails(1, "apply")
    assert support.patches(sandbox) == before


@pytest.mark.parametrize("path, code", [("k2/csrc/array.cu", 14), ("CMakeLists.txt/x", 1)])
def test_a_new_file_that_k2_has_is_refused(sandbox, path, code):
    support.write(sandbox.root / "patches/files", {path: "mine\n"})
    patch = sandbox.root / "patches/python-add-only-new-files.patch"
    support.edit(patch, "New-files:\n", f"New-files:\n\t{path}\n")
    before = support.patches(sandbox)
    assert path in sandbox.fails(code, "apply")
    assert support.patches(sandbox) == before


def test_an_edit_made_while_it_runs_is_not_lost(sandbox, tmp_path):
    sandbox.obtain()
    path = sandbox.checkout / "k2/csrc/array.cu"
    edit = f'echo mine > "{path}"'
    env = support.shim(tmp_path / "bin", f'case "$*" in *"switch --quiet"*) {edit};; esac')
    head = git(sandbox.checkout, "rev-parse", "HEAD")
    assert "\tk2/csrc/array.cu\n" in sandbox.fails(1, "apply", env=env)
    assert path.read_text() == "mine\n"
    assert git(sandbox.checkout, "rev-parse", "HEAD") == head
    assert sandbox.state() == "edited"


@pytest.mark.parametrize("moment", ["*switch*", "*update-ref*", '*"-worktrees k2-mps"'])
def test_a_commit_made_while_it_runs_stays_on_the_branch(sandbox, k2, tmp_path, moment):
    """The user commits before git switches; or afterwards, while HEAD is detached."""
    (sandbox.root / "patches/files/cmake/mps.cmake").write_text("# new\n")
    done = tmp_path / "done"
    too_early = "false" if "switch" in moment else f"$real -C {k2} symbolic-ref -q HEAD >{done}.not"
    commit = f"[ -e {done} ] || {too_early} || {{ touch {done}; echo mine > {k2}/mine; cd {k2};"
    commit += " $real add mine; $real -c user.name=a -c user.email=a@b commit -qm mine; }"
    env = support.shim(tmp_path / "bin", f'case "$*" in {moment}) {commit};; esac')
    result = sandbox.run("apply", env=env)
    assert done.exists() and git(k2, "show", "k2-mps:mine") == "mine"
    assert git(k2, "symbolic-ref", "HEAD") == "refs/heads/k2-mps"
    assert git(k2, "status", "--porcelain") == ""
    if "switch" in moment:
        assert result.returncode == 1 and "has moved meanwhile" in result.stderr
        assert "has commits that patches/ lacks" in sandbox.fails(1, "apply")
    else:
        assert result.returncode == 0
        assert sandbox.state() == "edited" and "already applied" in sandbox.ok("apply")


@pytest.mark.parametrize("moment", ["*update-ref*", '*"-worktrees k2-mps"'])
@pytest.mark.parametrize("on_top", [False, True])
def test_a_switch_made_while_it_runs_is_undone(sandbox, k2, tmp_path, moment, on_top):
    """The user switches to another branch, perhaps on top of the series, while HEAD is detached."""
    file = sandbox.root / "patches/files/cmake/mps.cmake"
    old = file.read_text()
    file.write_text("# new\n")
    if on_top:
        sandbox.ok("apply")
        git(k2, "checkout", "--quiet", "-b", "topic")
        support.commit(k2, "topic", {"topic": "x\n"})
        file.write_text(old)
        sandbox.ok("apply")
        file.write_text("# new\n")
    else:
        git(k2, "branch", "topic", "HEAD~1")
    done = tmp_path / "done"
    switch = f"$real -C {k2} symbolic-ref -q HEAD >{done}.not"
    switch += f" || {{ touch {done}; $real -C {k2} switch -q topic; }}"
    env = support.shim(tmp_path / "bin", f'case "$*" in {moment}) {switch};; esac')
    sandbox.ok("apply", env=env)
    assert done.exists() and git(k2, "status", "--porcelain") == ""
    assert (k2 / "cmake/mps.cmake").read_text() == "# new\n" and sandbox.state() == "applied"


def test_an_apply_that_was_killed_before_the_branch_moved_goes_on(sandbox, k2):
    """git has switched the files, and HEAD is detached; the branch and the ref are the old ones."""
    old = git(k2, "rev-parse", "k2-mps"), git(k2, "rev-parse", "refs/k2mps/applied")
    (sandbox.root / "patches/files/cmake/mps.cmake").write_text("# new\n")
    sandbox.ok("apply")
    git(k2, "checkout", "--quiet", "--detach")
    git(k2, "update-ref", "refs/heads/k2-mps", old[0])
    git(k2, "update-ref", "refs/k2mps/applied", old[1])
    support.write(k2, {"scripts/run.sh": "mine\n"})
    assert "next: k2mps apply\n" in sandbox.fails(1, "fold", support.MPS)
    sandbox.ok("apply")
    assert (k2 / "scripts/run.sh").read_text() == "mine\n"
    assert git(k2, "symbolic-ref", "HEAD") == "refs/heads/k2-mps"
    sandbox.ok("fold", support.ARRAY)
    assert sandbox.state() == "applied"


def test_the_files_that_a_killed_switch_has_left_are_completed_by_git(sandbox):
    sandbox.obtain()
    k2 = sandbox.checkout
    # A kill of git leaves some files written, one of them in part.
    lines = support.LONG_FILE.replace("line 50\n", "line fifty\nand a half\n")
    support.write(k2, {"cmake/mps.cmake": "option(K2_WITH_MPS)\n", HEADER: lines[:300]})
    message = sandbox.fails(1, "apply")
    command = re.search("a killed command has left them, (git .*), then the same", message)[1]
    assert command.endswith(f" -- {HEADER} cmake/mps.cmake")
    support.shell(k2, command)
    # The files might be the user's work, so the command keeps them.
    assert git(k2, "show", f"stash:{HEADER}") == lines[:300]
    sandbox.ok("apply")
    assert sandbox.state() == "applied"


def test_a_file_that_the_user_has_removed_from_the_index_is_named_once(sandbox, k2):
    git(k2, "rm", "--quiet", "--cached", "cmake/mps.cmake")
    (sandbox.root / "patches/files/cmake/mps.cmake").write_text("# new\n")
    assert "stash -u -- cmake/mps.cmake, then" in sandbox.fails(1, "apply")


def test_a_file_that_git_could_not_write_is_named(sandbox, tmp_path):
    """In a read-only folder, git prints "error: unable to unlink old ..." but exits with 0."""
    sandbox.obtain()
    refusal = "echo 'error: unable to unlink old' >&2"
    late = f'$real "$@" && echo old > k2/csrc/array.cu && {refusal}; exit'
    env = support.shim(tmp_path / "bin", f'case "$*" in *"switch --quiet"*) {late};; esac')
    for environment in (env, None):
        message = sandbox.fails(1, "apply", env=environment)
        assert "could not write k2/csrc/array.cu in " in message
        # `fold` would take the file's old text for an edit.
        assert "is not on branch k2-mps" in sandbox.fails(1, "fold", support.ARRAY)
        assert "next: k2mps apply, then" in sandbox.fails(1, "export")
        assert "next: k2mps apply\n" in sandbox.ok("status")
    support.shell(sandbox.root, re.search("writable; then (git .*), which writes", message)[1])
    assert git(sandbox.checkout, "show", "stash:k2/csrc/array.cu") == "old"
    assert "applied the series" in sandbox.ok("apply") and sandbox.state() == "applied"


@pytest.mark.parametrize("content", ["", "1" * 40])
@pytest.mark.parametrize("command", ["status", "apply"])
def test_a_broken_ref_is_named(sandbox, content, command):
    """A machine that loses power can leave an empty ref."""
    sandbox.ok("apply")
    ref = sandbox.checkout / ".git/refs/k2mps/applied"
    ref.write_text(content)
    assert f"delete {ref}, then k2mps apply" in sandbox.fails(1, command)
    ref.unlink()
    assert "already applied" in sandbox.ok("apply")
    assert sandbox.state() == "applied"


def test_a_git_that_was_killed_is_not_a_broken_ref(sandbox, k2, tmp_path):
    env = support.shim(tmp_path / "bin", 'case "$*" in *for-each-ref*) kill -9 $$;; esac')
    message = sandbox.fails(1, "status", env=env)
    assert "git for-each-ref was ended by signal 9" in message and "delete" not in message


def test_the_error_for_a_clone_without_the_pin_shows_how_to_fetch_it(sandbox):
    own = sandbox.clone("own")
    pin = support.commit(sandbox.upstream, "later", {"later.txt": "x\n"})
    sandbox.write_config(pin)
    message = sandbox.fails(1, "apply", "--k2", str(own))
    assert f"fetch {sandbox.upstream.as_uri()} {pin}" in message


@pytest.mark.parametrize("applied", [False, True])
def test_the_tools_own_clone_follows_the_pin(sandbox, applied):
    sandbox.ok("apply") if applied else sandbox.obtain()
    pin = support.commit(sandbox.upstream, "later", {"later.txt": "x\n"})
    sandbox.write_config(pin)
    states = ("other commit", "applied by another version of the series")
    assert sandbox.state() == states[applied]
    sandbox.ok("apply")
    assert sandbox.state() == "applied"
    assert git(sandbox.checkout, "rev-parse", "HEAD~3") == pin
    assert (sandbox.checkout / "later.txt").exists()


def test_apply_replaces_a_file_by_a_folder_and_a_folder_by_a_file(exchanged):
    exchanged.ok("apply")
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
    message = exchanged.fails(1, "apply")
    restore, unstage = re.findall("(git -C [^;]*?), which", message)
    support.shell(k2, f"{restore}; {unstage}")
    assert (k2 / "b/mine").read_text() == "mine\n"
    assert git(k2, "status", "--porcelain") == "?? b/mine"


def test_a_folder_at_the_path_of_a_staged_file_in_the_way_is_moved_first(exchanged):
    k2 = exchanged.checkout
    support.shell(k2, "echo mine > b/mine; git add b/mine; rm b/mine; mkdir b/mine; touch b/mine/x")
    message = exchanged.fails(1, "apply")
    assert f"move what is at b/mine out of {k2}; then the same" in message
    assert "rm --cached" not in message


@pytest.mark.parametrize(
    "folder, message",
    [("vendor", "not the top of a git checkout"), ("../plain", "not a git repository")],
)
def test_a_folder_that_is_no_checkout_is_refused(sandbox, folder, message):
    git(sandbox.root, "init", "--quiet")
    path = sandbox.root / folder
    path.mkdir()
    assert message in sandbox.fails(1, "apply", "--k2", str(path))


def test_a_configuration_that_git_cannot_read_is_named(sandbox, k2):
    sandbox.config.write_text("[broken\n")
    message = sandbox.fails(1, "apply")
    assert f"line 1 in file {sandbox.config}" in message
    assert "next: correct what git complains of" in message


def test_filters_of_the_checkout_are_kept(sandbox):
    own = sandbox.clone("own")
    git(own, "config", "core.autocrlf", "true")  # the files still have LF, but git sees no edit
    git(own, "config", "filter.upper.clean", "tr A-Z a-z")
    git(own, "config", "filter.upper.smudge", "tr a-z A-Z")
    (own / ".git/info/attributes").write_text("*.cmake filter=upper\n")
    sandbox.ok("apply", "--k2", str(own))
    assert (own / "cmake/mps.cmake").read_bytes() == b"OPTION(K2_WITH_MPS)\r\n"
    assert git(own, "rev-parse", "HEAD^{tree}") == TREE

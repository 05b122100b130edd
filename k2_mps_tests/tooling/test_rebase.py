"""`k2mps rebase` changes patches/ and the pin, but not the user's checkout."""

import json
import os
import re

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import CONTEXT, LONG_FILE, git, patches, snapshot

OTHERS_WORK = {"k2/csrc/new.cu": "new\n", CONTEXT: "a line before\n" + LONG_FILE}
CONFLICT = {CONTEXT: LONG_FILE.replace("line 50\n", "line 50, better\n")}


def upstream_commit(sandbox, subject, files) -> str:
    """Makes a commit in upstream, and fetches it into the checkout; returns the commit's id."""
    made = support.commit(sandbox.upstream, subject, files)
    git(sandbox.checkout, "fetch", "--quiet", sandbox.upstream.as_uri(), "HEAD")
    return made


def pin(sandbox) -> dict:
    text = (sandbox.root / "upstream.toml").read_text()
    return dict(re.findall(r'^(\w+) = "(\w[^"]*)"', text, re.MULTILINE))


def same_state(sandbox, k2, before) -> None:
    """Checks that the user's files and refs are unchanged, and that the tool has left no files."""
    now = snapshot(k2), patches(sandbox)
    for one in (before[0], now[0]):
        # git may leave FETCH_HEAD, and an empty folder `worktrees`.
        one["git directory"] = [
            name for name in one["git directory"] if name not in ("worktrees", "FETCH_HEAD")
        ]
    assert now == before
    assert not (sandbox.root / "build/rebase").exists()


def rebase_onto_a_release(sandbox):
    """Rebases onto a new version of k2; returns the id of the new commit, and the tool's output."""
    release = {"CMakeLists.txt": 'project(k2)\nset(K2_VERSION "1.1")\n'}
    onto = upstream_commit(sandbox, "Others' work", {**OTHERS_WORK, **release})
    return onto, sandbox.ok("rebase", "--onto", onto)


def test_a_rebase_writes_the_new_pin(sandbox, k2):
    onto, out = rebase_onto_a_release(sandbox)
    assert f"3 patches on k2 1.1, {onto[:12]}" in out
    found = pin(sandbox)
    assert found["commit"] == onto and found["version"] == "1.1"
    text = (sandbox.root / "upstream.toml").read_text()
    assert git(k2, "rev-parse", f"{onto}^{{tree}}") in text and "# where it comes from" in text
    assert "k2_mps_tests.docs" in out and "docs/pull-requests.md" in out


def test_a_rebase_does_not_change_the_checkout(sandbox, k2):
    before = snapshot(k2)
    rebase_onto_a_release(sandbox)
    assert snapshot(k2) == before
    assert sandbox.state() == "applied by another version of the series"
    assert not (sandbox.root / "build/rebase").exists()


def test_after_a_rebase_apply_gives_the_changes_of_both_sides(sandbox, k2):
    onto, _ = rebase_onto_a_release(sandbox)
    sandbox.ok("apply")
    text = (k2 / CONTEXT).read_text()
    assert text.startswith("a line before\nline 1\n")
    assert "line 49\nline fifty\nand a half\nline 51" in text
    assert git(k2, "rev-parse", "HEAD~3") == onto


def test_a_rebase_back_gives_the_same_bytes(sandbox, k2):
    before = patches(sandbox)
    rebase_onto_a_release(sandbox)
    sandbox.ok("apply")
    sandbox.ok("rebase", "--onto", sandbox.pin)
    assert patches(sandbox) == before


def test_a_name_is_looked_up_in_upstream_not_in_the_checkout(sandbox, k2):
    """The checkout's branch master is older than upstream's, and upstream lacks `only-here`."""
    old = git(k2, "rev-parse", "master")
    mine = git(k2, "commit-tree", "-m", "mine", "-p", "master", "master^{tree}")
    git(k2, "branch", "only-here", mine)
    onto = support.commit(sandbox.upstream, "Newer", {"a": "1\n"})
    git(sandbox.upstream, "tag", "v9")
    last = support.commit(sandbox.upstream, "Newer yet", {"a": "2\n"})
    for name, commit in (
        ("v9", onto),
        ("master", last),
        ("master~1", onto),
        ("HEAD", last),
        (onto[:9], onto),
    ):
        sandbox.ok("rebase", "--onto", name)
        assert pin(sandbox)["commit"] == commit, name
    assert git(k2, "rev-parse", "master") == old
    for name in ("only-here", mine):
        assert f"has no commit {name}\n" in sandbox.fails(1, "rebase", "--onto", name)


def conflict(sandbox, subject="Better line"):
    onto = upstream_commit(sandbox, subject, CONFLICT)
    return onto, sandbox.fails(14, "rebase", "--onto", onto)


def resolve(sandbox, text="line fifty, better\nand a half\n"):
    support.resolve(sandbox.root / "build/rebase" / CONTEXT, text)


def test_a_conflict_names_the_patch(sandbox, k2):
    onto, message = conflict(sandbox)
    assert (
        "error: patch 1 of 3, patches/context-know-mps.patch, conflicts with"
        f" {onto[:12]}" in message
    )
    assert f"CONFLICT (content): Merge conflict in {CONTEXT}" in message
    assert "k2mps rebase --continue" in message


def test_a_conflict_lists_the_commits_that_touched_its_lines(sandbox, k2):
    upstream_commit(sandbox, "Others' work", {CONTEXT: "first\n" + LONG_FILE})
    _, message = conflict(sandbox)
    touched = re.findall("touched by [0-9a-f]{12} 2023-11-14 A Contributor: (.*)", message)
    assert touched == ["Others' work", "Better line"]


def test_a_rebase_continues_after_a_resolution(sandbox, k2):
    onto, _ = conflict(sandbox)
    assert "in progress" in sandbox.fails(14, "rebase", "--onto", onto)
    assert "conflicts are left" in sandbox.fails(14, "rebase", "--continue")
    resolve(sandbox)
    sandbox.ok("rebase", "--continue")
    sandbox.ok("apply")
    text = (k2 / CONTEXT).read_text()
    assert "line 49\nline fifty, better\nand a half\nline 51\n" in text
    assert "line 90" not in text
    sandbox.ok("export")
    assert sandbox.state() == "applied"


def test_a_new_file_made_while_resolving_is_not_lost(sandbox, k2):
    conflict(sandbox)
    resolve(sandbox)
    worktree = sandbox.root / "build/rebase"
    support.write(worktree, {"k2/csrc/shim.h": "shim\n"})
    message = sandbox.fails(14, "rebase", "--continue")
    assert "k2/csrc/shim.h in" in message and "git does not track it" in (message)
    assert f"git -C {worktree} add k2/csrc/shim.h" in message
    git(worktree, "add", "k2/csrc/shim.h")
    sandbox.ok("rebase", "--continue")
    text = (sandbox.root / "patches/context-know-mps.patch").read_text()
    assert "\tk2/csrc/shim.h\n" in text
    sandbox.ok("apply")
    assert (k2 / "k2/csrc/shim.h").read_text() == "shim\n"


@pytest.mark.parametrize(
    "file, content",
    [
        pytest.param("k2mps-rebase.json", '{"other": 1}', id="other keys"),
        pytest.param("k2mps-rebase.json", '["a", "b", "c", "d"]', id="the list of an older k2mps"),
        pytest.param("HEAD", "other", id="no HEAD"),
    ],
)
def test_a_rebase_that_cannot_be_read_is_left_alone(sandbox, k2, file, content):
    conflict(sandbox)
    (sandbox.root / "build/rebase/.git" / file).write_text(content)
    for step in ("--continue", "--abort"):
        message = sandbox.fails(14, "rebase", step)
        assert "it is broken, or another version" in message and "rm -rf" in message
    assert (sandbox.root / "build/rebase").exists()


def test_abort_refuses_patches_to_drop(sandbox, k2):
    conflict(sandbox)
    result = sandbox.run("rebase", "--abort", "--drop", "context-know-mps")
    assert result.returncode == 2 and "--drop is an option of --onto" in result.stderr
    assert (sandbox.root / "build/rebase").exists()


def test_a_folder_of_the_users_is_left_alone(sandbox, k2):
    notes = {"build/rebase/notes": "mine\n"}
    support.write(sandbox.root, notes)
    onto = upstream_commit(sandbox, "Newer", {"a": "1\n"})
    assert "exists, but is not a rebase of k2mps" in sandbox.fails(1, "rebase", "--onto", onto)
    for step in ("--continue", "--abort"):
        assert "no rebase is in progress" in sandbox.fails(1, "rebase", step)
    assert (sandbox.root / "build/rebase/notes").read_text() == "mine\n"


@pytest.mark.parametrize("script", ["echo mine > new.h", "echo more >> k2/csrc/array.cu"])
def test_abort_deletes_no_work(sandbox, k2, script):
    conflict(sandbox)
    support.shell(sandbox.root / "build/rebase", script)
    assert "has work of yours" in sandbox.fails(14, "rebase", "--abort")
    assert (sandbox.root / "build/rebase").exists()


def test_a_resolution_after_a_kill_at_the_stop_is_kept(sandbox, k2):
    """The test restores the state after a kill: the conflict is in the files, but not recorded."""
    conflict(sandbox)
    file = sandbox.root / "build/rebase/.git/k2mps-rebase.json"
    position = json.loads(file.read_text())
    file.write_text(json.dumps({**position, "left": [], "shown": False}))
    resolve(sandbox)
    assert "has work of yours" in sandbox.fails(14, "rebase", "--abort")
    sandbox.ok("rebase", "--continue")
    text = (sandbox.root / "patches/context-know-mps.patch").read_text()
    assert "+line fifty, better\n" in text


@pytest.mark.parametrize("script", ["echo mine > new.h", "git commit -q --allow-empty -m mine"])
def test_work_after_a_kill_at_the_end_is_not_deleted(sandbox, k2, tmp_path, script):
    """The rebase was killed after it carried all patches, and before it deleted build/rebase."""
    onto = support.commit(sandbox.upstream, "Better", CONFLICT)
    sandbox.fails(14, "rebase", "--onto", onto)
    resolve(sandbox)
    env = support.shim(tmp_path / "bin", 'case "$*" in *"fetch --quiet"*) kill -9 $PPID;; esac')
    assert sandbox.run("rebase", "--continue", env=env).returncode == -9
    work = sandbox.root / "build/rebase"
    support.shell(work, script)
    for step in ("--continue", "--abort", f"--onto={onto}"):
        message = sandbox.fails(14, "rebase", step)
        assert "has work of yours" in message
    support.shell(work, re.search("next: .*?; then (.*); k2mps", message)[1])
    sandbox.ok("rebase", "--continue")


@pytest.mark.parametrize(
    "script",
    [
        "git checkout -q -b try; git commit -q -m t; echo > n; git add n; git commit -q -m n; "
        "git checkout -q --detach HEAD~1",
        "echo > n; git add n; git stash -q -- n",
    ],
    ids=["branch", "stash"],
)
def test_commits_of_the_users_are_not_deleted(sandbox, k2, script):
    conflict(sandbox)
    resolve(sandbox)
    work = sandbox.root / "build/rebase"
    git(work, "add", "--all")
    support.shell(work, script)
    message = sandbox.fails(14, "rebase", "--continue")
    assert "has commits of yours" in message
    keep, delete = re.search("next: (.*), which keeps them; (.*);", message).groups()
    support.shell(work, f"{keep}; {delete}")
    sandbox.ok("rebase", "--continue")
    assert git(k2, "cat-file", "-t", "of-the-rebase:n") == "blob"


@pytest.mark.parametrize("step", ["--continue", "--abort"])
def test_a_file_that_git_ignores_is_not_deleted(sandbox, k2, step):
    conflict(sandbox)
    work = sandbox.root / "build/rebase"
    if step == "--continue":
        resolve(sandbox)
    support.write(work, {"notes.log": "mine\n", "ignored/mine.h": "mine\n"})
    message = sandbox.fails(14, "rebase", step)
    assert "has work of yours that git ignores: ignored/, notes.log" in message
    assert (work / "notes.log").exists() and (work / "ignored/mine.h").exists()
    support.shell(work, re.search("next: .*?; then (.*); then", message)[1])
    sandbox.ok("rebase", step)
    assert not work.exists()


@pytest.mark.parametrize("branch", [False, True])
def test_a_resolution_that_is_committed_is_taken(sandbox, k2, branch):
    conflict(sandbox)
    resolve(sandbox)
    work = sandbox.root / "build/rebase"
    git(work, "add", "--all")
    if branch:
        git(work, "checkout", "--quiet", "-b", "try")
    git(work, "commit", "--quiet", "-m", "any words")
    sandbox.ok("rebase", "--continue")
    text = (sandbox.root / "patches" / "context-know-mps.patch").read_text()
    assert "+line fifty, better\n" in text and "Subject: context: know mps\n" in text


@pytest.mark.parametrize("left", ["<<<<<<< HEAD", ">>>>>>> 1234567 (x)"])
def test_a_marker_that_is_left_is_refused(sandbox, k2, left):
    conflict(sandbox)
    resolve(sandbox, f"line fifty\n{left}\n")
    git(sandbox.root / "build/rebase", "add", "--all")
    assert f"conflicts are left in {CONTEXT}" in sandbox.fails(14, "rebase", "--continue")


@pytest.mark.parametrize("script", ["git checkout -q -f HEAD~1", "git checkout -q -f --orphan x"])
def test_another_head_in_the_stopped_rebase_is_refused(sandbox, k2, script):
    conflict(sandbox)
    before = patches(sandbox)
    support.shell(sandbox.root / "build/rebase", f"{script}; git commit -q --allow-empty -m x")
    assert "HEAD of " in sandbox.fails(14, "rebase", "--continue")
    assert patches(sandbox) == before


def test_other_commands_are_refused_while_a_rebase_is_stopped(sandbox, k2):
    conflict(sandbox)
    before = snapshot(k2), patches(sandbox)
    for command in (["new", "more"], ["fold", "context-know-mps"], ["export"], ["apply"]):
        assert "a rebase is in progress" in sandbox.fails(14, *command)
    assert (snapshot(k2), patches(sandbox)) == before


def test_a_rebase_may_end_with_another_checkout(sandbox, k2):
    conflict(sandbox)
    own = str(sandbox.clone("own"))
    resolve(sandbox)
    sandbox.ok("rebase", "--continue", "--k2", own)
    for more in ([], ["--k2", own]):
        sandbox.ok("apply", *more)


def test_a_stopped_rebase_overwrites_no_change_of_patches(sandbox, k2):
    """While a rebase is stopped, the user or a git pull may change patches/."""
    conflict(sandbox)
    resolve(sandbox)
    mine = sandbox.root / "patches/context-know-mps.patch"
    locked = mine.read_text()
    support.edit(mine, "know mps", "EDITED")
    before = patches(sandbox)
    message = sandbox.fails(14, "rebase", "--continue")
    assert "patches/context-know-mps.patch changed since" in message
    assert patches(sandbox) == before
    mine.write_text(locked)
    sandbox.ok("rebase", "--continue")


def test_a_project_may_be_moved_while_a_rebase_waits(sandbox, k2):
    conflict(sandbox)
    sandbox.root = sandbox.root.rename(sandbox.root.with_name("moved"))
    resolve(sandbox)
    sandbox.ok("rebase", "--continue")
    assert "applied the series" in sandbox.ok("apply")


def upstream_goes(sandbox):
    os.rename(sandbox.upstream, sandbox.upstream.with_name("gone"))


def work_is_not_exported(sandbox):
    support.commit(sandbox.checkout, "mine", {"mine": "1\n"})


@pytest.mark.parametrize(
    "happens, onto, status, problem",
    [
        (None, "v10", 1, "has no commit v10"),
        (None, "master~99", 1, "has no commit master~99"),
        (upstream_goes, "master", 20, "upstream cannot be reached"),
        # The checkout has the commit before the pin, so the tool needs no upstream.  The series
        # conflicts with that commit.
        (upstream_goes, "{pin}~1", 14, "conflicts with"),
        (work_is_not_exported, "HEAD", 1, " mine"),
    ],
)
def test_a_rebase_that_cannot_begin_changes_nothing(sandbox, k2, happens, onto, status, problem):
    if happens:
        happens(sandbox)
    before = snapshot(k2), patches(sandbox)
    onto = onto.format(pin=sandbox.pin)
    assert problem in sandbox.fails(status, "rebase", "--onto", onto)
    if status == 14:
        sandbox.ok("rebase", "--abort")
    same_state(sandbox, k2, before)


def test_a_patch_that_upstream_has_is_dropped_on_demand(sandbox, k2):
    patch = "array-a-mode-and-line-ends.patch"
    files = {
        CONTEXT: LONG_FILE.replace("line 90\n", ""),
        "k2/csrc/no_newline.txt": "first\nlast, still without",
        "k2/csrc/crlf.txt": "one\r\nTWO\r\nthree\r\n",
    }
    git(sandbox.upstream, "update-index", "--chmod=+x", "k2/csrc/array.cu")
    onto = support.commit(sandbox.upstream, "Merge array", files)
    before = patches(sandbox)
    words = ("rebase", "--onto", onto)
    message = sandbox.fails(14, *words)
    assert f"patches/{patch}, changes nothing" in message and "has its changes already" in message
    assert patches(sandbox) == before
    assert f"next: k2mps rebase --continue --drop {patch}, which drops it" in message
    out = sandbox.ok("rebase", "--continue", "--drop", patch)
    assert f"removed patches/{patch}\n" in out and f"dropped {patch}\n" in out
    assert "2 patches" in out
    after = patches(sandbox)
    support.write(
        sandbox.root,
        {
            path: text.decode()
            for path, text in before.items()
            if path.endswith((".patch", "series", "toml"))
        },
    )
    sandbox.ok(*words, "--drop", patch)
    assert patches(sandbox) == after


def test_a_resolution_that_empties_a_patch_stops_the_rebase(sandbox, k2):
    onto, _ = conflict(sandbox)
    worktree = sandbox.root / "build/rebase"
    git(worktree, "reset", "--quiet", "--hard")
    message = sandbox.fails(14, "rebase", "--continue")
    assert "context-know-mps.patch, changes nothing" in message
    sandbox.ok(*re.search("next: k2mps (rebase --continue --drop [^ ,]+)", message)[1].split())
    assert "context-know-mps" not in (sandbox.root / "patches/series").read_text()


def test_a_file_that_was_renamed_is_followed(sandbox, k2):
    git(sandbox.upstream, "mv", CONTEXT, "k2/csrc/ctx.h")
    sandbox.ok("rebase", "--onto", support.commit(sandbox.upstream, "Rename", {}))
    sandbox.ok("apply")
    assert "line fifty\n" in (k2 / "k2/csrc/ctx.h").read_text()


def test_a_file_that_upstream_deletes_stops_the_rebase(sandbox, k2):
    git(sandbox.upstream, "rm", "--quiet", CONTEXT)
    onto = support.commit(sandbox.upstream, "Drop context", {})
    message = sandbox.fails(14, "rebase", "--onto", onto)
    assert f"CONFLICT (modify/delete): {CONTEXT} deleted" in message
    assert f"touched by {onto[:12]} 2023-11-14 A Contributor: Drop" in message
    # Only the user can decide whether the file stays.
    assert "conflicts are left" in sandbox.fails(14, "rebase", "--continue")
    git(sandbox.root / "build/rebase", "rm", "--quiet", "--force", CONTEXT)
    message = sandbox.fails(14, "rebase", "--continue")
    assert "patch 2 of 3, patches/array-a-mode-and-line-ends.patch," in message
    git(sandbox.root / "build/rebase", "rm", "--quiet", "--force", CONTEXT)
    sandbox.ok("rebase", "--continue")
    sandbox.ok("apply")
    assert not (k2 / CONTEXT).exists()


@pytest.mark.parametrize(
    "files, problem",
    [
        ({"cmake/mps.cmake": "other\n"}, "CONFLICT (add/add): Merge conflict in cmake/mps.cmake"),
        ({"cmake": "a file\n"}, "patches/context-know-mps.patch, conflicts with"),
    ],
)
def test_a_new_file_that_upstream_has_added_is_a_conflict(sandbox, k2, files, problem):
    onto = upstream_commit(sandbox, "Own mps", files)
    before = snapshot(k2), patches(sandbox)
    assert problem in sandbox.fails(14, "rebase", "--onto", onto)
    sandbox.ok("rebase", "--abort")
    same_state(sandbox, k2, before)
    for step in ("--abort", "--continue"):
        assert "no rebase is in progress" in sandbox.fails(1, "rebase", step)

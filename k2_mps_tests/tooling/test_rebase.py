"""`k2mps rebase` runs git's rebase, and `k2mps export --onto` writes patches/ and the pin."""

import os
import re
import signal

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import ARRAY, CONTEXT, LONG_FILE, MPS, git, patches, snapshot

LEFT_OUT = "changes of commits that it had before a rebase:"
OTHERS_WORK = {"k2/csrc/new.cu": "new\n", CONTEXT: "a line before\n" + LONG_FILE}
CONFLICT = {CONTEXT: LONG_FILE.replace("line 50\n", "line 50, better\n")}
# The changes of the patch ARRAY.
SUPERSEDES = {
    CONTEXT: LONG_FILE.replace("line 90\n", ""),
    "k2/csrc/no_newline.txt": "first\nlast, still without",
    "k2/csrc/crlf.txt": "one\r\nTWO\r\nthree\r\n",
}


@pytest.fixture
def sandbox(sandbox):
    """The sandbox, with a name for the user: `git rebase` makes commits."""
    sandbox.config.write_text("[user]\n\tname = Me\n\temail = me@example.org\n")
    return sandbox


def pin(sandbox) -> dict:
    text = (sandbox.root / "upstream.toml").read_text()
    return dict(re.findall(r'^(\w+) = "(\w[^"]*)"', text, re.MULTILINE))


def onto_a_release(sandbox) -> tuple[str, str]:
    """Rebases onto a new version of k2; returns the id of the new commit, and the tool's output."""
    release = {"CMakeLists.txt": 'project(k2)\nset(K2_VERSION "1.1")\n'}
    onto = support.commit(sandbox.upstream, "Others' work", {**OTHERS_WORK, **release})
    return onto, sandbox.ok("rebase", "--onto", onto)


def stopped(sandbox) -> tuple[str, str]:
    """Rebases onto a commit with which the first patch conflicts; returns id and output."""
    onto = support.commit(sandbox.upstream, "Better line", CONFLICT)
    result = sandbox.run("rebase", "--onto", onto)
    assert result.returncode == 14, result.stderr
    return onto, result.stdout + result.stderr


def resolve(k2, text="line fifty, better\nand a half\n"):
    support.resolve(k2 / CONTEXT, text)
    git(k2, "add", CONTEXT)
    git(k2, "rebase", "--continue", env={"GIT_EDITOR": ":"})


def test_a_rebase_writes_the_new_pin(sandbox, k2):
    onto, out = onto_a_release(sandbox)
    assert f"3 patches on k2 1.1, {onto[:12]}" in out
    found = pin(sandbox)
    assert found["commit"] == onto and found["version"] == "1.1"
    text = (sandbox.root / "upstream.toml").read_text()
    assert git(k2, "rev-parse", f"{onto}^{{tree}}") in text and "# where it comes from" in text
    assert "k2_mps_tests.docs" in out and "docs/pull-requests.md" in out


def test_the_commands_of_git_are_printed(sandbox, k2):
    onto, out = onto_a_release(sandbox)
    url = sandbox.upstream.as_uri()
    assert re.findall(r"^\+ (.*)$", out, re.MULTILINE) == [
        f"git -C {k2} fetch {url} refs/heads/master",
        f"git -C {k2} -c rebase.updateRefs=false rebase --no-autostash --onto {onto} {sandbox.pin}"
        " k2-mps",
        f"k2mps export --onto {onto[:12]}",
    ]


def test_after_a_rebase_the_series_is_applied(sandbox, k2):
    onto, _ = onto_a_release(sandbox)
    assert "already applied" in sandbox.ok("apply")
    text = (k2 / CONTEXT).read_text()
    assert text.startswith("a line before\nline 1\n")
    assert "line 49\nline fifty\nand a half\nline 51" in text
    assert git(k2, "rev-parse", "HEAD~3") == onto
    own = sandbox.clone("own")
    sandbox.ok("apply", "--k2", str(own))
    assert git(own, "rev-parse", "HEAD") == git(k2, "rev-parse", "HEAD")


def test_a_rebase_back_gives_the_same_bytes(sandbox, k2):
    before = patches(sandbox)
    onto_a_release(sandbox)
    sandbox.ok("rebase", "--onto", sandbox.pin)
    assert patches(sandbox) == before


def test_a_name_is_looked_up_in_upstream_not_in_the_checkout(sandbox, k2):
    """The checkout's branch master is older than upstream's, and upstream lacks `only-here`."""
    refs = "for-each-ref", "refs/heads/master", "refs/remotes", "refs/tags"
    old = git(k2, *refs)
    mine = git(k2, "commit-tree", "-m", "mine", "-p", "master", "master^{tree}")
    git(k2, "branch", "only-here", mine)
    onto = support.commit(sandbox.upstream, "Newer", {"a": "1\n"})
    git(sandbox.upstream, "tag", "-a", "v9", "-m", "v9")
    last = support.commit(sandbox.upstream, "Newer yet", {"a": "2\n"})
    for name, commit in (
        ("v9", onto),
        ("master", last),
        ("master~1", onto),
        ("refs/heads/master", last),
        (onto[:9], onto),
        ("HEAD", last),
    ):
        sandbox.ok("rebase", "--onto", name)
        assert pin(sandbox)["commit"] == commit, name
    assert git(k2, *refs) == old
    for name in ("only-here", mine, "v10", "master~99", ""):
        assert f"has no commit {name}\n" in sandbox.fails(1, "rebase", "--onto", name)


def test_a_fetch_writes_all_objects_or_none(sandbox, k2):
    """git renames a pack when it is complete, but writes unpacked objects one by one."""
    onto = support.commit(sandbox.upstream, "Others' work", OTHERS_WORK)
    sandbox.ok("rebase", "--onto", onto)
    assert git(k2, "cat-file", "-t", onto) == "commit"
    assert not (k2 / ".git/objects" / onto[:2] / onto[2:]).exists()


def test_without_upstream_only_a_known_commit_is_accepted(sandbox, k2):
    os.rename(sandbox.upstream, sandbox.upstream.with_name("gone"))
    before = patches(sandbox), git(k2, "rev-parse", "k2-mps")
    assert "cannot be reached" in sandbox.fails(20, "rebase", "--onto", "master")
    sandbox.fails(14, "rebase", "--onto", f"{sandbox.pin}~1")
    git(k2, "rebase", "--abort")
    assert (patches(sandbox), git(k2, "rev-parse", "k2-mps")) == before


def test_a_conflict_is_gits_and_export_ends_the_rebase(sandbox, k2):
    onto, message = stopped(sandbox)
    export = f"k2mps export --onto {onto[:12]}"
    assert f"CONFLICT (content): Merge conflict in {CONTEXT}" in message
    assert f"rebase --continue, --skip or --abort; after the last one, {export}" in message
    assert "--skip and --abort also discard other edits" in message
    status = sandbox.ok("status")
    assert export in status and "a rebase is in progress" in status
    assert "Better line" not in status  # upstream's commit is not the user's
    for command in (["export"], ["fold", MPS], ["rebase", "--onto", onto], ["apply"]):
        sandbox.fails(1, *command)
    resolve(k2)
    assert f"next: {export}\n" in sandbox.ok("status")
    assert "Better line" not in sandbox.fails(1, "apply")
    support.edit(k2 / "k2/csrc/array.cu", "array 7\n", "seven\n")
    assert "commit the edits, or git" in sandbox.ok("status")  # fold would refuse
    git(k2, "checkout", "k2/csrc/array.cu")
    for command in (["export"], ["new", "x"], ["rebase", "--onto", onto]):
        assert export in sandbox.fails(1, *command)
    before = patches(sandbox)
    sandbox.ok("export", "--onto", onto[:12])
    assert sandbox.state() == "applied" and pin(sandbox)["commit"] == onto
    text = (sandbox.root / f"patches/{MPS}").read_text()
    assert "+line fifty, better\n" in text
    head = before[f"patches/{MPS}"].decode().partition("---\n")[0]
    assert text.startswith(head)  # Subject, author, date, status and body stay.


@pytest.mark.parametrize("left", ["<<<<<<< HEAD", ">>>>>>> 1234567 (x)"])
def test_a_conflict_marker_that_is_left_is_refused(sandbox, k2, left):
    onto, _ = stopped(sandbox)
    resolve(k2, f"line fifty\n{left}\n")
    before = patches(sandbox)
    assert "adds a conflict marker of git" in sandbox.fails(1, "export", "--onto", onto)
    assert patches(sandbox) == before


def test_an_aborted_rebase_leaves_no_trace(sandbox, k2):
    before = patches(sandbox), git(k2, "rev-parse", "k2-mps")
    stopped(sandbox)
    git(k2, "rebase", "--abort")
    assert (patches(sandbox), git(k2, "rev-parse", "k2-mps")) == before
    assert sandbox.state() == "applied"


def test_a_patch_that_upstream_has_is_named_and_deleted(sandbox, k2):
    git(sandbox.upstream, "update-index", "--chmod=+x", "k2/csrc/array.cu")
    onto = support.commit(sandbox.upstream, "Merge array", SUPERSEDES)
    out = sandbox.ok("rebase", "--onto", onto)
    assert f"k2 has the changes of patches/{ARRAY} at {onto[:12]}" in out
    assert f"removed patches/{ARRAY}\n" in out and "2 patches" in out
    assert pin(sandbox)["commit"] == onto and sandbox.state() == "applied"


def test_a_patch_that_the_user_skips_is_named(sandbox, k2):
    onto, _ = stopped(sandbox)
    support.shell(k2, "git rebase --skip || git rebase --skip || git rebase --skip")
    message = sandbox.fails(1, "export", "--onto", onto)
    assert f"patches/{MPS}" in message and "dropped by mistake" in message


def test_a_patch_that_a_rebase_has_lost_is_brought_back(sandbox, k2):
    """Runs the command that the refusal names first."""
    onto = support.commit(sandbox.upstream, "Others' work", OTHERS_WORK)
    support.rebase(sandbox, k2, onto)
    git(k2, "reset", "--quiet", "--hard", "HEAD~2")
    message = sandbox.fails(1, "export", "--onto", onto)
    (command,) = re.findall(r"next: (git .* cherry-pick [0-9a-f ]+), which", message)
    support.shell(k2, command)
    sandbox.ok("export", "--onto", onto)
    assert sandbox.order() == [MPS, ARRAY, support.NEW] and sandbox.state() == "applied"


# A hook of git for the checkout.  It notes when git has moved a commit, and then takes a second.
HOOK = "#!/bin/sh\ntouch started\nsleep 1\n"
UNDO = (
    r"next: (git .* stash -u), which .*; then (git .* --abort), which .* discards commits .*;"
    r" if git refuses that, (git .* --quit); (git .* checkout --no-overwrite-ignore k2-mps)"
)


def interrupted(sandbox, k2, whole_group: bool) -> tuple[str, str]:
    """Interrupts a rebase while git picks a commit; returns the new base and the tool's output.

    Args:
      whole_group: whether git gets the signal, too, as from Ctrl-C in a terminal.
    """
    onto = support.commit(sandbox.upstream, "Others' work", OTHERS_WORK)
    support.write(k2, {".git/hooks/post-commit": HOOK})
    (k2 / ".git/hooks/post-commit").chmod(0o755)
    running = sandbox.start("rebase", "--onto", onto, start_new_session=True)
    support.wait_for(k2 / "started")
    (os.killpg if whole_group else os.kill)(running.pid, signal.SIGINT)
    output, _ = running.communicate(timeout=60)
    assert running.returncode == 130 and "error: interrupted\n  next: " in output, output
    (k2 / ".git/hooks/post-commit").unlink()
    (k2 / "started").unlink()
    return onto, output


def test_a_rebase_that_ctrl_c_ends_is_undone_by_git(sandbox, k2):
    before = patches(sandbox), git(k2, "rev-parse", "k2-mps")
    _, output = interrupted(sandbox, k2, whole_group=True)
    (undo,) = re.findall(UNDO, output)
    support.write(k2, {"CMakeLists.txt": "mine\n", "cmake/mps.cmake": "mine\n"})
    git(k2, "rm", "--quiet", "--cached", "--ignore-unmatch", "cmake/mps.cmake")
    support.shell(k2, f"{undo[0]}; {undo[1]} || ({undo[2]}; {undo[3]})")
    assert git(k2, "show", "stash:CMakeLists.txt", "stash^3:cmake/mps.cmake") == "mine\nmine"
    assert (patches(sandbox), git(k2, "rev-parse", "HEAD")) == before
    assert sandbox.state() == "applied" and not git(k2, "status", "--porcelain")


def test_a_signal_that_ends_git_is_not_a_conflict(sandbox, k2):
    onto = support.commit(sandbox.upstream, "Others' work", OTHERS_WORK)
    script = 'case "$*" in *"rebase "*"--onto"*) kill -KILL $$;; esac'
    variables = support.shim(sandbox.root.parent / "bin", script)
    error = sandbox.fails(1, "rebase", "--onto", onto, env=variables)
    assert f"git rebase was ended by signal {signal.SIGKILL}" in error and re.search(UNDO, error)


@pytest.fixture
def killed(sandbox, k2, tmp_path) -> str:
    """A rebase that was killed while git picked the second of two commits of the user.

    git merges the files of a commit by a driver, which kills git.

    Returns:
      The new base.
    """
    for line in (20, 30):
        support.edit(k2 / CONTEXT, f"line {line}\n", f"mine {line}\n")
        git(k2, "commit", "--quiet", "--all", "-m", f"mine {line}")
    onto = support.commit(sandbox.upstream, "Others' work", OTHERS_WORK)
    driver = tmp_path / "driver"
    script = 'grep -q "mine 30" "$3" && kill -9 $PPID\nexec git merge-file "$@"\n'
    driver.write_text(f"#!/bin/sh\n{script}")
    driver.chmod(0o755)
    support.write(k2, {".git/info/attributes": "*.h merge=killer\n"})
    git(k2, "config", "merge.killer.driver", f"exec {driver} %A %O %B")
    assert "git rebase was ended by signal 9" in sandbox.fails(1, "rebase", "--onto", onto)
    (k2 / ".git/index.lock").unlink()
    (k2 / ".git/info/attributes").unlink()
    return onto


def test_a_rebase_that_was_killed_is_undone_by_git(sandbox, k2, killed):
    status = sandbox.ok("status")
    assert "a rebase is running, or was killed" in status and "--continue" not in status
    (undo,) = re.findall(UNDO.replace("next: ", "next: if .*, "), status)
    assert "next: k2mps status, which" in sandbox.fails(1, "rebase", "--onto", killed)
    support.shell(k2, f"{undo[0]}; {undo[1]}")
    sandbox.ok("rebase", "--onto", killed)
    assert sandbox.order()[-2:] == ["mine-20.patch", "mine-30.patch"]


def test_a_commit_that_git_skips_after_a_kill_is_named(sandbox, k2, killed):
    """If the user continues the rebase, git drops the commit without a word."""
    git(k2, "rebase", "--continue")
    assert (k2 / CONTEXT).read_text().count("mine") == 1
    message = sandbox.run("export", "--onto", killed).stderr
    skipped = re.search(f"{LEFT_OUT} ([0-9a-f]{{12}}) mine 30; `(git .*)` brings", message)
    support.shell(k2, f"{skipped[2]} {skipped[1]}")
    assert LEFT_OUT not in sandbox.run("export").stderr
    assert sandbox.order()[-2:] == ["mine-20.patch", "mine-30.patch"]
    assert "is up to date already" in sandbox.ok("export")


def test_a_merge_that_a_rebase_has_left_out_is_brought_back(sandbox, k2):
    """The user resolved a conflict in the merge; `git rebase` leaves merges out."""
    support.shell(
        k2,
        "git checkout -qb side HEAD~; echo side > a; git add a; git commit -qm side;"
        " git checkout -q k2-mps; git merge -q --no-commit side; echo merged > b; git add b;"
        " git commit -qm merged",
    )
    merge = git(k2, "rev-parse", "--short=12", "HEAD")
    git(k2, "rebase", "--quiet", sandbox.pin)
    left_out = re.search(f"{LEFT_OUT} {merge} merged; `(.*)`", sandbox.run("export").stderr)
    git(k2, "reset", "--quiet", "--hard", "HEAD~")  # the merge brings the commit `side`, too
    support.shell(k2, f"{left_out[1]} {merge}")
    assert (k2 / "a").read_text() + (k2 / "b").read_text() == "side\nmerged\n"


def test_a_left_out_commit_with_the_subject_of_another_is_named(sandbox, k2):
    """Two commits of one second have one subject, as the halves of a commit that was split."""
    date = {"GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z"}
    for line in (20, 30):
        support.edit(k2 / CONTEXT, f"line {line}\n", f"mine {line}\n")
        git(k2, "commit", "--quiet", "--all", "-m", "wip", env=date)
    drop = {"GIT_SEQUENCE_EDITOR": "sed -i.bak 1s/^pick/drop/"}
    first = git(k2, "rev-parse", "--short=12", "HEAD~1")
    git(k2, "rebase", "--quiet", "--interactive", "HEAD~2", env=drop)
    assert f"{LEFT_OUT} {first} wip;" in sandbox.run("export").stderr


def test_two_fixups_of_one_line_are_exported(sandbox, k2):
    """The steps of docs/contributing.md, twice before `export`."""
    for old, new in (("array 7", "first"), ("first", "second")):
        patched = git(k2, "log", "--format=%h", f"--grep=Patch-Filename: {ARRAY}")
        support.edit(k2 / "k2/csrc/array.cu", f"{old}\n", f"{new}\n")
        git(k2, "commit", "--quiet", "--all", f"--fixup={patched}")
        rebase = ("rebase", "--quiet", "--interactive", "--autosquash", f"{patched}~")
        git(k2, *rebase, env={"GIT_SEQUENCE_EDITOR": "true"})
    sandbox.ok("export")
    assert "+second\n" in (sandbox.root / "patches" / ARRAY).read_text()


def test_a_commit_that_a_rebase_has_changed_is_not_missed(sandbox, k2):
    """git stops at a conflict; then the user rewords one commit, and squashes another."""
    conflict = {CONTEXT: (k2 / CONTEXT).read_text().replace("line 30", "mine 30")}
    for subject, files in {"one": conflict, "two": {"2": "2\n"}, "three": {"3": "3\n"}}.items():
        support.commit(k2, subject, files)
    upstreams = {CONTEXT: LONG_FILE.replace("line 30", "thirty")}
    onto = support.commit(sandbox.upstream, "Line 30", upstreams)
    sandbox.fails(14, "rebase", "--onto", onto)
    resolve(k2, "thirty, mine\n")
    todo = "sed -i.bak -e '1s/^pick/reword/' -e '2s/^pick/fixup/'"
    env = {"GIT_SEQUENCE_EDITOR": todo, "GIT_EDITOR": "sed -i.bak 1s/two/reworded/"}
    git(k2, "rebase", "--interactive", "HEAD~2", env=env)
    assert f"k2mps export --onto {onto[:12]}\n" in sandbox.ok("status")
    result = sandbox.run("export", "--onto", onto)
    assert not result.returncode and LEFT_OUT not in result.stderr
    assert sandbox.order()[-2:] == ["one.patch", "reworded.patch"]


def test_a_signal_to_the_tool_alone_does_not_end_git(sandbox, k2):
    onto, output = interrupted(sandbox, k2, whole_group=False)
    assert f"next: k2mps export --onto {onto[:12]}, because git has ended" in output
    sandbox.ok("export", "--onto", onto)
    assert pin(sandbox)["commit"] == onto and sandbox.state() == "applied"


def test_a_commit_to_which_no_branch_leads_is_not_left_behind(sandbox, k2):
    git(k2, "checkout", "--quiet", "--detach")
    mine = support.commit(k2, "mine", {"mine": "1\n"})
    onto = support.commit(sandbox.upstream, "Newer", OTHERS_WORK)
    before = snapshot(k2), patches(sandbox)
    error = sandbox.fails(1, "rebase", "--onto", onto)
    assert "no branch or tag leads to it" in error
    assert (snapshot(k2), patches(sandbox)) == before
    support.shell(k2, re.search("next: (.*), which keeps it", error)[1])
    sandbox.ok("rebase", "--onto", onto)
    assert git(k2, "branch", "--contains", mine)


@pytest.mark.parametrize("script", ["echo mine > k2/csrc/array.cu", "echo mine > cmake/mps.cmake"])
def test_git_refuses_to_rebase_edits(sandbox, k2, script):
    support.shell(k2, script)
    onto = support.commit(sandbox.upstream, "Newer", OTHERS_WORK)
    before = snapshot(k2), patches(sandbox)
    message = sandbox.fails(1, "rebase", "--onto", onto)
    assert "git has not rebased branch k2-mps" in message
    assert (snapshot(k2), patches(sandbox)) == before
    support.shell(k2, re.search("git's, (git .* stash -u), which keeps", message)[1])
    sandbox.ok("rebase", "--onto", onto)
    assert "+mine" in git(k2, "stash", "show", "--patch")


@pytest.mark.parametrize("mark", ["#", ";"])
def test_a_line_of_a_message_that_git_would_drop_is_refused(sandbox, k2, mark):
    """git drops the line if a commit conflicts, and the user continues the rebase."""
    support.edit(k2 / "k2/csrc/array.cu", "array 7\n", "mine\n")
    message = f"mine\n\n{mark}1349 differs\n"
    git(k2, "commit", "--quiet", "--all", "--cleanup=verbatim", "-m", message)
    if mark == ";":
        git(k2, "config", "core.commentChar", mark)
    theirs = git(k2, "show", "HEAD~3:k2/csrc/array.cu").replace("array 7\n", "theirs\n")
    onto = support.commit(sandbox.upstream, "Newer", {"k2/csrc/array.cu": f"{theirs}\n"})
    error = sandbox.fails(1, "rebase", "--onto", onto)
    assert f"begins with {mark}" in error
    support.shell(sandbox.root, re.search("next: (git .*), so", error)[1])
    assert sandbox.run("rebase", "--onto", onto).returncode == 14
    support.resolve(k2 / "k2/csrc/array.cu", "both\n")
    git(k2, "add", "k2/csrc/array.cu")
    git(k2, "rebase", "--continue", env={"GIT_EDITOR": ":"})
    assert git(k2, "log", "-1", "--format=%B", "k2-mps") == message.strip()


def test_a_staged_version_is_not_put_into_an_autostash(sandbox, k2):
    """`git stash pop` brings back the file, not the staged version."""
    git(k2, "config", "rebase.autoStash", "true")
    git(k2, "config", "rebase.updateRefs", "true")
    git(k2, "branch", "theirs", "HEAD~1")
    theirs = git(k2, "rev-parse", "theirs")
    support.shell(k2, "echo staged > k2/csrc/array.cu; git add -u; echo mine > k2/csrc/array.cu")
    onto = support.commit(sandbox.upstream, "Newer", OTHERS_WORK)
    before = snapshot(k2)
    assert "git has not rebased" in sandbox.fails(1, "rebase", "--onto", onto)
    assert snapshot(k2) == before
    support.shell(k2, "git reset --quiet --hard")
    sandbox.ok("rebase", "--onto", onto)
    assert git(k2, "rev-parse", "theirs") == theirs


@pytest.mark.parametrize("mine, others", [("new.log", "new.log"), ("a.log", "a.log/x")])
def test_an_ignored_file_is_not_overwritten(sandbox, k2, mine, others):
    support.write(k2, {mine: "mine\n"})
    onto = support.commit(sandbox.upstream, "A log", {others: "log\n"})
    before = snapshot(k2)
    message = sandbox.fails(1, "rebase", "--onto", onto)
    assert f"files are in the way in {k2}: {mine}\n" in message
    assert snapshot(k2)["files"] == before["files"]
    (k2 / mine).unlink()
    sandbox.ok("rebase", "--onto", onto)


def test_an_ignored_file_on_another_branch_is_not_overwritten(sandbox, k2):
    """git checks out branch k2-mps, which has a file at the path."""
    git(k2, "checkout", "--quiet", "master")
    support.write(k2, {"cmake/mps.cmake": "mine\n", ".git/info/exclude": "*.cmake\n"})
    onto = support.commit(sandbox.upstream, "Newer", OTHERS_WORK)
    message = sandbox.fails(1, "rebase", "--onto", onto)
    assert f"files are in the way in {k2}: cmake/mps.cmake\n" in message
    assert (k2 / "cmake/mps.cmake").read_text() == "mine\n"


def test_an_ignored_file_that_only_an_older_commit_has_is_not_overwritten(sandbox, k2):
    support.write(k2, {".git/info/exclude": "*.log\n", "run.log": "oops\n"})
    git(k2, "add", "--force", "run.log")
    git(k2, "commit", "--quiet", "-m", "oops")
    git(k2, "rm", "--quiet", "run.log")
    git(k2, "commit", "--quiet", "-m", "no log")
    support.write(k2, {"run.log": "mine\n"})
    onto = support.commit(sandbox.upstream, "Newer", OTHERS_WORK)
    assert "files are in the way" in sandbox.fails(1, "rebase", "--onto", onto)
    assert (k2 / "run.log").read_text() == "mine\n"


def test_a_commit_made_while_git_fetches_is_not_left_behind(sandbox, k2, tmp_path):
    words = "-c user.name=me -c user.email=me commit --quiet --allow-empty -m mine"
    script = f'case "$*" in *" fetch "*) $real -C {k2} switch --quiet --detach;'
    env = support.shim(tmp_path / "bin", f"{script} $real -C {k2} {words};; esac")
    onto = support.commit(sandbox.upstream, "Newer", OTHERS_WORK)
    assert "no branch or tag leads to it" in sandbox.fails(1, "rebase", "--onto", onto, env=env)


def test_a_rebase_made_while_git_fetches_is_noticed(sandbox, k2, tmp_path):
    """Otherwise the upstream commit, onto which the user has rebased, would become a patch."""
    git(sandbox.upstream, "checkout", "--quiet", "-b", "release")
    release = support.commit(sandbox.upstream, "Release", {"release": "1\n"})
    git(k2, "fetch", "--quiet", sandbox.upstream.as_uri(), release)
    git(sandbox.upstream, "checkout", "--quiet", "master")
    onto = support.commit(sandbox.upstream, "Newer", OTHERS_WORK)
    words = f"rebase --quiet --onto {release} {sandbox.pin} k2-mps"
    script = f'case "$*" in *" fetch "*) $real -C {k2} {words};; esac'
    env = support.shim(tmp_path / "bin", script)
    error = sandbox.fails(1, "rebase", "--onto", onto, env=env)
    assert f"git has rebased it onto {release[:12]}" in error
    assert git(k2, "rev-parse", "k2-mps~3") == release and pin(sandbox)["commit"] == sandbox.pin


def test_a_file_that_git_could_not_write_is_named(sandbox, k2, tmp_path):
    """If a folder is read-only, git deletes files in other folders before it gives up."""
    refusal = "echo 'error: could not detach HEAD' >&2; exit 1"
    script = f'case "$*" in *"rebase "*"--onto"*) rm {k2}/cmake/mps.cmake; {refusal};; esac'
    onto = support.commit(sandbox.upstream, "Newer", OTHERS_WORK)
    env = support.shim(tmp_path / "bin", script)
    message = sandbox.fails(1, "rebase", "--onto", onto, env=env)
    assert "git could not write cmake/mps.cmake in " in message
    restore = "1 of them deleted: cmake/mps.cmake; (git .* restore -- )FILE brings a file back"
    support.shell(sandbox.root, re.search(restore, sandbox.ok("status"))[1] + "cmake/mps.cmake")
    (k2 / "cmake/mps.cmake").unlink()
    support.shell(sandbox.root, re.search("writable; then (git .*), which writes", message)[1])
    sandbox.ok("rebase", "--onto", onto)
    assert (k2 / "cmake/mps.cmake").exists()


def test_a_rebase_that_stops_without_a_conflict_names_no_conflict(sandbox, k2):
    support.write(k2, {".git/hooks/prepare-commit-msg": "#!/bin/sh\nexit 1\n"})
    (k2 / ".git/hooks/prepare-commit-msg").chmod(0o755)
    onto = support.commit(sandbox.upstream, "Newer", OTHERS_WORK)
    message = sandbox.fails(14, "rebase", "--onto", onto)
    assert "why: git's message above has the reason\n" in message


def test_commits_of_the_user_are_rebased_too(sandbox, k2):
    support.commit(k2, "mine", {"mine": "1\n"})
    onto = support.commit(sandbox.upstream, "Newer", OTHERS_WORK)
    sandbox.ok("rebase", "--onto", onto)
    assert (sandbox.root / "patches/mine.patch").exists() and sandbox.state() == "applied"


def test_patches_that_were_not_applied_are_not_rebased(sandbox, k2):
    """Otherwise the export would refuse only after the user has resolved all conflicts."""
    onto = support.commit(sandbox.upstream, "Newer", OTHERS_WORK)
    (sandbox.root / "patches/files/cmake/mps.cmake").write_text("new\n")
    assert "next: k2mps apply\n" in sandbox.fails(1, "rebase", "--onto", onto)


def test_a_pin_on_which_the_branch_does_not_stand_is_refused(sandbox, k2):
    older = support.commit(sandbox.upstream, "Newer", {"a": "1\n"})
    onto = support.commit(sandbox.upstream, "Better line", CONFLICT)
    before = patches(sandbox)
    message = sandbox.fails(1, "export", "--onto", onto)
    assert f"next: k2mps rebase --onto {onto[:12]}\n" in message
    assert "k2mps rebase --onto" in sandbox.fails(1, "export", "--onto", f"{sandbox.pin}~1")
    sandbox.fails(14, "rebase", "--onto", onto)
    resolve(k2)
    # Upstream's last commit would become a patch.
    message = sandbox.fails(1, "export", "--onto", older)
    assert f"it starts from {onto[:12]}\n" in message
    advice = f"next: k2mps export --onto {onto[:12]}, then k2mps rebase --onto {older[:12]}\n"
    assert advice in message
    assert patches(sandbox) == before


MOVES = {
    "rebase": "git checkout -q -b topic; git rebase -q --onto $onto $pin; git checkout -q k2-mps;"
    " git reset -q --hard topic; git branch -q -D topic",
    "cherry-pick": "git checkout -q -b topic $onto; git cherry-pick $pin..k2-mps;"
    " git branch -q -f k2-mps topic; git checkout -q k2-mps",
    "pull": "git pull -q --rebase origin master",
    "rebase after another": "git rebase -q --force-rebase $pin; git checkout -q -b topic;"
    " git rebase -q --onto $onto $pin; git checkout -q -B k2-mps",
}


@pytest.mark.parametrize("move", MOVES)
def test_the_branch_is_moved_to_a_rebased_branch(sandbox, k2, move):
    """Upstream's commits do not become patches."""
    onto = support.commit(sandbox.upstream, "Others' work", OTHERS_WORK)
    git(k2, "fetch", "--quiet", sandbox.upstream.as_uri(), onto)
    support.shell(k2, f"onto={onto} pin={sandbox.pin}; {MOVES[move]}")
    before = patches(sandbox)
    assert f"next: k2mps export --onto {onto[:12]}\n" in sandbox.ok("status")
    assert f"next: k2mps export --onto {onto[:12]};" in sandbox.fails(1, "export")
    assert f"k2mps export --onto {onto[:12]} makes" in sandbox.fails(1, "apply")
    assert patches(sandbox) == before
    sandbox.ok("export", "--onto", onto)
    assert pin(sandbox)["commit"] == onto and sandbox.order() == [MPS, ARRAY, support.NEW]


def test_upstream_is_merged_into_the_branch(sandbox, k2):
    """The advice puts the series on top of upstream's commits, which do not become patches."""
    onto = support.commit(sandbox.upstream, "Others' work", OTHERS_WORK)
    git(k2, "fetch", "--quiet", sandbox.upstream.as_uri(), onto)
    git(k2, "merge", "--quiet", "--no-edit", onto)
    advice = re.search("next: (git .*), then k2mps (.*)", sandbox.fails(1, "export"))
    support.shell(k2, advice[1])
    sandbox.ok(*advice[2].split())
    assert pin(sandbox)["commit"] == onto and sandbox.order() == [MPS, ARRAY, support.NEW]


def test_a_commit_of_another_repository_below_the_series(sandbox, k2):
    """The tool does not know whether the commit is upstream's, and says what to do if it is not."""
    other = sandbox.clone("other")
    support.commit(other, "mine", {"mine.h": "mine\n"})
    git(other, *"commit --quiet --amend -m mine".split(), env={"GIT_COMMITTER_NAME": "Colleague"})
    git(k2, "fetch", "--quiet", str(other), "HEAD")
    mine = git(k2, "rev-parse", "FETCH_HEAD")
    git(k2, "rebase", "--quiet", "--onto", mine, sandbox.pin)
    support.commit(k2, "more", {"more.h": "more\n"})
    error = sandbox.fails(1, "export")
    (again,) = re.findall(r"upstream lacks that commit, (git .*), then", error)
    sandbox.fails(1, "export", "--onto", mine)
    support.shell(k2, again)
    sandbox.ok("export")
    assert sandbox.order() == ["mine.patch", MPS, ARRAY, support.NEW, "more.patch"]


def test_upstream_has_taken_the_message_of_a_patch(sandbox, k2):
    """A commit below the pin whose message names a patch is upstream's, not the series'."""
    taken = support.commit(sandbox.upstream, "Taken\n\nPatch-Filename: x.patch", {"x": "1\n"})
    newer = support.commit(sandbox.upstream, "Newer", {"y": "1\n"})
    sandbox.ok("rebase", "--onto", newer)
    git(k2, "rebase", "--quiet", "--onto", taken, newer)
    assert f"next: k2mps export --onto {taken[:12]}\n" in sandbox.ok("status")
    git(k2, "reset", "--quiet", "--hard", "k2-mps@{1}")
    onto, _ = stopped(sandbox)
    assert f"k2mps export --onto {onto[:12]}\n" in sandbox.ok("status")


def test_an_edit_of_patches_during_a_rebase_is_not_overwritten(sandbox, k2):
    onto, _ = stopped(sandbox)
    resolve(k2)
    mine = sandbox.root / f"patches/{MPS}"
    support.edit(mine, "know mps", "EDITED")
    before = patches(sandbox)
    assert f"changed patches/{MPS}" in sandbox.fails(1, "export", "--onto", onto)
    assert patches(sandbox) == before


def test_a_file_that_was_renamed_is_followed(sandbox, k2):
    git(sandbox.upstream, "mv", CONTEXT, "k2/csrc/ctx.h")
    sandbox.ok("rebase", "--onto", support.commit(sandbox.upstream, "Rename", {}))
    assert "line fifty\n" in (k2 / "k2/csrc/ctx.h").read_text()
    assert "diff --git a/k2/csrc/ctx.h" in (sandbox.root / f"patches/{MPS}").read_text()


def test_after_a_pull_of_another_pin_apply_is_next(sandbox, k2):
    """The branch was rebased once, and patches/ has come to another pin by git since."""
    onto_a_release(sandbox)
    newer = support.commit(sandbox.upstream, "Newer", {"a": "1\n"})
    git(k2, "fetch", "--quiet", sandbox.upstream.as_uri(), "master")
    sandbox.write_config(newer)
    assert "next: k2mps apply\n" in sandbox.ok("status")
    assert "next: k2mps apply\n" in sandbox.fails(1, "export")
    sandbox.ok("apply")
    assert git(k2, "rev-parse", "HEAD~3") == newer

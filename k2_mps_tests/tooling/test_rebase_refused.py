"""`k2mps rebase` overwrites no work of the user, and refuses what git would lose."""

import re

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.rebasing import CONFLICT, OTHERS_WORK, pin, resolve, stopped
from k2_mps_tests.tooling.sandbox import MPS
from k2_mps_tests.tooling.series_files import patches
from k2_mps_tests.tooling.support import git, snapshot

# `git rebase` makes commits, for which git needs a name.
pytestmark = pytest.mark.usefixtures("user_name")


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


@pytest.mark.parametrize(
    "mark, setting",
    [("#", "core.commentChar auto"), ("#", "commit.cleanup strip"), (";", "core.commentChar ;")],
)
def test_a_line_of_a_message_that_git_would_drop_is_refused(sandbox, k2, mark, setting):
    """git drops the line if a commit conflicts, and the user continues the rebase.

    With `strip`, git also drops the line of a commit that does not conflict.
    """
    support.edit(k2 / "k2/csrc/array.cu", "array 7\n", "mine\n")
    message = f"mine\n\n{mark}1349 differs\n"
    commit = ("commit", "--quiet", "--cleanup=verbatim", "-m", message)
    git(k2, *commit, "--all")
    git(k2, *commit, "--allow-empty")
    git(k2, "config", *setting.split())
    theirs = git(k2, "show", f"{sandbox.pin}:k2/csrc/array.cu").replace("array 7\n", "theirs\n")
    onto = support.commit(sandbox.upstream, "Newer", {"k2/csrc/array.cu": f"{theirs}\n"})
    error = sandbox.fails(1, "rebase", "--onto", onto)
    assert f"begins with {mark}" in error
    support.shell(sandbox.root, re.search("next: (git .*), so", error)[1])
    assert sandbox.run("rebase", "--onto", onto).returncode == 14
    support.resolve(k2 / "k2/csrc/array.cu", "both\n")
    git(k2, "add", "k2/csrc/array.cu")
    git(k2, "rebase", "--continue", env={"GIT_EDITOR": ":"})
    assert git(k2, "log", "-2", "--format=%B", "k2-mps") == f"{message}\n{message}".strip()


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


def test_settings_and_hooks_of_the_user_do_not_change_the_patches(sandbox, k2):
    """`git am` strips blanks, a hook writes each message, a driver drops edits, no key is there."""
    support.edit(k2 / "k2/csrc/array.cu", "array 7\n", "blanks   \n")
    sandbox.ok("new", "blanks: keep α")
    support.write(k2, {".git/hooks/prepare-commit-msg": "#!/bin/sh\necho changed > $1\n"})
    (k2 / ".git/hooks/prepare-commit-msg").chmod(0o755)
    for setting in (
        "rebase.backend=apply",
        "apply.whitespace=fix",
        "commit.gpgSign=true",
        "i18n.commitEncoding=ISO-8859-1",
        "merge.text.driver=true",
        "merge.default=text",
        "pull.twohead=ours",
    ):
        git(k2, "config", *setting.split("="))
    git(k2, "config", "gpg.program", "false")
    before = git(k2, "log", "--format=%B", f"{sandbox.pin}..k2-mps")
    onto = support.commit(sandbox.upstream, "Newer", OTHERS_WORK)
    sandbox.ok("rebase", "--onto", onto)
    assert git(k2, "log", "--format=%B", f"{onto}..k2-mps") == before
    assert "blanks   " in git(k2, "show", "k2-mps:k2/csrc/array.cu")


def test_an_attribute_that_would_drop_edits_is_refused(sandbox, k2):
    support.write(k2, {".git/info/attributes": "array.cu merge=ours\n"})
    git(k2, "config", "merge.ours.driver", "true")
    theirs = git(k2, "show", f"{sandbox.pin}:k2/csrc/array.cu").replace("array 7\n", "theirs\n")
    onto = support.commit(sandbox.upstream, "Newer", {"k2/csrc/array.cu": f"{theirs}\n"})
    before = snapshot(k2), patches(sandbox)
    error = sandbox.fails(1, "rebase", "--onto", onto)
    assert "merge=ours applies to k2/csrc/array.cu" in error
    assert (snapshot(k2), patches(sandbox)) == before
    (show,) = re.findall("until (git .*) prints unspecified", error)
    assert support.output("sh", "-c", show, cwd=sandbox.root).endswith(" ours\n")
    (k2 / ".git/info/attributes").unlink()
    sandbox.ok("rebase", "--onto", onto)


def test_two_versions_of_a_file_in_the_way_are_named_before_git_forgets_one(sandbox, k2):
    """git refuses `rm --cached`, and its hint -f would lose the staged version."""
    onto = support.commit(sandbox.upstream, "A file", {"mine": "theirs\n"})
    support.shell(k2, "echo staged > mine; git add mine; echo later > mine")
    error = sandbox.fails(1, "rebase", "--onto", onto)
    assert "next: k2mps status, which says how to keep" in error and "rm --cached" not in error


def test_conflicts_that_a_command_left_are_named(sandbox, k2):
    support.edit(k2 / "k2/csrc/array.cu", "array 7\n", "mine\n")
    support.shell(k2, "git stash")
    support.edit(k2 / "k2/csrc/array.cu", "array 7\n", "other\n")
    support.shell(k2, "git add -u; git stash pop || true")
    onto = support.commit(sandbox.upstream, "Newer", OTHERS_WORK)
    error = sandbox.fails(1, "rebase", "--onto", onto)
    assert "has conflicts: k2/csrc/array.cu\n" in error


@pytest.mark.parametrize("mine, others", [("new.log", "new.log"), ("a.log", "a.log/x")])
def test_an_ignored_file_is_not_overwritten(sandbox, k2, mine, others):
    support.write(k2, {mine: "mine\n"})
    onto = support.commit(sandbox.upstream, "A log", {others: "log\n"})
    before = snapshot(k2)
    message = sandbox.fails(1, "rebase", "--onto", onto)
    assert f"files are in the way in {k2}: {mine}\n" in message
    assert "next: move them away; then the same command again\n" in message
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
    support.shell(sandbox.root, re.search("writable; then (git .*), which writes", message)[1])
    sandbox.ok("rebase", "--onto", onto)
    assert (k2 / "cmake/mps.cmake").exists()


def test_a_rebase_that_stops_without_a_conflict_names_no_conflict(sandbox, k2):
    git(k2, "checkout", "--quiet", sandbox.pin)
    support.write(k2, {"cmake/mps.cmake": "untracked, where a patch has a file\n"})
    onto = support.commit(sandbox.upstream, "Newer", OTHERS_WORK)
    message = sandbox.fails(14, "rebase", "--onto", onto)
    assert "why: git's message above has the reason\n" in message


def test_patches_that_were_not_applied_are_not_rebased(sandbox, k2):
    """Otherwise the export would refuse only after the user has resolved all conflicts."""
    onto = support.commit(sandbox.upstream, "Newer", OTHERS_WORK)
    (sandbox.root / "patches/files/cmake/mps.cmake").write_text("new\n")
    assert "next: k2mps apply\n" in sandbox.fails(1, "rebase", "--onto", onto)


def test_before_the_first_apply_nothing_is_rebased(sandbox):
    sandbox.obtain()
    onto = support.commit(sandbox.upstream, "Newer", OTHERS_WORK)
    error = sandbox.fails(1, "rebase", "--onto", onto)
    assert "why: patches/ was not applied there, or has changed since\n" in error
    assert "next: k2mps apply\n" in error


def test_a_pin_on_which_the_branch_does_not_stand_is_refused(sandbox, k2):
    older = support.commit(sandbox.upstream, "Newer", {"a": "1\n"})
    onto = support.commit(sandbox.upstream, "Better line", CONFLICT)
    first = git(k2, "rev-parse", f"{sandbox.pin}~1")
    before = patches(sandbox)
    message = sandbox.fails(1, "export", "--onto", onto)
    assert f"next: k2mps rebase --onto {onto[:12]}\n" in message
    assert "k2mps rebase --onto" in sandbox.fails(1, "export", "--onto", first)
    sandbox.fails(14, "rebase", "--onto", onto)
    resolve(k2)
    # Upstream's last commit would become a patch.
    message = sandbox.fails(1, "export", "--onto", older)
    assert f"it starts from {onto[:12]}\n" in message
    advice = f"next: k2mps export --onto {onto[:12]}, then k2mps rebase --onto {older[:12]}\n"
    assert advice in message
    assert patches(sandbox) == before


def test_an_edit_of_patches_during_a_rebase_is_not_overwritten(sandbox, k2):
    onto, _ = stopped(sandbox)
    resolve(k2)
    mine = sandbox.root / f"patches/{MPS}"
    support.edit(mine, "know mps", "EDITED")
    before = patches(sandbox)
    assert f"changed patches/{MPS}" in sandbox.fails(1, "export", "--onto", onto)
    assert patches(sandbox) == before


def test_after_a_rebase_the_advice_for_an_edit_of_patches_keeps_both(sandbox, k2):
    support.shell(sandbox.root, "git init -q; git add patches upstream.toml; git commit -qm first")
    onto, _ = stopped(sandbox)
    resolve(k2)
    support.edit(sandbox.root / f"patches/{MPS}", "know mps", "EDITED")
    advice = "aside, (git stash .*), or git revert .*; then k2mps (export .*), commit that, bring"
    stash, export = re.search(advice, sandbox.fails(1, "apply")).groups()
    support.shell(sandbox.root, stash)
    sandbox.ok(*export.split())
    support.shell(sandbox.root, "git commit -qam rebased; git stash pop")
    sandbox.ok("apply")
    text = (sandbox.root / f"patches/{MPS}").read_text()
    assert "EDITED" in text and "+line fifty, better\n" in text
    assert git(k2, "log", "--format=%s", "k2-mps", f"^{onto}").endswith("EDITED")

"""The user moves branch k2-mps to another upstream commit with git alone."""

import re

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.rebasing import OTHERS_WORK, onto_a_release, pin, stopped
from k2_mps_tests.tooling.sandbox import ARRAY, CONTEXT, MPS, NEW
from k2_mps_tests.tooling.series_files import patches
from k2_mps_tests.tooling.support import git

# `git rebase` makes commits, for which git needs a name.
pytestmark = pytest.mark.usefixtures("user_name")


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
    status = sandbox.ok("status")
    # git has made the series' commits again.  They do not count as commits of the user.
    assert f"git has rebased branch k2-mps onto {onto[:12]}\n" in status
    assert f"next: k2mps export --onto {onto[:12]}\n" in status
    assert f"next: k2mps export --onto {onto[:12]};" in sandbox.fails(1, "export")
    assert f"k2mps export --onto {onto[:12]} makes" in sandbox.fails(1, "apply")
    assert patches(sandbox) == before
    sandbox.ok("export", "--onto", onto)
    assert pin(sandbox)["commit"] == onto and sandbox.order() == [MPS, ARRAY, NEW]


def test_upstream_is_merged_into_the_branch(sandbox, k2):
    """The advice puts the series on top of upstream's commits, which do not become patches."""
    onto = support.commit(sandbox.upstream, "Others' work", OTHERS_WORK)
    git(k2, "fetch", "--quiet", sandbox.upstream.as_uri(), onto)
    git(k2, "merge", "--quiet", "--no-edit", onto)
    advice = re.search("next: (git .*), then k2mps (.*)", sandbox.fails(1, "export"))
    support.shell(k2, advice[1])
    sandbox.ok(*advice[2].split())
    assert pin(sandbox)["commit"] == onto and sandbox.order() == [MPS, ARRAY, NEW]


def test_a_commit_of_another_repository_below_the_series(sandbox, k2):
    """The tool does not know whether the commit is upstream's, and says what to do if it is not."""
    other = sandbox.clone("other")
    support.commit(other, "mine", {"mine.h": "mine\n"})
    colleague = {"GIT_COMMITTER_NAME": "Colleague"}
    git(other, "commit", "--quiet", "--amend", "-m", "mine", env=colleague)
    git(k2, "fetch", "--quiet", str(other), "HEAD")
    mine = git(k2, "rev-parse", "FETCH_HEAD")
    git(k2, "rebase", "--quiet", "--onto", mine, sandbox.pin)
    support.commit(k2, "more", {"more.h": "more\n"})
    error = sandbox.fails(1, "export")
    (again,) = re.findall(r"upstream lacks that commit, (git .*), then", error)
    sandbox.fails(1, "export", "--onto", mine)
    support.shell(k2, again)
    sandbox.ok("export")
    assert sandbox.order() == ["mine.patch", MPS, ARRAY, NEW, "more.patch"]


def test_without_reflogs_a_commit_below_the_series_is_the_users(sandbox, k2):
    support.shell(k2, "git config core.logAllRefUpdates false; rm -r .git/logs")
    git(k2, "checkout", "--quiet", "--detach", sandbox.pin)
    support.commit(k2, "mine", {"mine.h": "mine\n"})
    git(k2, "cherry-pick", f"{sandbox.pin}..k2-mps")
    support.shell(k2, "git branch -f k2-mps; git checkout -q k2-mps")
    sandbox.ok("export")
    assert sandbox.order() == ["mine.patch", MPS, ARRAY, NEW]


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


def test_a_rebase_below_the_pin_that_was_undone_does_not_count(sandbox, k2):
    onto, _ = onto_a_release(sandbox)
    git(k2, "rebase", "--quiet", "--onto", sandbox.pin, onto)
    git(k2, "reset", "--quiet", "--hard", "k2-mps@{1}")
    support.edit(k2 / CONTEXT, "line 20\n", "mine\n")
    git(k2, "commit", "--quiet", "--all", "--amend", "--no-edit")
    assert "next: k2mps export\n" in sandbox.ok("status")
    sandbox.ok("export")
    assert pin(sandbox)["commit"] == onto and sandbox.order() == [MPS, ARRAY, NEW]


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

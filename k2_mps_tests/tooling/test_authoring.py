"""`k2mps new` and `k2mps fold` put edits into patches, without commits by the user."""

import re
import shlex

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.sandbox import ARRAY, CONTEXT, MPS, NEW
from k2_mps_tests.tooling.series_files import drop, git_commands, patches
from k2_mps_tests.tooling.support import git, snapshot

TOOL = "k2/python/k2/mps/tool"
OURS = "k2-mps <k2-mps@k2-mps.invalid>"


def edit(k2, old="line 20\n", new="twenty\n", path=CONTEXT):
    support.edit(k2 / path, old, new)


def sound(sandbox, k2, *names):
    """Checks that the checkout agrees with patches/ and that another clone gets the same commits.

    Args:
      names: the patches that the series must have, in order; default: the sample series.
    """
    assert sandbox.order() == list(names or (MPS, ARRAY, NEW))
    assert sandbox.state() == "applied"
    assert '"patches": "as applied"' in sandbox.ok("status", "--json")
    assert git(k2, "status", "--porcelain") == ""
    before = patches(sandbox), git(k2, "rev-parse", "refs/k2mps/applied")
    sandbox.ok("export")
    assert (patches(sandbox), git(k2, "rev-parse", "refs/k2mps/applied")) == before
    own = sandbox.clone("own")
    sandbox.ok("apply", "--k2", str(own))
    assert git(own, "rev-parse", "HEAD") == git(k2, "rev-parse", "HEAD")


def test_new_takes_the_edits_with_the_files_that_are_named(sandbox, k2):
    edit(k2)
    support.write(k2, {"k2/csrc/mps/more.mm": "more\n", "x.log": "ignored\n"})
    before = (k2 / CONTEXT).stat().st_mtime_ns
    words = "new 'more: a thing' --why 'It is needed.' k2/csrc/mps/more.mm"
    assert "wrote patches/more-a-thing.patch" in sandbox.ok(*shlex.split(words))
    assert (
        (sandbox.root / "patches/more-a-thing.patch")
        .read_text()
        .startswith(
            f"From: {OURS}\nSubject: more: a thing\nUpstream-Status: Pending (not sent yet)\n"
            "New-files:\n\tk2/csrc/mps/more.mm\n\nIt is needed.\n\n---\n"
        )
    )
    assert (k2 / CONTEXT).stat().st_mtime_ns == before
    sound(sandbox, k2, MPS, ARRAY, NEW, "more-a-thing.patch")


def test_the_folder_for_temporary_files_may_be_relative(sandbox, k2):
    """git runs in the checkout, and the tool in another folder."""
    edit(k2)
    sandbox.ok("fold", MPS, env={"TMPDIR": "."})
    sound(sandbox, k2)


@pytest.mark.parametrize("command", [["fold", MPS], ["new", "more"]])
def test_an_untracked_file_is_taken_only_if_it_is_named(sandbox, k2, command):
    support.write(k2, {"notes.txt": "password\n", "k2/new/a.cu": "a\n"})
    message = sandbox.fails(1, *command)
    assert "git does not track k2/new/a.cu, notes.txt" in message
    edit(k2)
    result = sandbox.run(*command, "k2/new")
    assert result.returncode == 0, result.stderr
    assert "warning: not in the patch, because git does not track them: notes.txt" in result.stderr
    assert not (sandbox.root / "patches/files/notes.txt").exists()
    assert (sandbox.root / "patches/files/k2/new/a.cu").read_text() == "a\n"
    assert git(k2, "status", "--porcelain") == "?? notes.txt"
    # The patch gets b.cu, which git tracks, and notes.txt, which is named by an absolute path.
    support.write(k2, {"k2/new/b.cu": "b\n"})
    git(k2, "add", "k2/new/b.cu")
    more = [] if command[0] == "fold" else ["more.patch"]
    sandbox.ok("fold", *(more or [MPS]), str(k2 / "notes.txt"))
    assert (sandbox.root / "patches/files/k2/new/b.cu").exists()
    assert (sandbox.root / "patches/files/notes.txt").exists()
    sound(sandbox, k2, MPS, ARRAY, NEW, *more)
    assert "did not match" in sandbox.fails(1, "fold", MPS, "nope")


def test_a_new_file_may_be_named_by_its_path_from_the_current_folder(sandbox, k2):
    support.write(k2, {"notes.txt": "mine\n"})
    sandbox.ok("fold", MPS, "build/k2/notes.txt")
    assert (sandbox.root / "patches/files/notes.txt").read_text() == "mine\n"


def test_before_the_first_apply_no_patch_is_made(sandbox):
    sandbox.obtain()
    git(sandbox.checkout, "checkout", "--quiet", "-b", "k2-mps")
    edit(sandbox.checkout)
    message = sandbox.fails(1, "new", "more")
    assert "does not have the series applied\n  next: k2mps apply\n" in message


@pytest.mark.parametrize("command", [["fold", MPS], ["new", "more"]])
def test_an_ignored_file_is_taken_after_git_add(sandbox, k2, command):
    support.write(k2, {"new[1].log": "mine\n"})
    message = sandbox.fails(1, *command, "new[1].log")
    support.shell(k2, re.search("next: (git .*), then the same", message)[1])
    sandbox.ok(*command, "new[1].log")
    assert (sandbox.root / "patches/files/new[1].log").read_text() == "mine\n"


def test_the_user_who_makes_a_patch_is_its_author(sandbox, k2):
    sandbox.config.write_text("[user]\n\tname = Bob\n\temail = b@c.org\n")
    edit(k2)
    sandbox.ok("new", "more: a thing")
    file = sandbox.root / "patches/more-a-thing.patch"
    head = r"From: Bob <b@c\.org>\nDate: \w{3}, \d+ .* [-+]\d{4}\nSubject: more"
    assert re.match(head, file.read_text())
    # An edit by another user does not change the author.
    before = file.read_text().split("Subject")[0]
    sandbox.config.write_text("[user]\n\tname = Eve\n\temail = e@c.org\n")
    edit(k2, "line 30\n", "thirty\n")
    sandbox.ok("fold", "more-a-thing")
    assert file.read_text().split("Subject")[0] == before
    # A user may edit the author in the header of the patch.
    head = "From: Ann Größe <a@b>\nDate: Tue, 14 Nov 2023 23:13:20 +0100\n"
    support.edit(file, before, head)
    sandbox.ok("apply")
    sandbox.ok("export")
    assert file.read_text().startswith(head)
    sound(sandbox, k2, MPS, ARRAY, NEW, "more-a-thing.patch")


EDITED = {"scripts/run.sh": "#!/bin/sh\necho walk\n"}
NONE = f"there is no patch nope\n  why: the patches are {MPS}"


@pytest.mark.parametrize(
    "files, command, problem",
    [
        ({}, "new more", "nothing was edited"),
        (EDITED, "new ''", "a patch needs a subject"),
        # The user has edited files that another patch adds.
        ({"cmake/mps.cmake": "other\n"}, "new more", "next: k2mps fold adds edits to that patch"),
        ({TOOL: "other\n"}, f"fold {MPS}", f"error: {NEW} does not apply any more"),
        (EDITED, "new more --why 'a\n---\nb'", "lines '---', "),
        (EDITED, "new more --why '\x01'", "control or invisible characters"),
        (EDITED, "fold nope", NONE),
    ],
)
def test_a_refused_command_changes_nothing(sandbox, k2, files, command, problem):
    support.write(k2, files)
    before = snapshot(k2), patches(sandbox)
    assert problem in sandbox.fails(1, *shlex.split(command))
    assert (snapshot(k2), patches(sandbox)) == before


@pytest.mark.parametrize("command", ["new more", f"fold {MPS}"])
def test_no_patch_that_the_branch_lacks_is_deleted(sandbox, k2, command):
    """Only `export --prune` deletes patches."""
    git(k2, "reset", "--quiet", "--hard", "HEAD~1")
    before = patches(sandbox)
    assert "nothing was edited" in sandbox.fails(1, *command.split())
    assert patches(sandbox) == before


def test_without_an_untracked_file_the_error_gives_no_reason(sandbox, k2):
    assert f"nothing was edited in {k2}\n  next: " in sandbox.fails(1, "new", "more")


@pytest.mark.parametrize("command", ["new more", f"fold {MPS}"])
def test_a_version_that_is_staged_while_the_command_runs_stays_in_the_index(
    sandbox, k2, tmp_path, command
):
    edit(k2, "line 20\n", "twenty\n")
    before = patches(sandbox), git(k2, "rev-parse", "k2-mps")
    file, kept = shlex.quote(str(k2 / CONTEXT)), shlex.quote(str(tmp_path / "kept"))
    add = f"env -u GIT_INDEX_FILE $real -C {shlex.quote(str(k2))} add {CONTEXT}"
    stage = f"cp {file} {kept}; echo staged >> {file}; {add}; cp {kept} {file}"
    # The tool has read the edits, and writes their tree from its temporary index.
    script = f'case "$GIT_INDEX_FILE $*" in [!\\ ]*write-tree*) {stage};; esac'
    env = support.shim(tmp_path / "bin", script)
    error = sandbox.fails(1, *shlex.split(command), env=env)
    assert f"has staged versions that the files do not have: {CONTEXT}" in error
    assert git(k2, "show", f":{CONTEXT}").endswith("staged")
    assert (patches(sandbox), git(k2, "rev-parse", "k2-mps")) == before


def test_fold_into_a_patch_that_was_renamed_since_apply_asks_for_apply(sandbox, k2):
    folder = sandbox.root / "patches"
    (folder / MPS).rename(folder / "renamed.patch")
    support.edit(folder / "series", MPS, "renamed.patch")
    edit(k2, "line 20\n", "twenty\n")
    assert "first k2mps apply" in sandbox.fails(1, "fold", "renamed")
    sandbox.ok("apply")
    sandbox.ok("fold", "renamed")
    assert "+twenty" in (folder / "renamed.patch").read_text()


@pytest.mark.parametrize("name", ["context-know-mps", f"patches/{MPS}"])
def test_fold_adds_edits_to_a_patch(sandbox, k2, name):
    edit(k2, "line 20\n", "twenty\ntwenty and a half\n")
    edit(k2, "option(K2_WITH_MPS)\n", "option(K2_WITH_MPS OFF)\n", "cmake/mps.cmake")
    out = sandbox.ok("fold", name)
    assert f"wrote patches/{MPS}" in out and "wrote patches/files/cmake/mps.cmake" in out
    assert "+twenty" in (sandbox.root / "patches" / MPS).read_text()
    later = (sandbox.root / "patches" / ARRAY).read_text()
    assert "twenty" not in later and "@@ -91,3 +91,2 @@" in later and "@@ -92,3" not in later
    sound(sandbox, k2)


@pytest.mark.parametrize("name", [MPS, ARRAY, NEW])
def test_a_patch_is_dropped_by_hand(sandbox, k2, name):
    drop(sandbox, name)
    sandbox.ok("apply")
    sandbox.ok("export")
    sound(sandbox, k2, *(one for one in (MPS, ARRAY, NEW) if one != name))
    if name == MPS:
        assert "line 50\n" in (k2 / CONTEXT).read_text()
        assert "line 90\n" not in (k2 / CONTEXT).read_text()
        assert (k2 / "k2/csrc/old.cu").exists() and not (k2 / "cmake").exists()


def test_a_command_is_undone_by_git(sandbox, k2):
    """Runs the commands that docs/tool.md gives to undo a command of the tool."""
    git(sandbox.root, "init", "--quiet")
    git(sandbox.root, "add", "patches", "upstream.toml")
    git(sandbox.root, "commit", "--quiet", "-m", "first")
    edit(k2)
    support.write(k2, {"k2/new.cu": "new\n"})
    before = patches(sandbox)
    sandbox.ok("new", "x", "k2/new.cu")
    git(sandbox.root, "stash", "--include-untracked", "--quiet", "--", "patches", "upstream.toml")
    assert patches(sandbox) == before
    sandbox.ok("apply")
    assert not (k2 / "k2/new.cu").exists() and "line 20\n" in (k2 / CONTEXT).read_text()
    git(sandbox.root, "stash", "pop", "--quiet")
    sandbox.ok("apply")
    assert (k2 / "k2/new.cu").exists() and "twenty\n" in (k2 / CONTEXT).read_text()


@pytest.mark.parametrize("command", [["fold", MPS], ["new", "x"]])
def test_conflicts_that_git_has_left_are_refused(sandbox, k2, command):
    edit(k2)
    git(k2, "stash", "--quiet")
    edit(k2, "line 20\n", "20\n")
    sandbox.ok("fold", MPS)
    support.shell(k2, "git stash pop --quiet || true")
    before = patches(sandbox), git(k2, "status", "--porcelain")
    assert f"has conflicts: {CONTEXT}\n" in sandbox.fails(1, *command)
    assert (patches(sandbox), git(k2, "status", "--porcelain")) == before
    support.resolve(k2 / CONTEXT, "twenty\n")
    git(k2, "add", CONTEXT)
    sandbox.ok(*command)


def test_a_wrong_value_of_the_tools_ref_is_replaced(sandbox, k2):
    """Another program, or an older k2mps, may have written the ref."""
    for value in ("HEAD:CMakeLists.txt", sandbox.pin):
        git(k2, "update-ref", "refs/k2mps/applied", git(k2, "rev-parse", value))
        assert "already applied" in sandbox.ok("apply")
        sound(sandbox, k2)
        support.shell(sandbox.root.parent, "rm -rf own")


def test_fold_is_refused_if_head_is_not_the_series(sandbox, k2):
    edit(k2)
    git(k2, "commit", "--quiet", "--all", "-m", "mine")
    edit(k2, "line 30\n", "thirty\n")
    assert "k2mps export" in sandbox.fails(1, "fold", MPS)
    git(k2, "checkout", "--quiet", CONTEXT)
    git(k2, "checkout", "--quiet", "--detach", "HEAD~1")
    assert "is not on branch k2-mps" in sandbox.fails(1, "fold", MPS)


CHECKOUT_OF_BRANCH = "next: (git .* checkout --no-overwrite-ignore k2-mps)\n"


@pytest.mark.parametrize("words", ["export", f"fold {MPS}"])
def test_the_advice_for_a_detached_commit_of_the_series_can_be_followed(sandbox, k2, words):
    git(k2, "checkout", "--quiet", "--detach", "HEAD~1")
    assert "next: k2mps apply\n" in sandbox.fails(1, *words.split())
    sandbox.ok("apply")
    assert git(k2, "symbolic-ref", "HEAD") == "refs/heads/k2-mps"
    git(k2, "commit", "--quiet", "--allow-empty", "-m", "mine")
    git(k2, "checkout", "--quiet", "--detach", "HEAD~1")
    message = sandbox.fails(1, *words.split())
    support.shell(sandbox.root, re.search(CHECKOUT_OF_BRANCH, message)[1])
    assert "next: k2mps export\n" in sandbox.ok("status")


@pytest.mark.parametrize("mine", ["cmake/mps.cmake", "cmake/mps.cmake/x"])
@pytest.mark.parametrize("is_ignored", [True, False])
def test_no_advice_to_check_out_the_branch_over_a_file(sandbox, k2, mine, is_ignored):
    """The series adds cmake/mps.cmake."""
    git(k2, "checkout", "--quiet", "-b", "topic", sandbox.pin)
    support.write(k2, {mine: "mine\n"})
    if is_ignored:
        support.write(k2, {".git/info/exclude": "cmake\n"})
    else:
        git(k2, "add", mine)
    message = sandbox.fails(1, "export")
    assert f"files are in the way in {k2}: {mine}\n" in message and "checkout" not in message


@pytest.mark.parametrize("command", [["fold", MPS], ["new", "x"]])
def test_no_advice_to_stash_deletes_what_replaced_a_file(sandbox, k2, command):
    edit(k2)
    git(k2, "commit", "--quiet", "--all", "-m", "mine")
    support.shell(k2, "rm k2/csrc/array.cu")
    support.write(k2, {"k2/csrc/array.cu/x": "mine\n"})
    support.write(k2, {".git/info/exclude": "x\n"})
    message = sandbox.fails(1, *command)
    assert "move what is at k2/csrc/array.cu out of" in message and "stash -u" not in message


@pytest.mark.parametrize(
    "words, most", [("status", 9), ("new more", 25), (f"fold {MPS}", 38), ("export", 14)]
)
def test_a_command_starts_few_git_processes(sandbox, k2, words, most):
    """Each process takes milliseconds, and a contributor runs these commands all day."""
    sandbox.ok("export")
    if words not in ("status", "export"):
        edit(k2)
    assert len(git_commands(sandbox, *words.split())) <= most


@pytest.mark.parametrize("command", [["fold", MPS], ["new", "x"]])
def test_a_filter_that_would_drop_lines_is_refused(sandbox, k2, command):
    """git would store the file without the lines, and then write this file over the user's."""
    support.write(k2, {".git/info/attributes": "*.h filter=short\n"})
    git(k2, "config", "filter.short.clean", "grep -v secret")
    edit(k2, "line 20\n", "secret\n")
    before = snapshot(k2), patches(sandbox)
    error = sandbox.fails(1, *command)
    assert f"filter=short applies to {CONTEXT}" in error
    assert (snapshot(k2), patches(sandbox)) == before
    (k2 / ".git/info/attributes").unlink()
    sandbox.ok(*command)
    assert "secret" in git(k2, "show", f"k2-mps:{CONTEXT}")


@pytest.mark.parametrize("command", [["fold", MPS], ["new", "x"]])
@pytest.mark.parametrize("later", ["line 20\n", "twenty, later\n", None])
def test_a_staged_version_that_the_file_lacks_is_not_lost(sandbox, k2, command, later):
    """The file has HEAD's text again, or has changed once more, or is deleted."""
    edit(k2)
    git(k2, "add", CONTEXT)
    edit(k2, "twenty\n", later) if later else (k2 / CONTEXT).unlink()
    edit(k2, "array 7\n", "seven\n", "k2/csrc/array.cu")
    before = snapshot(k2), patches(sandbox)
    error = sandbox.fails(1, *command)
    assert f"has staged versions that the files do not have: {CONTEXT}\n" in error
    assert "next: k2mps status, which says how to end that" in error
    assert "staged versions that the files do not have" in sandbox.ok("status")
    (advice,) = re.findall(r"next: (git .*); then k2mps status", sandbox.ok("status"))
    assert "uncommitted edits" in sandbox.fails(1, "export")
    assert (snapshot(k2), patches(sandbox)) == before
    (restore,) = re.findall(r"discards the staged versions, (git .*) keeps the staged", advice)
    support.shell(k2, restore)
    sandbox.ok(*command)
    name = MPS if command[0] == "fold" else "x.patch"
    assert "+twenty\n" in (sandbox.root / "patches" / name).read_text()


def test_edits_beside_a_commit_are_stashed_by_the_advice(sandbox, k2):
    support.commit(k2, "Mine", {"mine.txt": "1\n"})
    support.edit(k2 / CONTEXT, "line 20\n", "twenty\n")
    error = sandbox.fails(1, "new", "more")
    stash, pop = re.findall(r"git -C \S+ stash(?: pop)?", error)
    support.shell(sandbox.root, stash)
    sandbox.ok("export")
    support.shell(sandbox.root, pop)
    sandbox.ok("new", "more")
    assert sandbox.order()[-2:] == ["mine.patch", "more.patch"]


def test_the_reflog_of_the_branch_names_the_commands(sandbox, k2):
    edit(k2)
    sandbox.ok("fold", MPS)
    edit(k2, "array 7\n", "seven\n", "k2/csrc/array.cu")
    sandbox.ok("new", "more")
    support.commit(k2, "mine", {"mine": "1\n"})
    sandbox.ok("export")
    done = git(k2, "reflog", "--format=%gs", "k2-mps").split("\n")
    assert done == [
        "k2mps export",
        "commit: mine",
        "k2mps new more.patch",
        f"k2mps fold {MPS}",
        "k2mps apply",
    ]

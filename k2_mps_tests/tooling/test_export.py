"""`k2mps export` is the inverse of `k2mps apply`, and loses no work of the user."""

import os
import re

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.sandbox import CONTEXT, NEW
from k2_mps_tests.tooling.series_files import findings, patches
from k2_mps_tests.tooling.support import git


def test_exporting_what_was_applied_changes_no_byte(sandbox, k2):
    before = patches(sandbox)
    times = {path: path.stat().st_mtime_ns for path in sandbox.root.rglob("patch*")}
    assert "is up to date already" in sandbox.ok("export")
    assert patches(sandbox) == before
    assert times == {path: path.stat().st_mtime_ns for path in times}


def test_applying_what_was_exported_gives_the_tree(sandbox, k2):
    """The commit replaces a file by a folder and a folder by a file.  Two files are not UTF-8."""
    support.shell(k2, "rm -r scripts k2/csrc/array.cu")
    for name in ("k2/csrc/crlf.txt", "latin.txt"):
        (k2 / name).write_bytes(b"caf\xe9\r\nx\n")
    git(k2, "add", "--all")
    files = {"CMakeLists.txt": "another\n", "scripts": "", "k2/csrc/array.cu/more.mm": "x\n"}
    support.commit(k2, "more: a thing\n\nWhy.", files)
    tree = git(k2, "rev-parse", "HEAD^{tree}")
    out = sandbox.ok("export")
    assert "wrote patches/more-a-thing.patch" in out
    assert "4 patches" in out
    own = sandbox.clone("own")
    sandbox.ok("apply", "--k2", str(own))
    assert git(own, "rev-parse", "HEAD^{tree}") == tree
    assert sandbox.state() == "applied"


def test_an_exported_patch_has_the_documented_format(sandbox, k2):
    support.commit(
        k2,
        "more: a thing\n\nWhy.\n\nUpstream-Status: Submitted [url]",
        {"CMakeLists.txt": 'project(k2)\nset(K2_VERSION "1.1")\n'},
    )
    sandbox.ok("export")
    old = git(k2, "rev-parse", "HEAD~1:CMakeLists.txt")
    new = git(k2, "rev-parse", "HEAD:CMakeLists.txt")
    text = (sandbox.root / "patches/more-a-thing.patch").read_text()
    assert text == (
        "From: A Contributor <contributor@example.org>\n"
        "Date: Tue, 14 Nov 2023 23:13:20 +0100\n"
        "Subject: more: a thing\n"
        "Upstream-Status: Submitted [url]\n"
        "\n"
        "Why.\n"
        "\n"
        "---\n"
        "diff --git a/CMakeLists.txt b/CMakeLists.txt\n"
        f"index {old}..{new} 100644\n"
        "--- a/CMakeLists.txt\n"
        "+++ b/CMakeLists.txt\n"
        "@@ -1,2 +1,2 @@\n"
        " project(k2)\n"
        '-set(K2_VERSION "1.0")\n'
        '+set(K2_VERSION "1.1")\n'
    )


COMMIT = 'commit() { echo 1 > "$2"; git add "$2"; git commit -q -m "$1"; }\n'
C, A, P = "context-know-mps", "array-a-mode-and-line-ends", "python-add-only-new-files"


@pytest.mark.parametrize(
    "script, order",
    [
        (
            "commit 'Fix: it!' a; commit 'fix it' b; commit größer c; commit '«»' d",
            [C, A, P, "fix-it", "fix-it-2", "gr-er", "patch"],
        ),
        ("commit 'fix: it' a; commit 'fix: it' b", [C, A, P, "fix-it", "fix-it-2"]),
        # If the subject of a commit is reworded, the patch keeps its name.
        ('git commit -q --amend -m "$(git log -1 --format=%B | sed "1s/.*/Other/")"', [C, A, P]),
        # A commit without trailers becomes the patch that has the same subject.
        ("git commit -q --amend -m 'python: add only new files' -m Why.", [C, A, P]),
        # If a new commit has the subject of a later commit, the new patch gets another name.
        (
            "last=$(git rev-parse HEAD); git reset -q --hard HEAD~1;"
            " commit 'python: add only new files' a; git cherry-pick $last",
            [C, A, f"{P}-2", P],
        ),
        # If two commits have the same trailer Patch-Filename, the patch of the later commit gets
        # another name.
        (
            'commit "$(git log -1 --format=%B | sed s/python/copied/)" a',
            [C, A, P, "copied-add-only-new-files"],
        ),
        (
            "last=$(git rev-parse HEAD); git reset -q --hard HEAD~2;"
            " git cherry-pick $last; git cherry-pick $last~1",
            [C, P, A],
        ),
        # The second rebase is onto a commit of the user, not of upstream.
        (
            "git rebase -q --force-rebase HEAD~3; commit one a; commit two b;"
            " git rebase -q --exec 'git commit -q --amend -m three' HEAD~1",
            [C, A, P, "one", "three"],
        ),
    ],
)
def test_export_names_and_orders_the_patches(sandbox, k2, script, order):
    support.shell(k2, COMMIT + script)
    sandbox.ok("export")
    assert sandbox.order() == [f"{n}.patch" for n in order]
    before = patches(sandbox)
    assert "is up to date already" in sandbox.ok("export")
    assert patches(sandbox) == before


def test_a_message_without_its_line_patch_filename_gets_the_line_back(sandbox, k2):
    before = patches(sandbox)
    git(k2, "commit", "--quiet", "--amend", "-m", "python: other words")
    message = sandbox.fails(1, "export")
    line = "Patch-Filename: python-add-only-new-files.patch"
    assert f"the patch's changes with {line};" in message and "cherry-pick" not in message
    git(k2, "commit", "--quiet", "--amend", "-m", f"python: other words\n\n{line}")
    sandbox.ok("export")
    assert patches(sandbox).keys() == before.keys()


def test_export_deletes_the_patch_of_a_dropped_commit_only_with_prune(sandbox, k2):
    before = patches(sandbox)
    git(k2, "reset", "--quiet", "--hard", "HEAD~1")
    message = sandbox.fails(1, "export")
    assert "patches/python-add-only-new-files.patch" in message
    assert re.search(r"next: git .* cherry-pick .* if you mean to drop them, .*--prune", message)
    assert patches(sandbox) == before
    # The command would overwrite this file.
    support.write(k2, {".git/info/exclude": "/k2/python/\n", "k2/python/k2/mps/tool": "mine\n"})
    assert "files are in the way" in sandbox.fails(1, "export")
    support.write(k2, {".git/info/exclude": ""})
    (k2 / "k2/python/k2/mps/tool").unlink()
    sandbox.ok("export", "--prune")
    assert not (sandbox.root / "patches/python-add-only-new-files.patch").exists()
    assert not (sandbox.root / "patches/files/k2/python").exists()
    sandbox.ok("apply")


def test_a_dropped_patch_that_undoes_another_is_missed(sandbox, k2):
    """The pin has the changes of this patch, but they are no reason to delete it."""
    support.edit(k2 / "k2/csrc/array.cu", "array 7\n", "seven\n")
    support.shell(k2, "git commit -qam seven; git revert --no-commit HEAD; git commit -qm undo")
    sandbox.ok("export")
    git(k2, "reset", "--quiet", "--hard", "HEAD~1")
    message = sandbox.fails(1, "export")
    assert "the branch does not have patches/undo.patch" in message


def test_a_commit_that_a_rebase_has_dropped_is_named_even_after_a_fold(sandbox, k2):
    lost = support.commit(k2, "lost", {"lost": "1\n"})
    drop = {"GIT_SEQUENCE_EDITOR": "sed -i.bak 1s/^pick/drop/"}
    git(k2, "rebase", "--quiet", "--interactive", "HEAD~1", env=drop)
    support.edit(k2 / "k2/csrc/array.cu", "array 7\n", "seven\n")
    sandbox.ok("fold", A)
    support.commit(k2, "mine", {"mine": "1\n"})
    assert f"before a rebase: {lost[:12]} lost; " in sandbox.run("export").stderr
    assert sandbox.order()[-1] == "mine.patch"
    support.commit(k2, "more", {"more": "1\n"})
    assert "before a rebase" not in sandbox.run("export").stderr


def refused(name: str, message: str, script: str):
    """Returns a case: a script that changes a checkout, and a part of the error of `export`."""
    return pytest.param(message, script, id=name)


@pytest.mark.parametrize(
    "message, script",
    [
        refused("no commit", "no commits", "git reset -q --hard HEAD~3"),
        refused(
            "another branch",
            "is not on branch k2-mps",
            "git checkout -q -b feature; git commit -q --allow-empty -m mine",
        ),
        refused("an edit", "uncommitted edits: k2/csrc/array.cu", "echo mine > k2/csrc/array.cu"),
        refused(
            "a staged edit",
            "uncommitted edits: k2/csrc/array.cu",
            "echo mine > k2/csrc/array.cu; git add --all",
        ),
        refused(
            "a file that differs from another patch's file in case",
            "k2/csrc/mps/CONTEXT.mm of mps.patch is patches/files/k2/csrc/mps/context.mm of",
            "cd k2/csrc/mps; echo > CONTEXT.mm; git add CONTEXT.mm; git commit -qm mps",
        ),
        refused("an empty commit", "changes nothing", "git commit -q --allow-empty -m nothing"),
        refused(
            "a fixup! commit",
            "which drops the message of a fixup!; then the same command again",
            "echo > x; git add x; git commit -q --fixup=HEAD~1",
        ),
        refused(
            "a rebase in progress",
            "has an unfinished rebase",
            "git rebase -q -x false HEAD~2 || true",
        ),
        refused("a branch below the pin", "does not start from", "git reset -q --hard HEAD~3~"),
        refused(
            "a conflict marker in a new file",
            "new has a conflict marker of git",
            "echo '<<<<<<< HEAD' > new; git add new; git commit -qm more",
        ),
        refused(
            "a date after 2099",
            "years from 1970 to 2099",
            "echo > more; git add more; git commit -qm more --date='@4102444800 +0000'",
        ),
        refused(
            "a date before 1970",
            "its date is before 1970",
            "echo > more; git add more; git commit -qm more; git cat-file commit HEAD |"
            " sed 's/^author.*/author A <a@b> -86400 +0000/' > c; git reset -q --soft"
            " $(git hash-object -t commit -w --literally c); rm c",
        ),
        *(
            refused(
                f"a file {name}",
                "it would act on this repository, or macOS or an editor makes",
                f"echo > k2/{name}; git add --force k2/{name}; git commit -qm more",
            )
            for name in (".gitattributes", ".gitignore", ".DS_Store", "a.h~", ".a.h.swp")
        ),
        refused(
            "an edit of a new file of another patch",
            "edits cmake/mps.cmake, which context-know-mps.patch adds",
            "git rm -q cmake/mps.cmake; git commit -qm later",
        ),
        refused(
            "an executable file without #!",
            "is executable, but does",
            "echo > new; chmod +x new; git add new; git commit -qm more",
        ),
        refused(
            "a new symbolic link",
            "symbolic link",
            "ln -s CMakeLists.txt link; git add link; git commit -qm link",
        ),
        refused(
            "a file that becomes a symbolic link",
            "the edit 'diff --git a/run b/run' is not as git writes it",
            "rm run; ln -s CMakeLists.txt run; git commit -qam link",
        ),
        refused(
            "a submodule",
            "submodule",
            "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),module;"
            " git commit -qm module; mkdir module",
        ),
        refused(
            "a binary edit",
            "a NUL byte in the edit 'diff --git a/k2/csrc/array.cu b/k2/csrc/array.cu'",
            "printf 'a\\0b\\n' > k2/csrc/array.cu; git commit -qam binary",
        ),
        refused(
            "a new file whose name has two lines",
            r"names the path 'new\nline', which is refused",
            "touch 'new\nline'; git add .; git commit -qm more",
        ),
        *(
            refused(
                name,
                "lines '---', Upstream-Status and Patch-Filename do not belong in the body",
                f"echo > new; git add new; printf '{text}' | git commit -q --cleanup=verbatim -F -",
            )
            for name, text in (
                ("a message with ---", "subject\\n\\nText\\n---\\nmore"),
                ("a message with a diff", "subject\\n\\n---\\ndiff --git a/x b/x"),
            )
        ),
        refused(
            "a message with a line that a stopped rebase drops",
            "begins with #",
            "echo > new; git add new; printf 's\\n\\n#1349 differs' | git commit -q"
            " --cleanup=verbatim -F -",
        ),
    ],
)
def test_a_commit_that_cannot_become_a_patch_is_refused(sandbox, k2, message, script):
    before = patches(sandbox)
    support.shell(k2, script)
    assert message in sandbox.fails(1, "export")
    assert message in sandbox.fails(1, "export", "--prune")
    assert patches(sandbox) == before


JANE = {
    "GIT_AUTHOR_NAME": "Jane Größe Doe",
    "GIT_AUTHOR_EMAIL": "jane@example.org",
    "GIT_AUTHOR_DATE": "@1600000001 -0330",
}


MESSAGES = [
    "one line",
    "folded\nsubject\n\nBody.",
    "subject 2\n\n\n\nBody after several empty lines.\n\n\nMore.\n",
    "subject 3\n\nSigned-off-by: A <a@example.org>",
    "subject 4\n\nUpstream-Status: Inappropriate [tooling]",
    "subject 5\n\nText.\n\nUpstream-Status: Pending\nReviewed-by: B <b@c>",
    "subject 6\n\n* list\n  more\n\n    code\n\n #hash",
    "größe\n\nÜber",
]


def export_commits(sandbox, k2, *messages):
    """Makes a commit by Jane for each message; returns the texts of the exported patches."""
    before = len(sandbox.order())
    for number, message in enumerate(messages):
        support.write(k2, {f"file{number}": "x\n"})
        git(k2, "add", "--all")
        git(k2, "commit", "--quiet", "--cleanup=verbatim", "-m", message, env=JANE)
    sandbox.ok("export")
    return [(sandbox.root / "patches" / name).read_text() for name in sandbox.order()[before:]]


def test_a_message_of_any_shape_survives(sandbox, k2):
    export_commits(sandbox, k2, *MESSAGES)
    before = patches(sandbox)
    own = sandbox.clone("own")
    sandbox.ok("apply", "--k2", str(own))
    sandbox.ok("export", "--k2", str(own))
    assert patches(sandbox) == before


@pytest.mark.parametrize(
    "message, line",
    [
        (MESSAGES[1], "Subject: folded subject"),
        (MESSAGES[5], "Reviewed-by: B <b@c>"),
        (MESSAGES[7], "Subject: größe"),
    ],
)
def test_a_patch_has_a_line_of_its_message(sandbox, k2, message, line):
    [text] = export_commits(sandbox, k2, message)
    assert line in text.splitlines()


def test_a_broken_patches_directory_is_put_aside_by_git(sandbox, k2):
    """Follows the advice of the error: export overwrites nothing that the branch lacks."""
    support.shell(sandbox.root, "git init -q; git add patches upstream.toml; git commit -qm first")
    good = patches(sandbox)
    (sandbox.root / "patches/context-know-mps.patch").write_text("garbage")
    (sandbox.root / "patches/files/cmake/mps.cmake").unlink()
    (sandbox.root / "patches/series").write_text("not a patch name\n")
    broken = patches(sandbox)
    advice = re.search("aside, (git stash .*), or git", sandbox.fails(1, "export"))[1]
    assert patches(sandbox) == broken
    support.shell(sandbox.root, advice)
    sandbox.ok("export")
    assert patches(sandbox) == good


@pytest.mark.parametrize("name", ["series", NEW, "files/cmake/mps.cmake"])
def test_a_deleted_file_of_patches_is_written_again(sandbox, k2, name):
    before = patches(sandbox)
    (sandbox.root / "patches" / name).unlink()
    sandbox.ok("export")
    assert patches(sandbox) == before


def test_a_patch_that_cannot_be_read_is_not_overwritten(sandbox, k2):
    (sandbox.root / "patches" / NEW).write_text("garbage")
    error = sandbox.fails(1, "export")
    assert error.startswith("error: patches/ has changed since it was applied here\n")
    assert f"patches/{NEW}:1: there is no line '---'" in error


def test_the_files_of_a_crlf_checkout_are_not_taken_for_blobs(sandbox):
    """The index marks a CRLF file as unchanged, so git could use the file in place of the blob."""
    own = sandbox.clone("own", "--config=core.autocrlf=true", "--config=core.eol=crlf")
    sandbox.ok("apply", "--k2", str(own))
    support.edit(own / "k2/csrc/context.h", "line 20\r", "twenty\r")
    git(own, "commit", "--quiet", "--all", "-m", "more")
    for file in own.rglob("*.h"):
        os.utime(file, (1700000000, 1700000000))
    git(own, "update-index", "--refresh")
    sandbox.ok("export", "--k2", str(own))
    text = (sandbox.root / "patches/more.patch").read_bytes()
    assert b"-line 20\n+twenty\n" in text and b"\r" not in text


def test_a_patch_that_lost_its_line_gets_it_back(sandbox, k2):
    """The file of the patch is still there, as it was exported."""
    sandbox.ok("export")
    order = sandbox.root / "patches/series"
    before = order.read_bytes()
    order.write_text(order.read_text().replace(f"{NEW}\n", ""))
    assert "belongs to no patch" in sandbox.fails(1, "export")
    order.unlink()
    sandbox.ok("export")
    assert order.read_bytes() == before


def test_a_note_in_patches_stays_and_stops_each_command(sandbox, k2):
    notes = sandbox.root / "patches/NOTES"
    notes.write_text("mine\n")
    before = patches(sandbox)
    support.edit(k2 / CONTEXT, "line 20\n", "twenty\n")
    tip = git(k2, "rev-parse", "HEAD")
    for words in (["apply"], ["new", "x"], ["fold", NEW], ["upstream"]):
        error = sandbox.fails(1, *words)
        assert "NOTES" in error and "move it out of patches/" in error, words
    git(k2, "stash", "--quiet")
    for words in (["export"], ["export", "--prune"], ["rebase", "--onto", "master"], ["wheel"]):
        sandbox.fails(1, *words)
    assert ("patches/series", 1, "form") in findings(sandbox)
    assert patches(sandbox) == before and git(k2, "rev-parse", "HEAD") == tip
    notes.rename(notes.with_name(".NOTES"))
    assert "already applied" in sandbox.ok("apply")
    git(k2, "stash", "pop", "--quiet")
    sandbox.ok("fold", NEW)
    assert (sandbox.root / "patches/.NOTES").read_text() == "mine\n"

"""`k2mps new`, `edit`, `fold` and `drop`: commands on patches, without commits."""

import re

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import git, patches, snapshot

CONTEXT = "k2/csrc/context.h"
MPS = "context-know-mps.patch"
ARRAY = "array-a-mode-and-line-ends.patch"


def edit(k2, old="line 20\n", new="twenty\n", path=CONTEXT):
    text = (k2 / path).read_text()
    assert text.count(old) == 1
    (k2 / path).write_text(text.replace(old, new))


def sound(sandbox, k2, patches_=3):
    """Checkout, patches/ and lock agree, and git sees no edit."""
    assert sandbox.state() == "applied"
    assert '"patches": "as applied"' in sandbox.ok("status", "--json")
    assert git(k2, "status", "--porcelain") == ""
    before = patches(sandbox)
    sandbox.ok("export")
    assert patches(sandbox) == before
    order = (sandbox.root / "patches/series").read_text().split()
    assert len(order) == patches_


def test_new(sandbox, k2):
    edit(k2)
    support.write(k2, {"k2/csrc/mps/more.mm": "more\n", "x.log": "ignored\n"})
    before = (k2 / CONTEXT).stat().st_mtime_ns
    out = sandbox.ok(
        "new",
        "more: a thing",
        "--why",
        "It is needed.",
        "--status",
        "Inappropriate",
        "k2/csrc/mps/more.mm",
    )
    assert "wrote patches/more-a-thing.patch" in out
    text = (sandbox.root / "patches/more-a-thing.patch").read_text()
    assert text.startswith(
        "From: k2-mps <k2-mps@k2-mps.invalid>\n"
        "Subject: more: a thing\n"
        "Upstream-Status: Inappropriate\n"
        "New-files:\n\tk2/csrc/mps/more.mm\n\nIt is needed.\n\n---\n"
    )
    assert (k2 / CONTEXT).stat().st_mtime_ns == before
    sound(sandbox, k2, 4)
    own = sandbox.clone("own")
    sandbox.ok("apply", "--k2", str(own))
    assert git(own, "rev-parse", "HEAD") == git(k2, "rev-parse", "HEAD")


@pytest.mark.parametrize("command", [["fold", MPS], ["new", "more"]])
def test_what_git_does_not_track_is_taken_by_name_only(sandbox, k2, command):
    support.write(k2, {"notes.txt": "password\n", "k2/new/a.cu": "a\n"})
    message = sandbox.fails(1, *command)
    assert "git does not track k2/new/a.cu, notes.txt" in message
    edit(k2)
    result = sandbox.run(*command, "k2/new")
    assert result.returncode == 0, result.stderr
    assert "warning: not in it, as git does not track them: notes.txt" in (result.stderr)
    assert not (sandbox.root / "patches/files/notes.txt").exists()
    assert (sandbox.root / "patches/files/k2/new/a.cu").read_text() == "a\n"
    assert git(k2, "status", "--porcelain") == "?? notes.txt"
    # The patch gets files that git tracks, and the named file, here by an absolute path.
    support.write(k2, {"k2/new/b.cu": "b\n"})
    git(k2, "add", "k2/new/b.cu")
    name = command[1] if command[0] == "fold" else "more"
    sandbox.ok("fold", name, str(k2 / "notes.txt"))
    assert (sandbox.root / "patches/files/k2/new/b.cu").exists()
    assert (sandbox.root / "patches/files/notes.txt").exists()
    sound(sandbox, k2, 3 + (command[0] == "new"))
    assert "did not match" in sandbox.fails(1, "fold", MPS, "nope")


def test_who_made_a_patch_is_its_author(sandbox, k2):
    sandbox.config.write_text("[user]\n\tname = Bob\n\temail = b@c.org\n")
    edit(k2)
    sandbox.ok("new", "more: a thing")
    file = sandbox.root / "patches/more-a-thing.patch"
    assert re.match(
        r"From: Bob <b@c\.org>\nDate: \w{3}, \d+ .* [-+]\d{4}\nSubject: more", file.read_text()
    )
    # A later edit by another person keeps the author.
    before = file.read_text().split("Subject")[0]
    sandbox.config.write_text("[user]\n\tname = Eve\n\temail = e@c.org\n")
    sandbox.ok("edit", "more-a-thing", "--why", "Because.")
    edit(k2, "line 30\n", "thirty\n")
    sandbox.ok("fold", "more-a-thing")
    assert file.read_text().split("Subject")[0] == before
    sandbox.ok(
        "edit",
        "more-a-thing",
        "--author",
        "Ann Größe <a@b>",
        "--date",
        "Tue, 14 Nov 2023 23:13:20 +0100",
    )
    assert file.read_text().startswith(
        "From: Ann Größe <a@b>\nDate: Tue, 14 Nov 2023 23:13:20 +0100\n"
    )
    sound(sandbox, k2, 4)


EDITED = {"scripts/run.sh": "#!/bin/sh\necho walk\n"}


@pytest.mark.parametrize(
    "files, command, problem",
    [
        ({}, ["new", "more"], "nothing was edited"),
        (EDITED, ["new", ""], "a patch needs a subject"),
        # Files that another patch adds.
        ({"cmake/mps.cmake": "other\n"}, ["new", "more"], f"cmake/mps.cmake, which {MPS} adds"),
        ({"k2/python/k2/mps/tool": "other\n"}, ["fold", MPS], "a later patch changes"),
        ({}, ["edit", MPS, "--subject", " \n "], "needs a subject"),
        ({}, ["edit", MPS, "--status", "Perhaps"], "not 'Perhaps'"),
        ({}, ["edit", MPS, "--author", "Ann"], "is not 'NAME <EMAIL>'"),
        (
            {},
            ["edit", MPS, "--author", "k2-mps <k2-mps@k2-mps.invalid>", "--date", "today"],
            "a date needs an author",
        ),
        ({}, ["edit", MPS, "--author", "A <a@b>", "--date", "yesterday"], "is not a date as in"),
        ({}, ["edit", MPS, "--why", "a\n---\nb"], "cannot be written as a patch"),
        (
            {},
            ["edit", "nope", "--subject", "x"],
            f"there is no patch nope\n  why: the patches are {MPS}",
        ),
        (EDITED, ["fold", "nope"], f"there is no patch nope\n  why: the patches are {MPS}"),
        ({}, ["drop", "nope"], f"there is no patch nope\n  why: the patches are {MPS}"),
        (EDITED, ["drop", MPS], "has uncommitted edits in scripts/run.sh"),
        ({}, ["rename", ARRAY, MPS], f"a patch {MPS} already"),
        ({}, ["rename", ARRAY, "../x"], "is not a patch name"),
        ({}, ["move", MPS, "--after", MPS], "the patch itself"),
    ],
)
def test_what_is_refused_changes_nothing(sandbox, k2, files, command, problem):
    support.write(k2, files)
    before = snapshot(k2), patches(sandbox)
    assert problem in sandbox.fails(1, *command)
    assert (snapshot(k2), patches(sandbox)) == before


def test_a_patch_stays_behind_those_that_it_builds_on(sandbox, k2):
    edit(k2, "and a half\n", "and b\n")
    sandbox.ok("new", "more")
    before = snapshot(k2), patches(sandbox)
    for command in (
        ["move", "more", "--before", MPS],
        ["move", MPS, "--after", "more"],
        ["drop", MPS],
    ):
        message = sandbox.fails(1, *command)
        assert "patches/more.patch needs patches that would come after it" in message
        assert (snapshot(k2), patches(sandbox)) == before


def test_a_pager_in_use_colours_no_diff(sandbox, k2):
    edit(k2)
    sandbox.ok("fold", MPS, env={"GIT_PAGER_IN_USE": "1", "TERM": "xterm"})
    sound(sandbox, k2)


def test_rename(sandbox, k2):
    before = (sandbox.root / "patches" / ARRAY).read_bytes()
    files = snapshot(k2)["files"]
    sandbox.ok("rename", ARRAY, "line-ends")
    assert not (sandbox.root / "patches" / ARRAY).exists()
    assert (sandbox.root / "patches/line-ends.patch").read_bytes() == before
    assert (sandbox.root / "patches/series").read_text().split() == [
        MPS,
        "line-ends.patch",
        "python-add-only-new-files.patch",
    ]
    assert snapshot(k2)["files"] == files
    sound(sandbox, k2)
    sandbox.ok("undo")
    assert (sandbox.root / "patches" / ARRAY).read_bytes() == before


@pytest.mark.parametrize(
    "name, where, order",
    [
        (MPS, ["--after", "python-add-only-new-files"], [1, 2, 0]),
        (MPS, ["--before", "python-add-only-new-files"], [1, 0, 2]),
        ("python-add-only-new-files", ["--before", MPS], [2, 0, 1]),
    ],
)
def test_move(sandbox, k2, name, where, order):
    names = (sandbox.root / "patches/series").read_text().split()
    files = snapshot(k2)["files"]
    sandbox.ok("move", name, *where)
    assert (sandbox.root / "patches/series").read_text().split() == [
        names[number] for number in order
    ]
    assert snapshot(k2)["files"] == files
    sound(sandbox, k2)


def test_fold(sandbox, k2):
    edit(k2)
    edit(k2, "option(K2_WITH_MPS)\n", "option(K2_WITH_MPS OFF)\n", "cmake/mps.cmake")
    out = sandbox.ok("fold", "context-know-mps")
    assert f"wrote patches/{MPS}" in out
    assert "wrote patches/files/cmake/mps.cmake" in out
    assert "+twenty" in (sandbox.root / "patches" / MPS).read_text()
    assert "twenty" not in (sandbox.root / "patches" / ARRAY).read_text()
    sound(sandbox, k2)


def test_fold_moves_later_hunks(sandbox, k2):
    edit(k2, "line 20\n", "twenty\ntwenty and a half\n")
    sandbox.ok("fold", MPS)
    text = (sandbox.root / "patches" / ARRAY).read_text()
    assert "@@ -91,3 +91,2 @@" in text and "@@ -92,3" not in text
    sound(sandbox, k2)


def test_fold_into_the_patch_that_adds_the_file(sandbox, k2):
    (k2 / "k2/python/k2/mps/tool").write_text("other\n")
    sandbox.ok("fold", "python-add-only-new-files")
    sound(sandbox, k2)


def test_edit_words(sandbox, k2):
    files = snapshot(k2)["files"]
    out = sandbox.ok(
        "edit",
        MPS,
        "--subject",
        "context: other words",
        "--status",
        "Submitted https://example.org/1",
        "--why",
        "Better reasons.",
    )
    assert out == f"wrote patches/{MPS}\n"
    text = (sandbox.root / "patches" / MPS).read_text()
    assert "Subject: context: other words\n" in text
    assert "Upstream-Status: Submitted https://example.org/1\n" in text
    assert "\nBetter reasons.\n" in text and "indented" not in text
    assert snapshot(k2)["files"] == files
    sound(sandbox, k2)


def test_edit_in_an_editor(sandbox, k2, tmp_path):
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/know mps/know it/' \"$1\"\n")
    editor.chmod(0o755)
    sandbox.ok("edit", MPS, env={"EDITOR": str(editor), "VISUAL": ""})
    text = (sandbox.root / "patches" / MPS).read_text()
    assert "Subject: context: know it\n" in text
    assert "Because it is needed.\n\n  indented\n" in text
    sound(sandbox, k2)
    editor.write_text("#!/bin/sh\nexit 0\n")
    assert "nothing has changed" in sandbox.ok(
        "edit", MPS, env={"EDITOR": str(editor), "VISUAL": ""}
    )
    editor.write_text('#!/bin/sh\necho only this > "$1"\n')
    message = sandbox.fails(1, "edit", MPS, env={"EDITOR": str(editor), "VISUAL": ""})
    assert "the text must be a subject" in message


def test_edit_keeps_edits_of_the_checkout(sandbox, k2):
    edit(k2)
    sandbox.ok("edit", MPS, "--subject", "context: other words")
    assert git(k2, "status", "--porcelain") == f" M {CONTEXT}"


@pytest.mark.parametrize("name", [MPS, ARRAY, "python-add-only-new-files"])
def test_drop(sandbox, k2, name):
    out = sandbox.ok("drop", name)
    name = name.removesuffix(".patch") + ".patch"
    assert f"removed patches/{name}" in out
    assert not (sandbox.root / "patches" / name).exists()
    sound(sandbox, k2, 2)
    if name == MPS:
        assert "line 50\n" in (k2 / CONTEXT).read_text()
        assert "line 90\n" not in (k2 / CONTEXT).read_text()
        assert (k2 / "k2/csrc/old.cu").exists()
        assert not (k2 / "cmake").exists()


def test_every_one_can_be_undone(sandbox, k2):
    for command in (["drop", MPS], ["edit", MPS, "--subject", "x"]):
        before = snapshot(k2, times=False)["files"], patches(sandbox)
        sandbox.ok(*command)
        assert patches(sandbox) != before[1]
        sandbox.ok("undo")
        assert (snapshot(k2, times=False)["files"], patches(sandbox)) == before


@pytest.mark.parametrize("command", [["fold", MPS, "k2/new.cu"], ["new", "more", "k2/new.cu"]])
def test_undo_makes_edits_of_what_were_edits(sandbox, k2, command):
    edit(k2)
    support.write(k2, {"k2/new.cu": "new\n"})
    before = snapshot(k2), patches(sandbox)
    sandbox.ok(*command)
    sandbox.ok("undo")
    after = snapshot(k2), patches(sandbox)
    assert after == before
    sandbox.ok(*command)
    sound(sandbox, k2, 3 + (command[0] == "new"))


def test_away_from_the_series_is_refused(sandbox, k2):
    edit(k2)
    git(k2, "commit", "--quiet", "--all", "-m", "mine")
    assert "k2mps export" in sandbox.fails(1, "drop", MPS)
    git(k2, "checkout", "--quiet", "--detach", "HEAD~1")
    assert "k2mps apply" in sandbox.fails(1, "drop", MPS)

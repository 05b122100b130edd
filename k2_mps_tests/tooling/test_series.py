"""The format of patches has one way to write a patch, and the tool refuses all others."""

import dataclasses
import errno
import unicodedata

import pytest
from k2mps.core import errors, objects
from k2mps.series import hunks, patch_folder, patch_text, series_file

from k2_mps_tests.running import ran
from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.sandbox import ARRAY, NEW

IDS = ("1" * 40, "2" * 40)

GOOD = f"""\
From: k2-mps <k2-mps@k2-mps.invalid>
Subject: context: know mps
Upstream-Status: Submitted https://example.org/1
New-files:
\tcmake/mps.cmake
\tk2/csrc/mps/größe.mm

Why it is done.

  - indented

Signed-off-by: A Contributor <contributor@example.org>

---
diff --git a/k2/csrc/context.h b/k2/csrc/context.h
index {IDS[0]}..{IDS[1]} 100644
--- a/k2/csrc/context.h
+++ b/k2/csrc/context.h
@@ -3 +3,2 @@
-three
+drei
+vier
@@ -9,2 +10 @@ int Function(int x)
 nine
-ten
\\ No newline at end of file
diff --git a/scripts/run.sh b/scripts/run.sh
old mode 100755
new mode 100644
diff --git a/old file.cu b/old file.cu
deleted file mode 100644
index {IDS[0]}..{"0" * 40}
--- a/old file.cu\t
+++ /dev/null
@@ -1 +0,0 @@
-gone
diff --git a/empty.cu b/empty.cu
deleted file mode 100644
index {IDS[0]}..{"0" * 40}
diff --git a/late.cu b/late.cu
index {IDS[0]}..{IDS[1]} 100755
--- a/late.cu
+++ b/late.cu
@@ -1 +1 @@
--- a/not/a/header
+++ b/not/a/header
"""


def parse(text: str) -> patch_text.Patch:
    return patch_text.parse("name.patch", text.encode())


def test_a_patch_is_read_in_full():
    patch = parse(GOOD)
    assert patch.subject == "context: know mps"
    assert patch.status == "Submitted https://example.org/1"
    assert patch.new_files == ("cmake/mps.cmake", "k2/csrc/mps/größe.mm")
    assert patch.body.startswith("Why it is done.\n\n  - indented")
    assert patch.body.endswith("<contributor@example.org>")
    edited = ("k2/csrc/context.h", "scripts/run.sh", "old file.cu", "empty.cu", "late.cu")
    assert patch.edited == edited
    assert [(edit.old_mode, edit.new_mode) for edit in patch.edits] == [
        ("100644", "100644"),
        ("100755", "100644"),
        ("100644", ""),
        ("100644", ""),
        ("100755", "100755"),
    ]
    assert [(hunk.path, hunk.new_start) for hunk in patch.hunks] == [
        ("k2/csrc/context.h", 3),
        ("k2/csrc/context.h", 10),
        ("old file.cu", 0),
        ("late.cu", 1),
    ]
    assert patch.render() == GOOD.encode()


def test_a_removed_last_line_without_a_newline_leaves_the_newline_before_it():
    body = (b" first", b"-last", b"\\ No newline at end of file")
    hunk = hunks.Hunk("a.txt", 1, 2, 1, 1, body)
    assert hunks.edited(b"first\nlast", [hunk]) == b"first\n"


@pytest.mark.parametrize(
    "old, new",
    [
        ("", "one\n"),
        ("one\n", ""),
        ("last", "last\n"),
        ("last\n", "last"),
        ("a\nb\nc\nd\n", "A\nb\nc\nd\n"),
        ("a\nb\nc\nd", "A\nb\nc\nd"),
        ("a\nb\nc\nd\ne\nf\n", "b\nc\nd\ne\nf\ng\n"),
    ],
)
def test_the_hunks_of_git_make_the_new_file(tmp_path, old, new):
    support.write(tmp_path, {"old": old, "new": new})
    diff = ran("git", "diff", "--no-index", "-U1", "old", "new", cwd=tmp_path).stdout
    assert hunks.edited(old.encode(), hunks.split(diff.encode())) == new.encode()


OWN = "From: k2-mps <k2-mps@k2-mps.invalid>\n"


@pytest.mark.parametrize(
    "date",
    [
        "Tue, 14 Nov 2023 23:13:20 +0100",
        "Thu, 1 Jan 1970 00:00:00 +0000",
        "Thu, 1 Jan 1970 01:00:00 +0100",
        "Wed, 31 Dec 2098 19:00:00 -0530",
    ],
)
def test_the_header_may_name_an_author_and_a_date(date):
    text = GOOD.replace(OWN, f"From: Größe E. <e@f.org>\nDate: {date}\n")
    patch = parse(text)
    assert (patch.author, patch.date) == ("Größe E. <e@f.org>", date)
    assert patch.render() == text.encode()
    assert parse(GOOD).author == "k2-mps <k2-mps@k2-mps.invalid>"


def test_a_patch_may_be_new_files_only_or_edits_only_or_without_text():
    head, _, diff = GOOD.partition("---\n")
    lines = GOOD.split("\n")
    without_text = "\n".join(lines[:3]) + "\n\n---\n" + diff
    for text in (head + "---\n", "\n".join(lines[:3] + lines[6:]), without_text):
        assert parse(text).render() == text.encode()
    assert parse(without_text).body == ""


def test_line_ends_of_windows_are_named():
    with pytest.raises(errors.SeriesError, match="patch:1: the line ends in CRLF"):
        parse(GOOD.replace("\n", "\r\n"))
    with pytest.raises(errors.SeriesError, match="patch:2: the line ends in CRLF"):
        parse(GOOD.replace("\nUpstream-Status", "\r\nUpstream-Status"))


DATE = "Tue, 14 Nov 2023 23:13:20 +0100"
LATE = f"index {IDS[0]}..{IDS[1]} 100755"
MODE = "old mode 100755\nnew mode 100644\n"
COPY = "similarity index 90%\n{0} from scripts/run.sh\n{0} to scripts/go.sh\n"
BLOB = f"index {IDS[0]}..{IDS[1]} 100644\n"


@pytest.mark.parametrize(
    "old, new",
    [
        (OWN, "From: Eve <eve@e.invalid>\n"),
        ("From: ", "from: "),
        (OWN, f"{OWN}Date: {DATE}\n"),
        (OWN, f"From: Eve\nDate: {DATE}\n"),
        (OWN, f"From: <eve@e.invalid>\nDate: {DATE}\n"),
        (OWN, f"From: Eve <e> <e@f>\nDate: {DATE}\n"),
        (OWN, f"From: Eve <eve@e>\nDate: {DATE[5:]}\n"),
        (OWN, f"From: Eve <eve@e>\nDate: Wed{DATE[3:]}\n"),
        (OWN, f"From: Eve <eve@e>\nDate: {DATE[:-6]}\n"),
        (OWN, f"From: Eve <eve@e>\nDate: {DATE[:-6]} -0000\n"),
        (OWN, "From: Eve <eve@e>\nDate: yesterday\n"),
        (OWN, "From: Eve <eve@e>\nDate: Thu, 1 Jan 1970 00:59:59 +0100\n"),
        (OWN, "From: Eve <eve@e>\nDate: Fri, 1 Jan 2100 00:00:00 +0000\n"),
        (OWN, f"From: Eve <eve@e>\nDate: Tue, 14 Nov {'9' * 20} 23:13:20 +0100\n"),
        ("Subject: context: know mps", "Subject: "),
        ("Subject: context: know mps", "Subject: #1349"),
        ("Subject: context", "Subject:  context"),
        ("Upstream-Status: Submitted", "Upstream-Status: Perhaps"),
        ("Upstream-Status: Submitted https://example.org/1\n", ""),
        ("\tcmake/mps.cmake\n\tk2/csrc/mps/größe.mm\n", ""),
        ("k2/csrc/mps/größe.mm", "a.mm"),
        ("\tcmake/mps.cmake\n", "\tcmake/mps.cmake\n\tcmake/mps.cmake\n"),
        ("\tcmake/mps.cmake\n", "\tk2/csrc/context.h\n"),
        ("\n\n---\n", "\n---\n"),
        ("---\ndiff", "--\ndiff"),
        ("\n\nWhy", "\nWhy"),
        ("\n\nWhy", "\n\n\nWhy"),
        ("done.\n\n", "done.\n\n\n"),
        ("done.\n", "done.\nPatch-Filename: other.patch\n"),
        ("done.\n", "done.\n# dropped by a rebase\n"),
        ("@@ -3 +3,2 @@", "@@ -3 +3,3 @@"),
        ("@@ -3 +3,2 @@", "@@ -3,2 +3,2 @@"),
        ("@@ -3 +3,2 @@", "@@ -3,0 +3,1 @@"),
        ("-three\n", "three\n"),
        ("+drei\n", "+drei\nstray\n"),
        ("-gone", "+gone"),
        ("--- a/k2/csrc/context.h", "--- a/k2/csrc/other.h"),
        ("+++ b/k2/csrc/context.h", "+++ b/../../etc/passwd"),
        ("diff --git a/late.cu b/late.cu", "diff --git a/late.cu b/soon.cu"),
        ("diff --git a/late.cu b/late.cu", 'diff --git "a/late" "b/late"'),
        ("diff --git a/late.cu", "diff --git x/late.cu"),
        ("diff --git a/late.cu b/late.cu", "diff --git a/k2/csrc/context.h b/k2/csrc/context.h"),
        (LATE, "index 1111111..2222222 100755"),
        (LATE, LATE.replace("100755", "120000")),
        (LATE, LATE.replace("100755", "160000")),
        ("new mode 100644", "new mode 120000"),
        ("new mode 100644\n", ""),
        (MODE, "new file mode 100644\n"),
        (MODE, COPY.format("rename")),
        (MODE, COPY.format("copy")),
        (MODE, f"{BLOB}GIT binary patch\nliteral 1\n"),
        (MODE, f"{BLOB}Binary files a/x and b/x differ"),
        # A last line without a line end, an empty line at the end, a patch that changes nothing,
        # and a NUL byte.
        ("+++ b/not/a/header\n", "+++ b/not/a/header"),
        ("+++ b/not/a/header\n", "+++ b/not/a/header\n\n"),
        (GOOD[GOOD.index("New-files") :], "\n---\n"),
        ("+drei", "+dr\0ei"),
    ],
)
def test_a_patch_in_another_form_is_refused(old, new):
    assert old in GOOD
    with pytest.raises(errors.SeriesError):
        parse(GOOD.replace(old, new, 1))


def test_a_line_that_ends_the_message_of_a_patch_is_not_in_its_body():
    patch = dataclasses.replace(parse(GOOD), body="a\n---\nb")
    _, reason = patch_text.flaw(patch)
    assert "lines '---'" in reason


def test_a_tab_may_be_in_the_body():
    text = GOOD.replace("  - indented", "\t- indented")
    assert parse(text).render() == text.encode()


def test_a_diff_that_begins_with_another_line_is_named_by_this_line():
    with pytest.raises(errors.SeriesError, match="the edit 'no diff' is not as git writes it"):
        parse(GOOD.replace("---\ndiff --git", "---\nno diff\ndiff --git"))


def test_the_edit_that_git_would_not_write_is_named():
    reason = "patch:28: the edit 'diff --git a/scripts/run.sh b/scripts/run.sh' is not as git"
    with pytest.raises(errors.SeriesError, match=reason):
        parse(GOOD.replace("new mode 100644\n", ""))


@pytest.mark.parametrize(
    "old, new, reason",
    [
        ("\n\nWhy", "\nWhy", "patch:7: an empty line is expected here"),
        ("Subject: context", "Subject:  context", "patch:2: 'Subject: context: know mps' is exp"),
    ],
)
def test_the_line_that_is_expected_is_named(old, new, reason):
    with pytest.raises(errors.SeriesError, match=reason):
        parse(GOOD.replace(old, new))


def test_a_diff_need_not_be_utf8_but_the_header_must_be():
    raw = GOOD.encode().replace(b"+drei", b"+dr\xe9i")
    assert patch_text.parse("name.patch", raw).render() == raw
    with pytest.raises(errors.SeriesError):
        patch_text.parse("name.patch", GOOD.encode().replace("größe".encode(), b"gr\xf6\xdfe"))


ORDINARY = [
    "a",
    ".github/workflows/x.yml",
    ".gitignore",
    "größe.mm",
    "a..b",
    "...",
    "git",
    "a/.gitkeep",
    "-x",
    "k2/csrc/a b.h",
]
UNSAFE = [
    "/etc/passwd",
    "../outside",
    "a/../../outside",
    "a/./b",
    "a//b",
    "a/",
    ".",
    "..",
    ".git/hooks/post-checkout",
    ".GIT/config",
    "sub/.git/config",
    "a/.git",
    ".git./config",
    ".git /config",
    ".git::$INDEX_ALLOCATION/config",
    "GIT~1/config",
    ".gitmodules",
    "\u200c.git/config",
    ".g\u200cit/config",
    r"a\b",
    r"a\..\b",
    "C:/windows",
    'a"b',
    "a\tb",
    "a\x7fb",
    "",
    "a\nb",
]


@pytest.mark.parametrize("path", ORDINARY)
def test_an_ordinary_path_is_accepted(path):
    patch_text.check_path(path, "patches/x.patch")


@pytest.mark.parametrize("path", UNSAFE)
def test_an_unsafe_path_is_refused(path):
    with pytest.raises(errors.SeriesError, match="is refused"):
        patch_text.check_path(path, "patches/x.patch")


@pytest.mark.parametrize(
    "path", ["k2/.gitattributes", ".GITIGNORE", ".DS_Store", "a.h~", ".a.h.swp", ".#a", "k2/#a#"]
)
def test_a_patch_may_edit_but_not_add_such_a_file(path):
    patch_text.check_path(path, "patches/x.patch")
    with pytest.raises(errors.SeriesError, match="is refused"):
        patch_text.check_path(path, "patches/x.patch", new=True)


@pytest.mark.parametrize("old", ["cmake/mps.cmake", "k2/csrc/context.h"])
def test_an_unsafe_path_is_refused_before_git_sees_it(sandbox, old):
    file = sandbox.root / "patches/context-know-mps.patch"
    file.write_text(file.read_text().replace(old, "../../outside"))
    assert sandbox.fails(1, "apply").startswith(f"error: patches/{file.name} names the path")
    assert not (sandbox.root.parent / "outside").exists()


def test_comments_and_empty_lines_of_the_order_are_skipped():
    order = b"# why\n\n a.patch \nb.patch\n#c.patch\n"
    assert series_file.parse(order) == (["a.patch", "b.patch"], {})


def test_an_order_that_does_not_change_keeps_every_byte():
    kept = b"# why\n\na.patch\nb.patch"
    assert series_file.render_order(kept, ["a.patch", "b.patch"]) == kept


def test_a_removed_patch_loses_its_line():
    kept = b"# why\n\na.patch\nb.patch"
    assert series_file.render_order(kept, ["b.patch"]) == b"# why\n\nb.patch\n"


def test_a_comment_stays_above_its_patch():
    old = b"# why\n\na.patch\n# about b\nb.patch\n  # at the end"
    new = series_file.render_order(old, ["b.patch", "a.patch", "x.patch"])
    assert new == b"# why\n\n# about b\nb.patch\na.patch\nx.patch\n  # at the end\n"
    without = series_file.render_order(old, ["a.patch"])
    assert without == b"# why\n\na.patch\n# about b\n  # at the end\n"


@pytest.mark.parametrize(
    "name", ["../x.patch", "/x.patch", "a/x.patch", "x.txt", ".patch", "a b.patch", "-x.patch"]
)
def test_an_invalid_name_of_a_patch_is_refused(name):
    with pytest.raises(errors.SeriesError):
        series_file.parse(f"{name}\n".encode())


def test_a_patch_that_is_named_twice_is_refused():
    with pytest.raises(errors.SeriesError):
        series_file.parse(b"a.patch\na.patch\n")


CMAKE = "files/cmake/mps.cmake"


@pytest.fixture
def patches(sandbox):
    return sandbox.root / "patches"


def refuses(patches, reason):
    with pytest.raises(errors.SeriesError, match=reason):
        patch_folder.load(patches)


@pytest.mark.parametrize("path", [CMAKE, "files/cmake", NEW])
def test_a_symbolic_link_in_patches_is_refused(patches, tmp_path, path):
    (patches / path).rename(tmp_path / "elsewhere")
    (patches / path).symlink_to(tmp_path / "elsewhere")
    refuses(patches, "a symbolic link")


@pytest.mark.parametrize("path", ["stray.patch", "files/stray.h", f"{CMAKE}x"])
def test_a_file_of_no_patch_is_refused(patches, path):
    (patches / path).touch()
    with pytest.raises(errors.SeriesError, match="belongs to no patch") as raised:
        patch_folder.load(patches)
    assert "move it out of patches/" in str(raised.value)  # It may be the user's work.


@pytest.mark.parametrize("path", [NEW, CMAKE, "series"])
def test_a_missing_file_is_refused(patches, path):
    (patches / path).unlink()
    refuses(patches, "does not exist")


def test_a_patch_that_the_system_cannot_read_hides_no_other_problem(patches, monkeypatch):
    def refuse(path):
        if path.endswith(NEW):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return read(path)

    read = objects.read
    monkeypatch.setattr(objects, "read", refuse)
    (patches / ARRAY).unlink()
    _, problems = patch_folder.examine(patches)
    assert [path for path, _ in problems] == [f"patches/{ARRAY}", f"patches/{NEW}"]


def test_a_marker_of_a_conflict_without_its_end_is_text(patches):
    (patches / CMAKE).write_text("<<<<<<< ours\n||||||| base\n")
    patch_folder.load(patches)
    (patches / CMAKE).write_text(">>>>>>> theirs\n<<<<<<< ours\n")
    patch_folder.load(patches)
    (patches / CMAKE).write_text("<<<<<<< ours\n||||||| base\n>>>>>>> theirs\n")
    refuses(patches, "mps.cmake:1: a merge conflict")


def test_a_new_file_of_two_patches_is_refused(patches):
    text = (patches / NEW).read_text()
    (patches / NEW).write_text(text.replace("New-files:\n", "New-files:\n\tcmake/mps.cmake\n"))
    refuses(patches, "belongs to both")


def test_new_files_whose_names_differ_only_in_case_are_refused(patches):
    text = (patches / NEW).read_text()
    (patches / NEW).write_text(text.replace("New-files:\n", "New-files:\n\tcmake/MPS.cmake\n"))
    (patches / "files/cmake/MPS.cmake").write_text("option()\n")
    refuses(patches, "cmake/mps.cmake of .* in other letters")


def test_a_new_file_that_a_mac_takes_for_another_is_refused(patches):
    """The letter ö can be one character or two, and on a Mac both are one name."""
    text = (patches / NEW).read_text()
    path = "k2/python/k2/mps/größe.txt"
    other = unicodedata.normalize("NFD", path)
    (patches / NEW).write_text(text.replace(f"\t{path}\n", f"\t{other}\n\t{path}\n"))
    refuses(patches, "in other letters")


def test_a_hidden_file_of_patches_belongs_to_no_patch_and_is_ignored(patches):
    (patches / ".k2mps-draft-0123456789abcdef").touch()
    patch_folder.load(patches)
    (patches / "files/.hidden").touch()
    refuses(patches, "files/.hidden belongs to no patch")


@pytest.mark.parametrize("name", ["a", "a.patch", "patches/a.patch", "/k2-mps/patches/a"])
def test_a_patch_has_several_names(name):
    assert patch_folder.index(["b.patch", "a.patch"], name) == 1
    with pytest.raises(errors.K2mpsError, match="there is no patch files/"):
        patch_folder.index(["b.patch", "a.patch"], f"files/{name}".replace("patches/", ""))


def test_an_edit_of_a_file_that_a_patch_adds_is_refused(patches):
    text = (patches / ARRAY).read_text()
    (patches / ARRAY).write_text(text.replace("k2/csrc/no_newline.txt", "cmake/mps.cmake"))
    refuses(patches, "which .* adds")

"""The form of a patch file, which reading enforces, so that each patch has one text.

A patch file edits files that upstream has.  It is UTF-8 with LF line ends:

    From: k2-mps <k2-mps@k2-mps.invalid>
    Subject: build: one line that says what
    Upstream-Status: Pending (not sent yet)
    New-files:
    <tab>cmake/example.cmake
    <tab>k2/csrc/mps/example.h

    Why, in as many lines as it takes.

    ---
    diff --git a/CMakeLists.txt b/CMakeLists.txt
    index <40 digits>..<40 digits> 100644
    --- a/CMakeLists.txt
    +++ b/CMakeLists.txt
    @@ -12 +12 @@
    ...

- `git am` reads a patch file as mail.
- `From` and, on a line after it, `Date` are the author of the commit.  A patch without `Date` is
  the project's own and has the first line above.
- `Upstream-Status` is Pending or Inappropriate with the reason, as "Pending (not sent yet)", or
  Submitted or Accepted with the link of the pull request: lint asks for these.
- `New-files` names the files that the patch adds, sorted, one a line after a tab; it is absent
  where there are none.  New files are not in the diff but under patches/files at their place in
  k2's tree.  Each belongs to one patch; only a patch of a later group may edit it.
- The diff is text and has one line of context, full blob ids and no function names after its hunk
  headers.  It modifies or deletes files, and changes their executable bit; it never adds, renames
  or copies.
- The diff or New-files may be absent, not both.

A patch file may be hostile: reading refuses a path that leaves the tree, reaches into .git or goes
through a symbolic link, before git sees it.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from k2mps.core import errors, git
from k2mps.core.objects import File
from k2mps.series.hunks import Hunk, split

FROM = f"{git.IDENTITY_NAME} <{git.IDENTITY_EMAIL}>"
DEFAULT_STATUS = "Pending (not sent yet)"
STATUSES = ("Pending", "Submitted", "Accepted", "Inappropriate")
# The part of a file in a diff, as git writes it for an edit of a regular file.
_EDIT = re.compile(
    rb"""diff\ --git\ a/(?P<path>.+)\ b/(?P=path)\n
    (?:old\ mode\ (?P<old_mode>%(mode)b)\nnew\ mode\ (?P<new_mode>%(mode)b)\n
      |deleted\ file\ mode\ (?P<deleted>%(mode)b)\n)?
    (?:index\ (?P<old_id>%(id)b)\.\.(?P<new_id>%(id)b)(?:\ (?P<mode>%(mode)b))?\n
      (?P<names>---\ .+\n\+\+\+\ .+\n)?
      (?:@@\ -\d{1,9}(?:,\d{1,9})?\ \+\d{1,9}(?:,\d{1,9})?\ @@\n
        (?:[-+ ].*\n(?:\\\ No\ newline\ at\ end\ of\ file\n)?)*)*)?"""
    % {b"mode": rb"100644|100755", b"id": rb"[0-9a-f]{40}"},
    re.VERBOSE,
)
_ZERO_ID = "0" * 40
_EMPTY_ID = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
# What a commit's message says of the header; in a patch file the header says it.
TRAILER = re.compile(r"(Upstream-Status|Patch-Filename): *(.*)")
_YEAR = re.compile(r" (19[7-9]\d|20\d\d) ")
AUTHOR = re.compile(r"[^<>\n\0]*[^<>\n\0 ] <[^<>\n\0 ]*>")


class Edit(NamedTuple):
    """What a patch's diff does to one file."""

    path: str  # the file, in k2's tree
    old_id: str | None  # blob id before; None where only the mode changes
    new_id: str | None  # blob id after, all zeros for a deletion; None as above
    old_mode: str | None  # mode before, where the diff has it; else None
    new_mode: str | None  # mode after, where the diff has it; None for a deletion


@dataclasses.dataclass(frozen=True)
class Patch:
    name: str  # its file name under patches/
    subject: str  # what it does, one line
    status: str  # the value of Upstream-Status
    body: str  # why, without trailing newline; may be empty
    new_files: tuple[str, ...]  # the paths that it adds, sorted
    diff: bytes  # its diff; empty where it only adds files
    edits: tuple[Edit, ...]  # what the diff does to each file
    author: str = FROM  # "NAME <EMAIL>"
    date: str = ""  # the author's date, as in mail; empty for the project's own patches

    def render(self) -> bytes:
        return os.fsencode(self._head()) + self.diff

    @functools.cached_property
    def hunks(self) -> list[Hunk]:
        """The hunks of its diff, in order."""
        return split(self.diff)

    @property
    def subject_line(self) -> int:
        """The line of the subject in the patch file, from 1; the status is next."""
        return 3 if self.date else 2

    @property
    def diff_line(self) -> int:
        """The first line of the diff in the patch file, from 1."""
        return self._head().count("\n") + 1

    def _head(self) -> str:
        lines = [
            f"From: {self.author}",
            *([f"Date: {self.date}"] if self.date else ()),
            f"Subject: {self.subject}",
            f"Upstream-Status: {self.status}",
        ]
        if self.new_files:
            lines.append("New-files:")
            lines += [f"\t{path}" for path in self.new_files]
        lines.append("")
        if self.body:
            lines += [self.body, ""]
        lines.append("---\n")
        return "\n".join(lines)

    def line_of(self, path: str, start: int) -> int:
        """The line in the patch file of the hunk that replaces a file's lines from `start` on."""
        here = (one for one in self.hunks if (one.path, one.old_start) == (path, start))
        return next((self.diff_line + one.line - 1 for one in here), 1)

    def mail(self, files: Mapping[str, File], date: str) -> bytes:
        """The patch with its new files as mail, for `git am`; `date` is that of a patch without
        one."""
        head = [
            f"From {'0' * 40} Mon Sep 17 00:00:00 2001",
            f"From: {_encoded(self.author)}",
            f"Date: {self.date or date}",
            "MIME-Version: 1.0",
            "Content-Type: text/plain; charset=UTF-8",
            "Content-Transfer-Encoding: 8bit",
            f"Subject: {self.commit_message()}---\n",
        ]
        new = b"".join(_addition(path, files[path]) for path in self.new_files)
        return os.fsencode("\n".join(head)) + self.diff + new + b"\n"

    def commit_message(self) -> str:
        """The message of the commit that the patch becomes."""
        trailers = f"Upstream-Status: {self.status}\nPatch-Filename: {self.name}\n"
        parts = [self.subject, self.body, trailers]
        return "\n\n".join(part for part in parts if part)


def _encoded(author: str) -> str:
    """An author for a line of mail, whose rules know commas, dots and quotes."""
    name, _, address = author[:-1].rpartition(" <")
    letters = (
        chr(one) if chr(one).isalnum() and one < 128 else f"={one:02X}" for one in os.fsencode(name)
    )
    return f"=?UTF-8?q?{''.join(letters)}?= <{address}>"


def _addition(path: str, file: File) -> bytes:
    """A new file as git's diff."""
    head = f"diff --git a/{path} b/{path}\nnew file mode {file.mode}\n"
    if not file.content:
        return os.fsencode(f"{head}index {_ZERO_ID}..{_EMPTY_ID}\n")
    lines = file.content.count(b"\n") + (not file.content.endswith(b"\n"))
    tab = "\t" if " " in path else ""
    head += f"--- /dev/null\n+++ b/{path}{tab}\n@@ -0,0 +1,{lines} @@\n+"
    if file.content.endswith(b"\n"):
        text = file.content[:-1].replace(b"\n", b"\n+") + b"\n"
    else:
        text = file.content.replace(b"\n", b"\n+") + b"\n\\ No newline at end of file\n"
    return os.fsencode(head) + text


def plain(body: str) -> str:
    """A body as git leaves it, which strips white space and joins empty lines."""
    text = "\n".join(line.rstrip() for line in body.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")


def mail_date(text: str) -> str:
    """A date as git writes it in mail; empty if the text is not a date of mail."""
    # Few patches have a date, and these take time to import.
    import datetime
    import email.utils

    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (OverflowError, ValueError):
        return ""
    moment = moment.replace(tzinfo=moment.tzinfo or datetime.timezone.utc)
    # git gives the day no leading zero.
    words = email.utils.format_datetime(moment).split(" ")
    return " ".join([words[0], str(int(words[1])), *words[2:]])


def check_path(path: str, where: str, new: bool = False) -> None:
    """Refuses a path in k2's tree that a patch must not touch, or must not add where it is `new`;
    `where` is the file that has it."""
    parts = path.split("/")
    # Case-insensitive and Windows file systems take these for .git as well.
    plain = [part.lower().rstrip(" .") for part in parts]
    for refused, reason in (
        (not path or path.startswith("/"), "it is not relative to k2's tree"),
        (not {"", ".", ".."}.isdisjoint(parts), "it does not stay inside k2's tree"),
        (not path.isprintable(), "it has control or invisible characters"),
        (set(path) & set('\\":'), "it has a backslash, a colon or a quotation mark"),
        (
            any(part in (".git", ".gitmodules") or part.startswith("git~") for part in plain),
            "it reaches into git's own files",
        ),
        (
            new and plain[-1] in (".gitattributes", ".gitignore"),
            "under patches/files it would also act on this repository",
        ),
    ):
        if refused:
            raise errors.UnsafePathError(
                f"{where} names the path {path!r}, which is refused",
                why=reason,
                next_command="do not apply patches from a source you do not"
                " trust; if it is yours, correct the path",
            )


def flaw(patch: Patch) -> tuple[int, str] | None:
    """A value in the header of a patch that is refused: its line and the reason; None if there is
    no such value."""
    if not AUTHOR.fullmatch(patch.author):
        return 1, f"{patch.author!r} is not 'NAME <EMAIL>'"
    if (patch.author == FROM) == bool(patch.date):
        return 1, f"a date needs an author, and an author other than {FROM} needs a date"
    if patch.date and mail_date(patch.date) != patch.date:
        example = "Tue, 14 Nov 2023 23:13:20 +0100"
        return 2, f"{patch.date!r} is not a date as in mail, {example!r}"
    if patch.date and _YEAR.search(patch.date) is None:
        return 2, f"git knows years from 1970 to 2099, not {patch.date!r}"
    if not patch.subject:
        return patch.subject_line, "a patch needs a subject"
    header = f"{patch.author}{patch.subject}{patch.status}"
    if not header.isprintable() or not patch.body.replace("\n", "").replace("\t", "").isprintable():
        return patch.subject_line, "the header or the body has control or invisible characters"
    if any(map(TRAILER.fullmatch, patch.body.split("\n"))):
        return patch.diff_line, "Upstream-Status and Patch-Filename do not belong in the body"
    if patch.status.split(" ")[0] not in STATUSES:
        known = ", ".join(STATUSES)
        return patch.subject_line + 1, f"Upstream-Status is one of {known}, not {patch.status!r}"
    return None


def parse(name: str, raw: bytes) -> Patch:
    """Reads one patch file; a `SeriesError` tells where it has not the form described above."""
    head, separator, diff = raw.partition(b"\n---\n")
    if not separator:
        raise _malformed(name, 1, "there is no line '---'")
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError:
        raise _malformed(name, 1, "the text is not UTF-8") from None
    patch = _header(name, text)
    edits = parse_diff(name, diff, first_line=patch.diff_line)
    for edit in edits:
        if edit.path in patch.new_files:
            raise errors.SeriesError(
                f"patches/{name} both adds and edits {edit.path}",
                next_command=f"edit patches/files/{edit.path}, and take it out of the diff",
            )
    if not patch.new_files and not edits:
        raise errors.SeriesError(
            f"patches/{name} changes nothing",
            next_command="delete it and its line in patches/series",
        )
    return dataclasses.replace(patch, diff=diff, edits=edits)


def parse_diff(name: str, diff: bytes, first_line: int = 1) -> tuple:
    """Reads a diff, whose first line has a number in the patch file, strictly: each line must be
    one that git would write, so that git applies what was checked."""
    if not diff:
        return ()
    if not diff.endswith(b"\n"):
        raise _malformed(name, first_line, "the last line is not ended")
    edits = []
    at, line = 0, first_line
    while at < len(diff):
        match = _EDIT.match(diff, at)
        if not match:
            raise _malformed(
                name,
                line,
                "the edit of a file is expected here as git writes it: one plain path, modes"
                " of regular files, full blob ids, hunks without titles",
            )
        edits.append(_edit(name, match, line))
        line += match[0].count(b"\n")
        at = match.end()
    paths = [edit.path for edit in edits]
    if len(set(paths)) != len(paths):
        raise _malformed(name, first_line, "a file is edited twice")
    return tuple(edits)


def _header(name: str, text: str) -> Patch:
    """The patch of what stands above the line "---", without its diff."""
    header, _, body = text.partition("\n\n")
    fields: dict[str, str] = {}
    for line in header.split("\n"):
        key, _, value = line.partition(": ")
        fields.setdefault(key, value.strip())
    files = tuple(sorted({line[1:] for line in header.split("\n") if line.startswith("\t")}))
    for path in files:
        check_path(path, f"patches/{name}", new=True)
    author, date, subject, status = (
        fields.get(key, "") for key in ("From", "Date", "Subject", "Upstream-Status")
    )
    patch = Patch(name, subject, status, plain(body), files, b"", (), author, date)
    # There is one text for a patch, which this is or is not.
    lines = zip(f"{text}\n---\n".split("\n"), patch._head().split("\n"))
    for number, (given, wanted) in enumerate(lines, start=1):
        if given != wanted:
            what = repr(wanted) if wanted else "an empty line"
            raise _malformed(name, number, f"{what} is expected here")
    refused = flaw(patch)
    if refused:
        raise _malformed(name, *refused)
    return patch


def _edit(name: str, match: re.Match, line: int) -> Edit:
    """An edit, whose part of the diff begins at a line of the patch file."""
    path = os.fsdecode(match["path"])
    check_path(path, f"patches/{name}")
    deleted, old_mode, new_mode, mode, old_id, new_id = (
        found and found.decode()
        for found in match.group("deleted", "old_mode", "new_mode", "mode", "old_id", "new_id")
    )
    if bool(deleted) != (new_id == _ZERO_ID) or old_id == _ZERO_ID:
        raise _malformed(name, line, f"the blob ids do not fit what is done to {path}")
    if old_id and bool(mode) == bool(deleted or old_mode):
        raise _malformed(name, line, f"git gives the mode of {path} once")
    if not old_id and old_mode == new_mode:
        raise _malformed(name, line, f"nothing is done to {path}")
    # git ends these lines with a tab where the path has a space.
    tail = b"\t" if b" " in match["path"] else b""
    new_name = b"/dev/null" if deleted else b"b/" + match["path"] + tail
    names = b"--- a/%b%b\n+++ %b\n" % (match["path"], tail, new_name)
    found = split(match[0])
    # An empty file has no hunks to delete.
    if old_id and (match["names"] != names or not found) and (match["names"] or not deleted):
        raise _malformed(name, line, f"'--- a/...', '+++ ...' and hunks are expected for {path}")
    for hunk in found:
        signs = [text[:1] for text in hunk.body]
        old, new = (signs.count(b" ") + signs.count(sign) for sign in (b"-", b"+"))
        if (old, new) != (hunk.old_count, hunk.new_count):
            raise _malformed(name, line + hunk.line - 1, "the hunk does not fit its header")
    return Edit(path, old_id, new_id, deleted or old_mode or mode, new_mode or mode)


def _malformed(name: str, line: int, reason: str) -> errors.SeriesError:
    return errors.SeriesError(
        f"patches/{name}:{line}: {reason}",
        why="k2mps export writes patch files; tools/k2mps/series/patch_text.py"
        " describes their form",
        next_command="correct the line; or git checkout patches; or"
        " k2mps export --overwrite, if the checkout has the commits",
    )

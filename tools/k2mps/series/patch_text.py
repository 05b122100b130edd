"""The form of a patch file, which reading enforces, so that each patch has one text.

A patch file edits files that upstream has.  It is UTF-8 with LF line ends:

    From: k2-mps <k2-mps@k2-mps.invalid>
    Subject: build: one line that says what
    Upstream-Status: Pending
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
- `From` and, on a line after it, `Date` are the author of the commit.  A patch
  without `Date` is the project's own and has the first line above.
- `Upstream-Status` is Pending, Submitted, Accepted or Inappropriate, then any
  text.
- `New-files` names the files that the patch adds, sorted, one a line after a
  tab; it is absent where there are none.  New files are not in the diff but
  under patches/files at their place in k2's tree.  Each belongs to one patch;
  only a patch of a later group may edit it.
- The diff is text and has one line of context, full blob ids and no function
  names after its hunk headers.  It modifies or deletes files, and changes their
  executable bit; it never adds, renames or copies.
- The diff or New-files may be absent, not both.

A patch file may be hostile: reading refuses a path that leaves the tree, reaches
into .git or goes through a symbolic link, before git sees it.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import unicodedata
from collections.abc import Sequence

from k2mps.core import errors, git
from k2mps.core.objects import EXECUTABLE_MODE, FILE_MODE
from k2mps.series.hunks import NO_NEWLINE, Hunk, split

FROM = f"{git.IDENTITY_NAME} <{git.IDENTITY_EMAIL}>"
DEFAULT_STATUS = "Pending"
STATUSES = ("Pending", "Submitted", "Accepted", "Inappropriate")
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_INDEX = re.compile(rb"index ([0-9a-f]{40})\.\.([0-9a-f]{40})(?: (\d{6}))?")
_DIFF_HEADER = re.compile(rb"diff --git a/(.+) b/(.+)")
_ZERO_ID = "0" * 40
AUTHOR = re.compile(r"[^<>\n\0]*[^<>\n\0 ] <[^<>\n\0 ]*>")


@dataclasses.dataclass(frozen=True)
class Edit:
    """What a patch's diff does to one file."""

    path: str  # the file, in k2's tree
    old_id: str | None  # blob id before; None where only the mode changes
    new_id: str | None  # blob id after, all zeros for a deletion; None as above
    old_mode: str | None  # mode before, where the diff has it; else None
    new_mode: str | None  # mode after, where the diff has it; None for a deletion

    @property
    def deletes(self) -> bool:
        return self.new_id == _ZERO_ID


@dataclasses.dataclass(frozen=True)
class Patch:
    """One patch."""

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
        return self._head() + self.diff

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
        return self._head().count(b"\n") + 1

    def _head(self) -> bytes:
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
        return os.fsencode("\n".join(lines))

    def commit_message(self) -> str:
        """The message of the commit that the patch becomes."""
        trailers = f"Upstream-Status: {self.status}\nPatch-Filename: {self.name}\n"
        parts = [self.subject, self.body, trailers]
        return "\n\n".join(part for part in parts if part)


def mail_date(text: str) -> str:
    """A date as git writes it in mail; empty if the text is not a date of mail
    with a time zone."""
    # Few patches have a date, and these take time to import.
    import datetime
    import email.utils

    parsed = email.utils.parsedate_tz(text)
    if not parsed or parsed[9] is None:
        return ""
    seconds = parsed[9]
    try:
        zone = datetime.timezone(datetime.timedelta(seconds=seconds))
        moment = datetime.datetime.fromtimestamp(email.utils.mktime_tz(parsed), zone)
    except (OverflowError, ValueError):
        return ""
    # git gives the day no leading zero.
    words = email.utils.format_datetime(moment).split(" ")
    return " ".join([words[0], str(int(words[1])), *words[2:]])


def check_path(path: str, where: str) -> None:
    """Refuses a path that a patch must not touch.

    Args:
      path: the path, relative to the top of k2's tree.
      where: the file that names the path, for the message.
    Raises:
      UnsafePathError: the path is refused.
    """
    reason = _unsafe(path)
    if reason:
        raise errors.UnsafePathError(
            f"{where} names the path {path!r}, which is refused",
            why=reason,
            next_command="do not apply patches from a source you do not"
            " trust; if it is yours, correct the path",
        )


def parse(name: str, raw: bytes) -> Patch:
    """Reads one patch file.

    Raises:
      SeriesError: the file has not the form that this module describes.
      UnsafePathError: the file names a path that a patch must not touch.
    """
    head, separator, diff = raw.partition(b"\n---\n")
    if not separator:
        raise _malformed(name, 1, "there is no line '---'")
    try:
        head.decode("utf-8")
    except UnicodeDecodeError:
        raise _malformed(name, 1, "the text is not UTF-8") from None
    lines = os.fsdecode(head).split("\n")
    if lines[-1] != "":
        raise _malformed(name, len(lines), "an empty line must come before '---'")
    reader = _HeaderReader(name, lines)
    author = reader.field("From")
    date = reader.optional("Date")
    if not AUTHOR.fullmatch(author) or (author == FROM) != (not date):
        raise _malformed(
            name,
            1,
            f"the first line must be 'From: {FROM}', or 'From: NAME"
            " <EMAIL>' with a line 'Date: ...' after it",
        )
    if date and mail_date(date) != date:
        raise _malformed(name, 2, "Date must be as in 'Tue, 14 Nov 2023 23:13:20 +0100'")
    subject_line = 3 if date else 2
    subject = reader.field("Subject")
    status = reader.field("Upstream-Status")
    new_files = reader.listing("New-files")
    body = reader.rest()
    if not subject:
        raise _malformed(name, subject_line, "the subject is empty")
    if status.split(" ")[0] not in STATUSES:
        raise _malformed(
            name, subject_line + 1, f"Upstream-Status must start with one of {STATUSES}"
        )
    for path in new_files:
        check_path(path, f"patches/{name}")
    if list(new_files) != sorted(set(new_files)):
        raise _malformed(name, subject_line + 2, "New-files must be sorted, each path once")
    edits = parse_diff(name, diff, first_line=len(lines) + 2)
    for edit in edits:
        if edit.path in new_files:
            raise errors.SeriesError(
                f"patches/{name} both adds and edits {edit.path}",
                next_command=f"edit patches/files/{edit.path}, and take it out of the diff",
            )
    if not new_files and not edits:
        raise errors.SeriesError(
            f"patches/{name} changes nothing",
            next_command="delete it and its line in patches/series, then k2mps lock",
        )
    return Patch(name, subject, status, body, new_files, diff, edits, author, date)


def parse_diff(name: str, diff: bytes, first_line: int = 1) -> tuple:
    """Reads a diff strictly, so that git applies what was checked: every line must
    be one that git would write.

    Args:
      first_line: the first line of the diff in the patch file.
    """
    if not diff:
        return ()
    if not diff.endswith(b"\n"):
        raise _malformed(name, first_line, "the last line is not ended")
    reader = _DiffReader(name, diff.split(b"\n"), first_line)
    edits = []
    while not reader.at_end():
        edits.append(reader.edit())
    paths = [edit.path for edit in edits]
    if len(set(paths)) != len(paths):
        raise _malformed(name, first_line, "a file is edited twice")
    return tuple(edits)


class _HeaderReader:
    """Takes header fields off the top of a patch file, in a fixed order."""

    def __init__(self, name: str, lines: Sequence[str]):
        self._name = name
        self._lines = lines
        self._at = 0

    def field(self, key: str) -> str:
        line = self._lines[self._at]
        if not line.startswith(f"{key}: "):
            raise self._error(f"'{key}: ...' is expected here")
        self._at += 1
        value = line[len(key) + 2 :]
        if value != value.strip():
            raise self._error(f"{key} has spaces around its value")
        return value

    def optional(self, key: str) -> str:
        found = self._lines[self._at].startswith(f"{key}: ")
        return self.field(key) if found else ""

    def listing(self, key: str) -> tuple[str, ...]:
        if self._lines[self._at] != f"{key}:":
            return ()
        self._at += 1
        paths = []
        while self._lines[self._at].startswith("\t"):
            paths.append(self._lines[self._at][1:])
            self._at += 1
        if not paths:
            raise self._error(f"{key} has no entries")
        return tuple(paths)

    def rest(self) -> str:
        if self._lines[self._at] != "":
            raise self._error("an empty line must end the header")
        body = "\n".join(self._lines[self._at + 1 : -1])
        if body != body.strip("\n"):
            raise self._error("the text must not begin or end with an empty line")
        return body

    def _error(self, reason: str) -> errors.SeriesError:
        return _malformed(self._name, self._at + 1, reason)


class _DiffReader:
    """Reads the edits of a diff one after the other."""

    def __init__(self, name: str, lines: Sequence[bytes], first_line: int):
        self._name = name
        # The last line is empty, and none of a diff.
        self._lines = lines
        self._first_line = first_line
        self._at = 0

    def at_end(self) -> bool:
        return self._at == len(self._lines) - 1

    @property
    def _line(self) -> bytes:
        return self._lines[self._at]

    def edit(self) -> Edit:
        path = self._path()
        old_mode, new_mode, deletes = self._modes()
        old_id = new_id = None
        match = self._match(_INDEX)
        if match:
            old_id, new_id = match[1].decode(), match[2].decode()
            if match[3]:
                old_mode = new_mode = self._mode(match[3])
        if match:
            self._hunks(path, deletes)
        if deletes != (new_id == _ZERO_ID) or old_id == _ZERO_ID:
            raise self._error("the blob ids do not fit what is done")
        if not match and old_mode == new_mode:
            raise self._error(f"nothing is done to {path}")
        return Edit(path, old_id, new_id, old_mode, new_mode)

    def _path(self) -> str:
        match = self._match(_DIFF_HEADER)
        if not match or match[1] != match[2]:
            raise self._error("'diff --git a/PATH b/PATH' with one plain path is expected")
        path = os.fsdecode(match[1])
        check_path(path, f"patches/{self._name}")
        return path

    def _modes(self) -> tuple[str | None, str | None, bool]:
        match = self._match(re.compile(rb"deleted file mode (\d{6})"))
        if match:
            return self._mode(match[1]), None, True
        match = self._match(re.compile(rb"old mode (\d{6})"))
        if not match:
            return None, None, False
        old_mode = self._mode(match[1])
        match = self._match(re.compile(rb"new mode (\d{6})"))
        if not match:
            raise self._error("'new mode' is expected")
        return old_mode, self._mode(match[1]), False

    def _mode(self, digits: bytes) -> str:
        mode = digits.decode()
        if mode not in (FILE_MODE, EXECUTABLE_MODE):
            raise self._error(f"mode {mode} is refused: patches touch regular files only")
        return mode

    def _hunks(self, path: str, deletes: bool) -> None:
        encoded = os.fsencode(path)
        # git ends these lines with a tab where the path has a space.
        tail = b"\t" if b" " in encoded else b""
        new_name = b"/dev/null" if deletes else b"b/" + encoded + tail
        if deletes and (self.at_end() or _DIFF_HEADER.match(self._line)):
            return  # an empty file has no hunks to delete
        for line in (b"--- a/" + encoded + tail, b"+++ " + new_name):
            if self._line != line:
                raise self._error(f"'{os.fsdecode(line)}' is expected")
            self._at += 1
        if not self._line.startswith(b"@@"):
            raise self._error("a hunk is expected")
        while self._line.startswith(b"@@"):
            self._hunk()

    def _hunk(self) -> None:
        match = self._match(_HUNK)
        if not match:
            raise self._error("the hunk header is malformed")
        old = int(match[2] or 1)
        new = int(match[4] or 1)
        while old > 0 or new > 0:
            kind = self._line[:1]
            if kind not in (b" ", b"-", b"+"):
                raise self._error("the hunk is shorter than its header says")
            old -= kind in (b" ", b"-")
            new -= kind in (b" ", b"+")
            self._at += 1
            if self._line == NO_NEWLINE:
                self._at += 1
        if old < 0 or new < 0:
            raise self._error("the hunk does not fit its header")

    def _match(self, pattern: re.Pattern) -> re.Match | None:
        match = pattern.fullmatch(self._line)
        self._at += bool(match)
        return match

    def _error(self, reason: str) -> errors.SeriesError:
        return _malformed(self._name, self._first_line + self._at, reason)


def _malformed(name: str, line: int, reason: str) -> errors.SeriesError:
    return errors.SeriesError(
        f"patches/{name}:{line}: {reason}",
        why="patch files are written by `k2mps export`; its form is described"
        " in tools/k2mps/series/patch_text.py",
        next_command="correct it; or git checkout patches upstream.toml; or"
        " k2mps export --overwrite, where the checkout has the commits",
    )


def _unsafe(path: str) -> str:
    """Why a path is refused, or an empty text."""
    parts = path.split("/")
    if not path or path.startswith("/"):
        return "it is not relative to k2's tree"
    if any(part in ("", ".", "..") for part in parts):
        return "it does not stay inside k2's tree"
    if any(unicodedata.category(letter) in ("Cc", "Cf") for letter in path):
        return "it has control or invisible characters"
    if any(letter in path for letter in '\\":'):
        return "it has a backslash, a colon or a quotation mark"
    if any(_reserved(part) for part in parts):
        return "it reaches into git's own files"
    return ""


def _reserved(part: str) -> bool:
    # Case-insensitive and Windows file systems take these for .git as well.
    plain = part.lower().rstrip(" .")
    return plain in (".git", ".gitmodules") or plain.startswith("git~")

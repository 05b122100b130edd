"""Reads and writes patch files.

For each patch, exactly one text is valid: `parse` refuses all others.  A patch file is text in
UTF-8 with LF line ends:

    From: k2-mps <k2-mps@k2-mps.invalid>
    Subject: build: one line that says what
    Upstream-Status: Pending (not sent yet)
    New-files:
    <tab>cmake/example.cmake
    <tab>k2/csrc/mps/example.h

    The reason for the change, in any number of lines.

    ---
    diff --git a/CMakeLists.txt b/CMakeLists.txt
    index <40 digits>..<40 digits> 100644
    --- a/CMakeLists.txt
    +++ b/CMakeLists.txt
    @@ -12 +12 @@
    ...

- `From` is the author of the commit.  If the author is not the project, a line `Date` follows,
  with the author's date.  Otherwise `From` is as in this example, and `Date` is absent.
- `Upstream-Status` is Pending or Inappropriate with a reason, such as "Pending (not sent yet)"; or
  Submitted or Accepted with the link of the pull request.  lint checks the reason and the link.
- `New-files` lists the files that the patch adds.  Their paths are sorted, one on each line, after
  a tab.  If the patch adds no files, `New-files` is absent.  The diff does not contain the new
  files: they are under patches/files, at their paths in k2's tree.  Each new file belongs to one
  patch; only a patch of a later group, or a patch -at-head of the same group, may edit the file.
- The diff is text.  It has one line of context, full blob ids, and in its hunk headers the line by
  which git names the function.  It can modify files, delete files, and change the executable bit of
  files.  It does not add, rename or copy files.
- Either the diff or `New-files` may be absent, but not both.

A text is valid if it is exactly what `Patch.render` writes.  git checks whether the diff fits the
files when git applies the diff.  A patch file may come from an attacker, so `parse` refuses a path
that leaves k2's tree or leads into .git, before git reads the path.
"""

import dataclasses
import functools
import os
import re
from typing import NamedTuple

from k2mps.core import errors, git
from k2mps.series.hunks import Hunk, split

FROM = f"{git.IDENTITY_NAME} <{git.IDENTITY_EMAIL}>"
STATUSES = ("Pending", "Submitted", "Accepted", "Inappropriate")
# The part of a diff that edits one regular file, in exactly the form that git writes.
_EDIT = re.compile(
    rb"""^diff\ --git\ a/(?P<path>.+)\ b/(?P=path)\n
    (?:old\ mode\ (?P<old_mode>%(mode)b)\nnew\ mode\ (?P<new_mode>%(mode)b)\n
      |deleted\ file\ mode\ (?P<deleted>%(mode)b)\n)?
    (?:index\ (?P<old>[0-9a-f]{40})\.\.(?P<new>[0-9a-f]{40})(?:\ (?P<mode>%(mode)b))?\n
      (?:---\ a/(?P=path)\t?\n\+\+\+\ (?:b/(?P=path)\t?|/dev/null)\n)?
      (?:@@\ -\d{1,9}(?:,\d{1,9})?\ \+\d{1,9}(?:,\d{1,9})?\ @@(?:\ .*)?\n
        (?:[-+ ].*\n(?:\\\ No\ newline\ at\ end\ of\ file\n)?)*)*)?"""
    % {b"mode": rb"100(?:644|755)"},
    re.MULTILINE | re.VERBOSE,
)
# The trailers that the tool writes into a commit's message.
TRAILER = re.compile(r"(Upstream-Status|Patch-Filename): *(.*)")
# The names of files that macOS's Finder and editors make beside other files: Finder's settings,
# backups (x~), vim's swap files (.x.swp), Emacs's lock (.#x, a link) and unsaved text (#x#).  The
# tool ignores such files.
STRAY = re.compile(r"\.DS_Store|.*~|\..*\.sw[a-p]|\.#.*|#.*#", re.IGNORECASE)
# Names, in lower case, that a new file must not have.  If .gitattributes or .gitignore were under
# patches/files, git would obey it in this repository.
_NO_NEW_FILES = (".gitattributes", ".gitignore")
_YEAR = re.compile(r" (19[7-9]\d|20\d\d) ")
AUTHOR = re.compile(r"[^<>\n\0]*[^<>\n\0 ] <[^<>\n\0 ]*>")


class Edit(NamedTuple):
    """What a diff does with one file.  A mode or id is empty if the diff does not name it."""

    line: int  # the number of the edit's first line in the diff, from 1
    path: str  # in k2's tree
    old_mode: str  # six octal digits
    old_id: str  # the blob's id, 40 hexadecimal digits
    new_mode: str  # empty if the file is deleted
    new_id: str


@dataclasses.dataclass(frozen=True)
class Patch:
    name: str  # the file name under patches/
    subject: str  # what the patch does, in one line
    status: str  # the value of Upstream-Status
    body: str  # the reason for the patch, without trailing newline; may be empty
    new_files: tuple[str, ...]  # the sorted paths, in k2's tree, of the files that the patch adds
    diff: bytes  # the edits of other files; empty if the patch only adds files
    author: str = FROM  # "NAME <EMAIL>"
    date: str = ""  # the author's date, in the format of mail; empty if the author is the project

    def render(self) -> bytes:
        """Returns the contents of the patch file."""
        return os.fsencode(self._head()) + self.diff

    @functools.cached_property
    def edits(self) -> list[Edit]:
        """What the diff does with each file, in order."""
        edits = []
        for match in _EDIT.finditer(self.diff):
            same_mode = match["mode"] or b""
            old_mode = match["old_mode"] or match["deleted"] or same_mode
            new_mode = match["new_mode"] or same_mode
            edit = Edit(
                line=self.diff.count(b"\n", 0, match.start()) + 1,
                path=os.fsdecode(match["path"]),
                old_mode=old_mode.decode(),
                old_id=(match["old"] or b"").decode(),
                new_mode=new_mode.decode(),
                new_id=(match["new"] or b"").decode(),
            )
            edits.append(edit)
        return edits

    @property
    def edited(self) -> tuple[str, ...]:
        """The files of k2's tree that the diff edits, in order."""
        return tuple(edit.path for edit in self.edits)

    @functools.cached_property
    def hunks(self) -> list[Hunk]:
        """The hunks of the diff, in order."""
        return split(self.diff)

    @property
    def subject_line(self) -> int:
        """The number, from 1, of the subject's line in the patch file; the status is below it."""
        return 3 if self.date else 2

    @property
    def diff_line(self) -> int:
        """The number of the diff's first line in the patch file, from 1."""
        return self._head().count("\n") + 1

    def _head(self) -> str:
        """Returns the text above the diff."""
        lines = [f"From: {self.author}"]
        if self.date:
            lines.append(f"Date: {self.date}")
        lines += [f"Subject: {self.subject}", f"Upstream-Status: {self.status}"]
        if self.new_files:
            lines.append("New-files:")
            lines += [f"\t{path}" for path in self.new_files]
        lines.append("")
        if self.body:
            lines += [self.body, ""]
        return "\n".join([*lines, "---\n"])

    def commit_message(self) -> str:
        """Returns the message of the patch's commit."""
        paragraphs = [self.subject]
        if self.body:
            paragraphs.append(self.body)
        paragraphs.append(f"Upstream-Status: {self.status}\nPatch-Filename: {self.name}\n")
        return "\n\n".join(paragraphs)


def plain(body: str) -> str:
    """Removes trailing white space and repeated empty lines from a body, as git does."""
    text = "\n".join(line.rstrip() for line in body.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")


def mail_date(text: str) -> str:
    """Returns the date `text` in the exact form that git writes in mail; empty if it is no date."""
    # These modules take time to import, and few patches have a date.
    import datetime
    import email.utils

    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (OverflowError, ValueError):
        return ""
    moment = moment.replace(tzinfo=moment.tzinfo or datetime.timezone.utc)
    words = email.utils.format_datetime(moment).split(" ")
    words[1] = str(int(words[1]))  # git writes the day without a leading zero.
    return " ".join(words)


def raw_date(date: str) -> str:
    """Returns a date as in mail in git's own form, such as "1700000000 +0100"."""
    import email.utils

    seconds = int(email.utils.parsedate_to_datetime(date).timestamp())
    return f"{seconds} {date.rpartition(' ')[2]}"


def _is_before_1970(date: str) -> bool:
    """Whether a date as in mail is before 1970 in UTC, which a zone can make of 1970."""
    return raw_date(date).startswith("-")


def check_path(path: str, where: str, new: bool = False) -> None:
    """Raises `SeriesError` if no patch may touch the path `path` of k2's tree.

    Args:
      where: the patch file that names the path.
      new: whether the patch adds a file at the path; then more names are refused.
    """
    parts = path.split("/")
    # Some file systems ignore case, and Windows ignores trailing blanks and dots.
    normal_parts = [part.lower().rstrip(" .") for part in parts]
    name = normal_parts[-1]
    why = ""
    if (
        not {"", ".", ".."}.isdisjoint(parts)
        or not path.isprintable()
        or not set('\\":').isdisjoint(path)
        or any(part in (".git", ".gitmodules") or part.startswith("git~") for part in normal_parts)
    ):
        why = "it leaves k2's tree, leads into git's own files, or has unusual characters"
    elif new and (name in _NO_NEW_FILES or STRAY.fullmatch(name)):
        why = (
            "under patches/files it would act on this repository, or macOS or an editor makes such"
            " files"
        )
    if why:
        raise errors.SeriesError(
            f"{where} names the path {path!r}, which is refused",
            why=why,
            next_command="do not apply patches from a source you do not trust; if it is yours,"
            " correct the path",
        )


def flaw(patch: Patch) -> tuple[int, str] | None:
    """Returns the first fault in the header or body of a patch, as (line, reason); None if there
    is none."""
    if not AUTHOR.fullmatch(patch.author):
        return 1, f"{patch.author!r} is not 'NAME <EMAIL>'"
    if (patch.author == FROM) == bool(patch.date):
        return 1, f"a date needs an author, and an author other than {FROM} needs a date"
    if patch.date and mail_date(patch.date) != patch.date:
        example = "Tue, 14 Nov 2023 23:13:20 +0100"
        return 2, f"{patch.date!r} is not a date as in mail, {example!r}"
    if patch.date and (_YEAR.search(patch.date) is None or _is_before_1970(patch.date)):
        return 2, f"git accepts years from 1970 to 2099, not {patch.date!r}"
    if not patch.subject:
        return patch.subject_line, "a patch needs a subject"
    header = f"{patch.author}{patch.subject}{patch.status}"
    if not header.isprintable() or not patch.body.replace("\n", "").replace("\t", "").isprintable():
        return patch.subject_line, "the header or the body has control or invisible characters"
    if any(line == "---" or TRAILER.fullmatch(line) for line in patch.body.split("\n")):
        reason = "lines '---', Upstream-Status and Patch-Filename do not belong in the body"
        return patch.diff_line, reason
    if any(line.startswith("#") for line in (patch.subject, *patch.body.split("\n"))):
        reason = "a line of the message begins with #, and git drops it when a rebase has stopped"
        return patch.subject_line, reason
    if patch.status.split(" ")[0] not in STATUSES:
        statuses = ", ".join(STATUSES)
        return patch.subject_line + 1, f"Upstream-Status is one of {statuses}, not {patch.status!r}"
    return None


def parse(name: str, raw: bytes) -> Patch:
    """Parses a patch file.

    Args:
      name: the file name.
      raw: the contents.
    Raises:
      SeriesError: the text is not valid; the message names the line.
    """
    head, separator, diff = raw.partition(b"\n---\n")
    before, crlf, _ = head.partition(b"\r\n")
    crlf_line = before.count(b"\n") + 1
    if crlf and (separator or crlf_line == 1):  # A hunk may have such a line.
        raise _malformed(name, crlf_line, "the line ends in CRLF")
    if not separator:
        raise _malformed(name, 1, "there is no line '---'")
    try:
        header, _, body = head.decode("utf-8").partition("\n\n")
    except UnicodeDecodeError:
        raise _malformed(name, 1, "the text is not UTF-8") from None
    lines = header.split("\n")
    fields = {}
    for line in lines:
        key, colon, value = line.partition(": ")
        if colon:
            fields[key] = value.strip()
    files = {line[1:] for line in lines if line.startswith("\t")}
    patch = Patch(
        name,
        subject=fields.get("Subject", ""),
        status=fields.get("Upstream-Status", ""),
        body=plain(body),
        new_files=tuple(sorted(files)),
        diff=diff,
        author=fields.get("From", ""),
        date=fields.get("Date", ""),
    )
    _check_text(name, raw, patch.render())
    check(patch)
    return patch


def _check_text(name: str, raw: bytes, valid: bytes) -> None:
    """Raises `SeriesError` if a text is not the only valid one of its patch.

    Args:
      name: the patch's file name.
      raw: the text.
      valid: what `Patch.render` writes for the patch.
    """
    if raw == valid:
        return
    lines_of_both = zip(raw.split(b"\n"), valid.split(b"\n"))
    for number, (given, wanted) in enumerate(lines_of_both, start=1):
        if given != wanted:
            line = repr(os.fsdecode(wanted)) if wanted else "an empty line"
            raise _malformed(name, number, f"{line} is expected here")


def check(patch: Patch) -> None:
    """Raises `SeriesError` if a patch cannot be in patches/."""
    for path in patch.new_files:
        check_path(path, f"patches/{patch.name}", new=True)
    refused = flaw(patch)
    if refused:
        raise _malformed(patch.name, *refused)
    _check_diff(patch)
    if not patch.new_files and not patch.diff:
        raise _malformed(patch.name, patch.diff_line, "the patch changes nothing")


def _check_diff(patch: Patch) -> None:
    """Raises `SeriesError` if a diff has a line that git would not write."""
    name, diff = patch.name, patch.diff
    line = patch.diff_line
    if b"\0" in diff:
        before = diff[: diff.index(b"\0")]
        reason = f"a NUL byte in the edit {_last_edit(before)!r}: patches are text"
        raise _malformed(name, line + before.count(b"\n"), reason)
    at = 0
    while at < len(diff):
        match = _EDIT.match(diff, at)
        if not match:
            end = (diff + b"\n").index(b"\n", at)
            raise _malformed(
                name,
                line,
                f"the edit {_last_edit(diff[:end])!r} is not as git writes it: one plain path,"
                " modes of regular files, full blob ids, hunks without titles",
            )
        path = os.fsdecode(match["path"])
        check_path(path, f"patches/{name}")
        if path in patch.new_files:
            raise _malformed(name, line, f"the patch both adds and edits {path}")
        line += match[0].count(b"\n")
        at = match.end()
    for hunk in patch.hunks:
        if not hunk.fits:
            where = patch.diff_line + hunk.line - 1
            raise _malformed(name, where, "the hunk does not fit its header")
    if len(set(patch.edited)) != len(patch.edited):
        raise _malformed(name, patch.diff_line, "a file is edited twice")


def _last_edit(diff: bytes) -> str:
    """Returns the first line of the diff's last edit.

    An error names this line, because the patch file may not exist yet.
    """
    begin = max(0, diff.rfind(b"diff --git "))
    line, _, _ = diff[begin:].partition(b"\n")
    return os.fsdecode(line)


def _malformed(name: str, line: int, reason: str) -> errors.SeriesError:
    """Returns the error for a line of a patch file."""
    return errors.SeriesError(
        f"patches/{name}:{line}: {reason}",
        why="k2mps export writes patch files; tools/k2mps/series/patch_text.py"
        " describes their form",
        next_command=f"correct the line; git diff HEAD -- patches/{name} shows what was edited",
    )

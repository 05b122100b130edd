"""Checks of patches/ that need neither git nor a checkout.

lint finds what reading patches/ refuses, and what a reviewer would ask for, each with file and
line.  That a hunk has one line of context is not checked: `k2mps export` writes it so.
"""

import re
from collections.abc import Iterator

from k2mps.core import errors
from k2mps.core.pins import Upstream
from k2mps.core.project import Project
from k2mps.series import dependencies, hunks, patch_folder
from k2mps.series.dependencies import Finding
from k2mps.series.patch_folder import Series
from k2mps.series.patch_text import Patch
from k2mps.series.series_file import GROUPS

_SUBJECT_LENGTH = 72
_BODY_LENGTH = 80
# What follows each Upstream-Status: a reason, or a link to the pull request.
_REASON = re.compile(r"(Pending|Inappropriate) \(\S.*\)")
_LINK = re.compile(r"(Submitted|Accepted) https://\S+")
_MARKER = re.compile(rb"(<{7}|>{7}|\|{7})( .*)?")


def lint(project: Project) -> list[Finding]:
    """Checks the project's patches/ and upstream.toml."""
    pinned: Upstream | None = None
    found, problems = patch_folder.examine(project.patches)
    findings = []
    try:
        pinned = project.upstream()
    except errors.K2mpsError as error:
        findings.append(Finding("upstream.toml", 1, "config", error.what))
    findings += [_refusal(path, error) for path, error in problems]
    for patch in found.patches:
        findings += [Finding(f"patches/{patch.name}", *what) for what in _patch(patch)]
    files = {path: file.content for path, file in found.files.items()}
    for path, content in files.items():
        findings += [Finding(f"patches/files/{path}", *what) for what in _new_file(content)]
    findings += dependencies.lacks(found.patches, files)
    findings += dependencies.misnamed(files)
    findings += _statuses(found)
    if pinned:
        findings += _budget(pinned, found)
    return findings


def _refusal(path: str, error: Exception) -> Finding:
    """What reading raised, at the line that its message begins with."""
    if isinstance(error, OSError):
        return Finding(path, 1, "form", error.strerror or str(error))
    match = re.match(r"(patches/[^:]+):(\d+): ", error.what)
    message = error.what[match.end() :] if match else error.what
    if not match and error.why:
        message += f": {error.why}"
    line = int(match[2]) if match else 1
    return Finding(match[1] if match else path, line, "form", message)


def _patch(patch: Patch) -> Iterator[tuple[int, str, str]]:
    """The findings of a patch file: line, check and message."""
    length = len(patch.subject)
    if length > _SUBJECT_LENGTH:
        shown = f"{_SUBJECT_LENGTH} are shown by most tools"
        yield patch.subject_line, "header", f"the subject has {length} letters; {shown}"
    if not _REASON.fullmatch(patch.status) and not _LINK.fullmatch(patch.status):
        shown = "'Pending (REASON)', 'Inappropriate (REASON)', 'Submitted URL' or 'Accepted URL'"
        yield patch.subject_line + 1, "header", f"Upstream-Status is {shown}, not {patch.status!r}"
    body = patch.body.split("\n")
    for number, line in enumerate(body, start=patch.diff_line - 2 - len(body)):
        if len(line) > _BODY_LENGTH and " " in line.strip():
            yield number, "header", f"the line has {len(line)} letters, more than {_BODY_LENGTH}"
        if line != line.rstrip():
            yield number, "whitespace", "trailing white space"
    for hunk in patch.hunks:
        at = patch.diff_line + hunk.line - 1
        for offset, check, message in _added(hunk):
            yield at + offset, check, message


def _added(hunk: hunks.Hunk) -> Iterator[tuple[int, str, str]]:
    """Checks the lines that a hunk adds."""
    # A file whose lines end in CR LF keeps them so.
    crlf = any(line.endswith(b"\r") for line in hunk.body if line[:1] != b"+")
    for offset, line in enumerate(hunk.body, start=1):
        if line[:1] == b"+":
            text = line[1:-1] if crlf and line.endswith(b"\r") else line[1:]
            for check, message in _line(text):
                yield offset, check, message


def _line(text: bytes) -> Iterator[tuple[str, str]]:
    if text != text.rstrip():
        yield "whitespace", "trailing white space"
    if re.match(rb" *\t", text):
        yield "whitespace", "a tab in the indentation"
    if _MARKER.fullmatch(text):
        yield "conflict", "a conflict marker"


def _new_file(content: bytes) -> Iterator[tuple[int, str, str]]:
    """As `_patch`, of a file in patches/files."""
    if b"\0" in content:
        yield 1, "binary", "binary: patches are text"
        return
    lines = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        for check, message in _line(line):
            yield number, check, message
    if content and lines[-1]:
        yield len(lines), "whitespace", "the last line is not ended"
    if content.endswith(b"\n\n"):
        yield len(lines) - 1, "whitespace", "an empty line at the end"


def _statuses(found: Series) -> Iterator[Finding]:
    """A status that contradicts the group: k2 is offered all groups but the last."""
    for patch in found.patches:
        group = found.groups.get(patch.name)
        inappropriate = patch.status.startswith("Inappropriate")
        if group and inappropriate != (group == GROUPS[-1]):
            what = f"Upstream-Status: {patch.status} does not fit the group {group}"
            yield Finding(f"patches/{patch.name}", patch.subject_line + 1, "header", what)


def _budget(pinned: Upstream, found: Series) -> Iterator[Finding]:
    touched = sum(sum(hunks.count(patch.diff, without=found.files)) for patch in found.patches)
    if pinned.budget is not None and touched > pinned.budget:
        what = f"the patches touch {touched} lines of upstream's files; [budget] allows"
        yield Finding("upstream.toml", 1, "budget", f"{what} {pinned.budget}")

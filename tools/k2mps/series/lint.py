"""`k2mps lint`: checks patches/, without a network and without a checkout of k2.

lint reports the faults for which the tool refuses to read patches/, and faults of style.  It names
the file and line of each fault.  lint does not check that hunks have one line of context, because
`k2mps export` writes such hunks.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from k2mps.core import errors
from k2mps.core.objects import File
from k2mps.core.project import Project
from k2mps.series import conflict_markers, hunks, patch_folder
from k2mps.series.patch_folder import Series
from k2mps.series.patch_text import Patch
from k2mps.series.series_file import first_status, is_for_k2

_SUBJECT_LENGTH = 72
_BODY_LENGTH = 80
# k2's style allows so many columns.  k2's own checkers do not read all of these files.
_WIDTH = 80
_SOURCES = (".h", ".cu", ".cc", ".mm", ".metal", ".py", ".cmake")
# An Upstream-Status is followed by a reason, or by a link to the pull request.
_REASON = re.compile(r"(Pending|Inappropriate) \(\S.*\)")
_LINK = re.compile(r"(Submitted|Accepted) https://\S+")
# A preprocessor condition that recognizes CUDA's device code.  clang for HIP does not define
# __CUDA_ARCH__.
_CUDA_ONLY = re.compile(rb"\s*#\s*(?:el)?if(?:n?def)?\b.*__CUDA_ARCH__")
_INCLUDE = re.compile(rb'\s*#\s*(?:include|import)\s+"([^"]+)"')
# The headers of k2's core that need no nvcc, even in a build with CUDA.
_PLAIN = ("k2/csrc/log.h", "k2/csrc/nvtx.h", "k2/csrc/version.h")


class Finding(NamedTuple):
    """A fault that a check has found."""

    path: str  # the file's path in the project
    line: int  # the number of the line in the file, from 1
    check: str  # the name of the check
    message: str  # what is wrong

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message} [{self.check}]"


def lint(project: Project) -> list[Finding]:
    """Checks the project's patches/ and upstream.toml."""
    series, problems = patch_folder.examine(project.patches)
    findings = []
    try:
        project.upstream()
    except errors.K2mpsError as error:
        findings.append(Finding("upstream.toml", 1, "config", error.message))
    findings += [_refusal(path, error) for path, error in problems]
    named = {finding.path for finding in findings}
    findings += [finding for finding in _links(project.patches) if finding.path not in named]
    for patch in series.patches:
        findings += [Finding(f"patches/{patch.name}", *fault) for fault in _patch(patch)]
    files = {path: file.content for path, file in series.files.items()}
    for path, content in files.items():
        faults = (*_new_file(content), *_wide(path, content))
        findings += [Finding(f"patches/files/{path}", *fault) for fault in faults]
    findings += _misnamed(files)
    if not problems:  # A patch that cannot be read may change what later patches edit.
        findings += _old_ids(series)
    findings += _statuses(series)
    return findings


def _links(patches: Path) -> Iterator[Finding]:
    """Yields a finding for each symbolic link in patches/, whether git ignores the link or not.

    Emacs's locks are left out.
    """
    for folder, folders, files in os.walk(patches):
        for name in sorted((*folders, *files)):
            path = Path(folder, name)
            if path.is_symlink() and not name.startswith(".#"):
                shown = str(path.relative_to(patches.parent))
                yield Finding(shown, 1, "link", "a symbolic link, which could lead anywhere")


def _refusal(path: str, error: Exception) -> Finding:
    """Returns the finding for an error that was raised when `path` was read.

    If the error's message begins with a file and a line, the finding has this file and line.
    """
    if isinstance(error, OSError):
        return Finding(path, 1, "form", error.strerror or str(error))
    match = re.match(r"(patches/[^:]+):(\d+): ", error.message)
    if match:
        message = error.message[match.end() :]
        return Finding(match[1], int(match[2]), "form", message)
    message = f"{error.message}: {error.why}" if error.why else error.message
    return Finding(path, 1, "form", message)


def _patch(patch: Patch) -> Iterator[tuple[int, str, str]]:
    """Checks a patch file; yields (line, check, message) for each fault."""
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
    """Checks the lines that a hunk adds; yields (line in the hunk, check, message)."""
    # If the file's lines end with CR LF, the added lines may, too.
    crlf = any(line.endswith(b"\r") for line in hunk.body if line[:1] != b"+")
    for offset, line in enumerate(hunk.body, start=1):
        if line[:1] == b"+":
            text = line[1:]
            if crlf:
                text = text.removesuffix(b"\r")
            for check, message in _line(text):
                yield offset, check, message


def _line(text: bytes) -> Iterator[tuple[str, str]]:
    """Checks a line of a new file, or a line that a hunk adds; yields (check, message)."""
    if text != text.rstrip():
        yield "whitespace", "trailing white space"
    if re.match(rb" *\t", text):
        yield "whitespace", "a tab in the indentation"
    if conflict_markers.MARKER.fullmatch(text):
        yield "conflict", "a conflict marker"
    if _CUDA_ONLY.match(text) and b"__HIP_DEVICE_COMPILE__" not in text:
        yield "hip", "__CUDA_ARCH__ without __HIP_DEVICE_COMPILE__: HIP's device code is forgotten"


def _new_file(content: bytes) -> Iterator[tuple[int, str, str]]:
    """Checks a file of patches/files; yields (line, check, message) for each fault."""
    if b"\0" in content:
        yield 1, "binary", "binary: patches are text"
        return
    lines = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        for check, message in _line(line):
            yield number, check, message
    if lines[-1]:
        yield len(lines), "whitespace", "the last line has no newline"
    if content.endswith(b"\n\n"):
        yield len(lines) - 1, "whitespace", "an empty line at the end"


def _wide(path: str, content: bytes) -> Iterator[tuple[int, str, str]]:
    """Yields a finding for each line of a new source file that is wider than k2's lines."""
    if not path.endswith(_SOURCES):
        return
    for number, line in enumerate(content.decode("utf-8", "replace").split("\n"), start=1):
        if len(line) > _WIDTH and "http" not in line:
            yield number, "width", f"the line has {len(line)} columns; k2 allows {_WIDTH}"


def _misnamed(files: Mapping[str, bytes]) -> Iterator[Finding]:
    """Yields a finding for each new `.cc` file that includes a header which needs nvcc.

    In a build with CUDA, k2 compiles a `.cc` file without nvcc.

    Args:
      files: the contents of the series' new files, by path in k2's tree.
    """
    for path in files:
        included = _included(files[path]) if path.endswith(".cc") else ()
        for line, name in included:
            header = _needs_nvcc(name, files, set())
            if header:
                why = "needs nvcc in a build with CUDA; name the file .cu"
                message = f"it includes {header}, which {why}"
                yield Finding(f"patches/files/{path}", line, "cuda", message)
                break


def _needs_nvcc(name: str, files: Mapping[str, bytes], seen: set[str]) -> str | None:
    """Returns the first header of k2's core that the header `name` includes, directly or not.

    The result can be `name` itself.  Headers in `_PLAIN` do not count.  Returns None if there is no
    such header.

    Args:
      seen: the headers that have been searched; this function adds to it.
    """
    if name in seen or name in _PLAIN or not name.startswith("k2/csrc/"):
        return None
    seen.add(name)
    if name not in files:
        return name
    for _, included in _included(files[name]):
        header = _needs_nvcc(included, files, seen)
        if header:
            return header
    return None


def _included(content: bytes) -> Iterator[tuple[int, str]]:
    """Yields (line number, header) for each header that C++ code includes by its path."""
    for number, line in enumerate(content.split(b"\n"), start=1):
        match = _INCLUDE.match(line)
        if match:
            yield number, match[1].decode("utf-8", "replace")


def _old_ids(series: Series) -> Iterator[Finding]:
    """Yields a finding for each `index` line that names another blob than its file has there.

    In a new clone, git cannot merge such a patch, because the clone does not have this blob.  For a
    file of patches/files, the blobs before and after each edit are known.  For a file of k2, only
    the blobs that earlier patches name are known.
    """
    ids: dict[str, str] = {}  # the blob that each file has after the patches so far
    contents: dict[str, bytes] = {}  # the content of each new file after the patches so far
    for patch in series.patches:
        for path in patch.new_files:
            ids[path] = series.files[path].entry.id
            contents[path] = series.files[path].content
        for edit in patch.edits:
            path = edit.path
            old_id = ids.get(path, edit.old_id)
            new_id = edit.new_id
            if path in contents:
                hunks_of_file = [hunk for hunk in patch.hunks if hunk.path == path]
                contents[path] = hunks.edited(contents[path], hunks_of_file)
                if edit.new_mode:
                    new_id = File(contents[path]).entry.id
            # The line is absent if only the mode changes.
            if edit.old_id and (edit.old_id, edit.new_id) != (old_id, new_id):
                message = (
                    f"the index line of {path} is of another version of the file; k2mps apply, then"
                    " k2mps export"
                )
                at = patch.diff_line + edit.line - 1
                yield Finding(f"patches/{patch.name}", at, "index", message)
            if new_id:
                ids[path] = new_id


def _statuses(series: Series) -> Iterator[Finding]:
    """Yields a finding for each patch whose Upstream-Status does not fit its group.

    The status must be Inappropriate in the last group, and only there.
    """
    for patch in series.patches:
        group = series.groups.get(patch.name)
        inappropriate = patch.status.startswith("Inappropriate")
        if group and inappropriate == is_for_k2(group):
            message = (
                f"Upstream-Status: {patch.status} does not fit the group {group}; a new patch there"
                f" is {first_status(group)}"
            )
            yield Finding(f"patches/{patch.name}", patch.subject_line + 1, "header", message)

"""The commits that the series becomes.

A commit's author is its patch's; the committer is fixed, and the date is the pin's, so that a
commit's id depends on the pin and on patches/ only.  Python places the hunks of a patch that was
exported, whose blob ids tell that each hunk fits to the byte; git places all others, or says why it
cannot.  hunks.py has the measurement.
"""

import os
import re
from collections.abc import Container, Mapping
from pathlib import Path
from typing import NamedTuple

from k2mps.core import errors, git, objects
from k2mps.core.objects import EXECUTABLE_MODE, File
from k2mps.core.pins import Pin, sha256
from k2mps.core.project import Project
from k2mps.series import hunks
from k2mps.series.patch_folder import Series, folded, same_elsewhere, taken
from k2mps.series.patch_text import FROM, Edit, Patch
from k2mps.stack.checkout import Checkout, Commit

# Which commit and tree the last series gave; it only saves time.
_NOTE = "k2mps-series"


class Made(NamedTuple):
    """The commits of a series."""

    tip: str  # the id of the last commit; the pin where the series is empty
    tree: str  # the id of its tree


def recall(checkout: Checkout, pin: Pin, found: Series) -> Made | None:
    """What the series gave here, if it was the last one; git may have removed the commits since."""
    try:
        key, tip, tree = (checkout.git_dir / _NOTE).read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    return Made(tip, tree) if key == _key(pin, found) else None


def commit_series(checkout: Checkout, pin: Pin, found: Series) -> Made:
    """Makes the commits of the series; a `ConflictError` names the patch, the file and the hunk."""
    known = recall(checkout, pin, found)
    if known and checkout.has(known.tip):
        return known
    made = _make(checkout, pin, found)
    note = checkout.git_dir / _NOTE
    try:
        note.write_text(f"{_key(pin, found)} {made.tip} {made.tree}\n")
    except OSError:
        note.unlink(missing_ok=True)
    return made


def _key(pin: Pin, found: Series) -> str:
    return sha256(f"{pin.commit} {found.lock}".encode())


def commit_date(checkout: Checkout, pin: str) -> str:
    """When the commits of a series on this pin are made, for git."""
    return _date_in(objects.read(checkout.git, [pin])[pin])


def _date_in(commit: bytes) -> str:
    """The date that a commit object has, in UTC."""
    date = re.search(rb"^committer .* (\d+) [-+]\d+$", commit, re.MULTILINE)
    return f"@{date[1].decode()} +0000"


def moved(checkout: Checkout, commit: Commit, onto: str) -> str | None:
    """The tree of a commit's changes on another commit; None where they do not fit."""
    parent = commit.parents[0]
    if checkout.tree_of(onto) == checkout.tree_of(parent):
        return checkout.tree_of(commit.id)
    return changed(checkout, onto, parent, commit.id)


def changed(checkout: Checkout, commit: str, old: str, new: str) -> str | None:
    """A commit's tree with what leads from one tree to another, by a 3-way
    merge; None where that does not fit."""
    with checkout.scratch_index() as index:
        index.bytes("read-tree", commit)
        if index.succeeds("apply", "--cached", "--3way", "-", stdin=checkout.diff(old, new)):
            return index.text("write-tree")
    return None


def say_series(project: Project, checkout: Checkout, pin: Pin, commit: str, tip: str) -> bool:
    """Whether the commits up to `commit` say what patches/ says: the same patches in the same order
    under the same names, each with the same words and changes.  `commit_series` has made `tip`."""
    if commit == tip:
        return True
    if not checkout.is_ancestor(pin.commit, commit):
        return False
    from k2mps.stack import extraction  # `k2mps status` seldom comes here

    try:
        said = extraction.plan(project, checkout, checkout.commits(f"{pin.commit}..{commit}"))
    except errors.K2mpsError:
        return False
    return not (said.written or said.removed)


def _make(checkout: Checkout, pin: Pin, found: Series) -> Made:
    if not found.patches:
        return Made(pin.commit, checkout.tree_of(pin.commit))
    entries = checkout.entries(pin.commit)
    names = folded(entries)
    edited = {edit.path: entries.get(edit.path) for patch in found.patches for edit in patch.edits}
    ids = [entry[1] for entry in edited.values() if entry]
    read = objects.read(checkout.git, [pin.commit, *ids])
    # The files that patches edit, as they are at the pin and then after each.
    files = {
        path: File(read[entry[1]], entry[0] == EXECUTABLE_MODE)
        for path, entry in edited.items()
        if entry and entry[0] in objects.MODES
    }
    date = _date_in(read[pin.commit])
    tip = pin.commit
    imported = objects.Import()
    for patch in found.patches:
        changes = _edit(checkout, patch, files)
        for path in patch.new_files:
            _check_free(patch, path, entries, names)
            changes[path] = found.files[path]
        files.update(changes)
        tip = imported.commit(
            patch.commit_message(),
            f"{patch.author} {patch.date or date}",
            f"{FROM} {date}",
            [tip],
            changes,
        )
    return Made(*imported.run(checkout.git))


def _edit(
    checkout: Checkout, patch: Patch, files: Mapping[str, File | None]
) -> dict[str, File | None]:
    """The files that a patch edits, as they are after it; None for one that it deletes."""
    before = {}
    for edit in patch.edits:
        file = files.get(edit.path)
        if not file:
            raise _conflict(patch, "", f"{edit.path}, which k2 does not have")
        before[edit.path] = file
    result = {}
    for edit in patch.edits:
        fits, result[edit.path] = _edit_exactly(patch, edit, before[edit.path])
        if not fits:
            return _place(checkout, patch, before)
    return result


def _edit_exactly(patch: Patch, edit: Edit, file: File) -> tuple[bool, File | None]:
    """Does one edit, if it fits to the byte; whether it does, and the file."""
    content = file.content
    if edit.old_mode not in (None, file.mode):
        return False, None
    if edit.old_id and objects.blob_id(content) != edit.old_id:
        return False, None
    if edit.deletes:
        return True, None
    if edit.new_id:
        content = hunks.apply_all(content, [one for one in patch.hunks if one.path == edit.path])
        if content is None or objects.blob_id(content) != edit.new_id:
            return False, None
    executable = edit.new_mode == EXECUTABLE_MODE if edit.new_mode else file.executable
    return True, File(content, executable)


def _place(checkout: Checkout, patch: Patch, before: Mapping[str, File]) -> dict[str, File | None]:
    """Lets git place the hunks of a patch, in a folder of its own."""
    import tempfile  # It takes time to import, and this is rare.

    with tempfile.TemporaryDirectory(prefix="k2mps-") as name:
        folder = Path(name)
        for path, file in before.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.content)
            target.chmod(0o755 if file.executable else 0o644)
        # The folder may lie in a repository, which has no say in this.
        result = git.Git(folder, reporter=checkout.reporter).run(
            "apply", "-", stdin=patch.diff, environment={"GIT_DIR": os.devnull}
        )
        if result.status != 0:
            raise _conflict(patch, result.stderr)
        return {path: _read_back(folder / path) for path in before}


def _read_back(path: Path) -> File | None:
    if not path.exists():
        return None
    return File(path.read_bytes(), bool(path.stat().st_mode & 0o100))


def _check_free(patch: Patch, path: str, entries: Container[str], names: Mapping[str, str]) -> None:
    """Refuses a new file where upstream has a file, a directory or a link."""
    other = same_elsewhere(names, path)
    has = other or taken(entries, names, path)
    if has:
        raise errors.ConflictError(
            f"patches/{patch.name} adds {path}, but k2 has {has}",
            why="they are one file where upper and lower case are the same, as on a Mac"
            if other
            else "upstream has added it, or a patch adds what it should edit",
            next_command=f"rename patches/files/{path}, and in patches/{patch.name}, then k2mps"
            " lock; or make it an edit, if it is the same file",
        )


def _conflict(patch: Patch, stderr: str, place: str = "") -> errors.ConflictError:
    """Tells which hunk of which file git could not place."""
    places = [place] if place else []
    lines = []
    for path, line in re.findall(r"^error: patch failed: (.*):(\d+)$", stderr, re.MULTILINE):
        of_file = [one for one in patch.hunks if one.path == path]
        for number, hunk in enumerate(of_file, start=1):
            if hunk.old_start == int(line):
                places.append(f"hunk {number} of {len(of_file)} of {path} (line {line})")
                lines.append(patch.diff_line + hunk.line - 1)
    return errors.ConflictError(
        f"patches/{patch.name}:{lines[0] if lines else 1}: does not apply: "
        + ("; ".join(places) or stderr),
        why="the pin was moved, an earlier patch of the series changes the"
        " same lines, or the patch was edited by hand",
        next_command="git log -- upstream.toml patches, to see what changed;"
        " git checkout patches upstream.toml brings the locked series back",
    )

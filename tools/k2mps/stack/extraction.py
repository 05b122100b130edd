"""What patches/ and the lock must be for a line of commits.

A patch file whose edits, by blob id, and words are those of its commit keeps
its bytes, so that nothing changes in patches/ but what was changed in the
commits.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from k2mps.core import errors, pins
from k2mps.core.pins import Lock, Pin
from k2mps.core.project import Project
from k2mps.series import patch_folder, patch_text, series_file
from k2mps.series.patch_text import Patch
from k2mps.stack.checkout import Change, Checkout, Commit
from k2mps.stack.operations import File

_TRAILER = re.compile(r"(Upstream-Status|Patch-Filename): *(.*)")
_HUNK_TITLE = re.compile(rb"^(@@ [-+,0-9 ]+ @@).*$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be written.

    Attributes:
      patches: names of all patches, in order.
      lock: the lock that goes with them.
      changed: files of the project to write, by path; upstream.toml is among
        them if the lock or the pin changes.
      removed: files of the project to remove.
    """

    patches: tuple[str, ...]
    lock: Lock
    changed: dict[str, File]
    removed: tuple[str, ...]

    @property
    def written(self) -> tuple[str, ...]:
        """The paths under patches/ that are written."""
        return tuple(path for path in self.changed if path != "upstream.toml")


def plan(
    project: Project, checkout: Checkout, commits: Sequence[Commit], pin: Pin | None = None
) -> Plan:
    """Makes patches of commits; writes nothing.

    Args:
      commits: the series, oldest first, on top of the pin.
      pin: the new pin, if it changes.
    Raises:
      RefusedError: they cannot be said as patches.
    """
    now = project.upstream()
    base = (pin or now.pin).commit
    old = _OldPatches(project)
    exporter = _Exporter(checkout, base, old, commits)
    for commit in commits:
        exporter.add(commit)
    contents = exporter.contents()
    fresh = _lock_of(contents)
    changed = {
        f"patches/{name}": file for name, file in contents.items() if old.files.get(name) != file
    }
    if fresh != now.lock or (pin and pin != now.pin):
        changed["upstream.toml"] = config_with(project, fresh, pin)
    return Plan(
        tuple(patch.name for patch in exporter.patches),
        fresh,
        changed,
        tuple(
            f"patches/{name}" for name in old.files if name not in contents and not _ignored(name)
        ),
    )


def config_with(project: Project, lock: Lock, pin: Pin | None = None) -> File:
    """upstream.toml with another lock and, if given, another pin."""
    text = project.config_file.read_text(encoding="utf-8")
    if pin:
        text = pins.with_pin(text, pin)
    return File(pins.with_lock(text, lock).encode("utf-8"))


def name_of(commit: Commit) -> str:
    """The patch name that a commit of the tool's carries; may be empty."""
    return _split_message(commit.message)[2].get("Patch-Filename", "")


class _OldPatches:
    """patches/ as it is on disk, as far as it can be understood.

    Exporting must work from an empty or a broken patches/ too; what cannot be
    read is simply not kept.
    """

    def __init__(self, project: Project):
        directory = project.patches
        self.files: dict[str, File] = {}
        self.by_name: dict[str, Patch] = {}
        for path in sorted(directory.rglob("*")):
            if path.is_file() and not path.is_symlink():
                name = path.relative_to(directory).as_posix()
                self.files[name] = File(path.read_bytes(), bool(path.stat().st_mode & 0o100))
        for name, file in self.files.items():
            if name.endswith(".patch") and "/" not in name:
                try:
                    self.by_name[name] = patch_text.parse(name, file.content)
                except errors.SeriesError:
                    continue

    def content(self, name: str) -> bytes:
        return self.files[name].content if name in self.files else b""

    def named(self, subject: str) -> str | None:
        """The name of the patch with this subject."""
        for name, patch in self.by_name.items():
            if patch.subject == subject:
                return name
        return None


class _Exporter:
    """Turns commits into patches, one after the other."""

    def __init__(self, checkout: Checkout, pin: str, old: _OldPatches, commits: Sequence[Commit]):
        self._checkout = checkout
        self._git = checkout.git
        self._old = old
        self._names = _names(commits, old)
        self._tip = pin
        self._upstream = checkout.files_of(pin)
        self._folded = patch_folder.folded(self._upstream)
        self._groups = series_file.parse_groups(
            series_file.render_order(
                old.content("series"), [self._names[commit.id] for commit in commits]
            )
        )
        self._owners: dict[str, Commit] = {}
        self._new: dict[str, File] = {}
        self._raw: dict[str, bytes] = {}
        self.patches: list[Patch] = []

    def add(self, commit: Commit) -> None:
        """Makes the next patch from a commit."""
        _check_plain(commit)
        changes = self._changes(commit)
        if not changes:
            raise errors.RefusedError(
                f"commit {commit.id[:12]} ({commit.subject}) changes nothing",
                next_command="git rebase -i, and drop it",
            )
        added = sorted(change.path for change in changes if change.kind == "A")
        subject, body, trailers = _split_message(commit.message)
        name = self._names[commit.id]
        known = self._old.by_name.get(name)
        diff = self._diff(commit) if len(added) < len(changes) else b""
        patch = Patch(
            name=name,
            subject=subject,
            status=trailers.get("Upstream-Status")
            or (known.status if known else patch_text.DEFAULT_STATUS),
            body=body,
            new_files=tuple(added),
            diff=diff,
            edits=patch_text.parse_diff(name, diff),
            author=commit.author.who,
            date="" if commit.author.who == patch_text.FROM else commit.author.date,
        )
        self.patches.append(patch)
        self._raw[name] = self._bytes_of(patch, known)
        for change in changes:
            if change.kind == "A":
                self._owners[change.path] = commit
                self._new[change.path] = File(
                    self._git.bytes("cat-file", "blob", change.new_id),
                    change.new_mode == patch_text.EXECUTABLE_MODE,
                )
        self._tip = commit.id

    def contents(self) -> dict[str, File]:
        """All of patches/, by path in it."""
        names = [patch.name for patch in self.patches]
        order = series_file.render_order(self._old.content("series"), names)
        result = {"series": File(order, False)}
        for name in names:
            result[name] = File(self._raw[name], False)
        for path, file in self._new.items():
            result[f"files/{path}"] = file
        return result

    def _changes(self, commit: Commit) -> list[Change]:
        changes = self._checkout.changes(self._tip, commit.id)
        for change in changes:
            self._check(commit, change)
        return changes

    def _check(self, commit: Commit, change: Change) -> None:
        """Refuses what the patch format cannot say."""
        patch_text.check_path(change.path, f"commit {commit.id[:12]}")
        regular = (patch_text.FILE_MODE, patch_text.EXECUTABLE_MODE, "000000")
        if change.old_mode not in regular or change.new_mode not in regular:
            raise errors.RefusedError(
                f"commit {commit.id[:12]} ({commit.subject}) changes"
                f" {change.path}, which is a symbolic link or a submodule",
                why="patches touch regular files only",
                next_command="git rebase -i, and take it out of the commit",
            )
        owner = self._owners.get(change.path)
        if owner and not series_file.may_edit(
            self._groups, self._names[commit.id], self._names[owner.id]
        ):
            raise errors.RefusedError(
                f"commit {commit.id[:12]} ({commit.subject}) changes"
                f" {change.path}, which commit {owner.id[:12]}"
                f" ({owner.subject}) adds",
                why="a new file lies under patches/files in one state, which"
                " the patch that adds it owns; only one of a later group may"
                " edit it",
                next_command=f"git commit --fixup={owner.id[:12]} that part,"
                " then git rebase -i --autosquash",
            )
        other = patch_folder.same_elsewhere(self._folded, change.path)
        if change.kind == "A" and other:
            raise errors.RefusedError(
                f"commit {commit.id[:12]} ({commit.subject}) adds"
                f" {change.path}, but k2 has {other}",
                why="they are one file where upper and lower case are the same, as on a Mac",
                next_command="give the new file another name",
            )
        if change.kind == "A" and change.path in self._upstream:
            raise errors.RefusedError(
                f"commit {commit.id[:12]} ({commit.subject}) adds"
                f" {change.path}, which an earlier commit deletes",
                next_command="git rebase -i, and make one commit of the two",
            )

    def _diff(self, commit: Commit) -> bytes:
        diff = self._git.bytes(
            "diff-tree",
            "-r",
            "-p",
            "-U1",
            "--full-index",
            "--no-renames",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
            "--text",
            "--diff-filter=a",
            "--src-prefix=a/",
            "--dst-prefix=b/",
            "--diff-algorithm=myers",
            "--indent-heuristic",
            "--inter-hunk-context=0",
            self._tip,
            commit.id,
        )
        if b"\0" in diff:
            raise errors.RefusedError(
                f"commit {commit.id[:12]} ({commit.subject}) changes a binary file of k2's",
                why="patches are text",
                next_command="git rebase -i, and take it out of the commit",
            )
        return _without_titles(diff)

    def _bytes_of(self, patch: Patch, known: Patch | None) -> bytes:
        """The old bytes where they say the same, else the patch anew."""
        if known and dataclasses.replace(known, diff=patch.diff) == patch:
            return self._old.content(patch.name)
        raw = patch.render()
        why = "a line of it is '---', or it has unusual white space"
        try:
            same = patch_text.parse(patch.name, raw) == patch
        except errors.SeriesError as error:
            same, why = False, error.what
        if not same:
            raise errors.RefusedError(
                f"the message or the author of {patch.subject!r} cannot be written as a patch",
                why=why,
                next_command="git rebase -i, and reword it, or git commit"
                " --amend --author there; or k2mps edit",
            )
        return raw


def _names(commits: Sequence[Commit], old: _OldPatches) -> dict[str, str]:
    """The patch name of each commit, by commit id.

    A patch keeps the name it had, whatever its subject is now; only a commit
    that is new to the series is named after its subject.
    """
    names: dict[str, str] = {}
    for commit in commits:
        subject, _, trailers = _split_message(commit.message)
        for name in (trailers.get("Patch-Filename"), old.named(subject)):
            if name and name not in names.values():
                series_file.check_name(name, f"commit {commit.id[:12]}")
                names[commit.id] = name
                break
    for commit in commits:
        if commit.id not in names:
            names[commit.id] = name_for(commit.subject, set(names.values()))
    return names


def name_for(subject: str, taken: set[str]) -> str:
    """A file name for a new patch, none of those that are taken."""
    plain = re.sub(r"[^a-z0-9]+", "-", subject.lower())
    stem = plain[:52].strip("-") or "patch"
    name, number = f"{stem}.patch", 1
    while name in taken:
        number += 1
        name = f"{stem}-{number}.patch"
    return name


def _check_plain(commit: Commit) -> None:
    if len(commit.parents) != 1:
        raise errors.RefusedError(
            f"commit {commit.id[:12]} ({commit.subject}) is a merge",
            why="a series is a line of commits",
            next_command="git rebase, to make it one",
        )


def _split_message(message: str) -> tuple[str, str, dict[str, str]]:
    """Subject, body and the trailers that are headers of a patch file."""
    first, *rest = re.split(r"\n[ \t]*\n", message.strip("\n"), maxsplit=1)
    lines = rest[0].strip("\n").split("\n") if rest else []
    start = max((i + 1 for i, line in enumerate(lines) if not line), default=0)
    trailers = {}
    kept = lines[:start]
    for line in lines[start:]:
        match = _TRAILER.fullmatch(line.rstrip())
        if match:
            trailers[match[1]] = match[2]
        else:
            kept.append(line)
    return " ".join(first.split()), "\n".join(kept).strip("\n"), trailers


def _without_titles(diff: bytes) -> bytes:
    """Drops what git writes after a hunk header.

    It is a line of upstream's for orientation only, and which line depends on
    the user's attributes.  Only header lines are looked at: a line of content
    starts with a blank, a plus or a minus.
    """
    return _HUNK_TITLE.sub(rb"\1", diff)


def _ignored(name: str) -> bool:
    return name.rsplit("/", 1)[-1].startswith(".DS_Store")


def _lock_of(contents: dict[str, File]) -> Lock:
    hashes = {name: pins.digest(file.content, file.executable) for name, file in contents.items()}
    return Lock(
        series=hashes["series"],
        patches={
            name: digest
            for name, digest in hashes.items()
            if name.endswith(".patch") and "/" not in name
        },
        files={
            name[len("files/") :]: digest
            for name, digest in hashes.items()
            if name.startswith("files/")
        },
    )

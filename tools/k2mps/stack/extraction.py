"""The contents of patches/ for a line of commits.

A patch file has one text for a commit, so patches/ changes only where commits did.
"""

import contextlib
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from k2mps.core import errors, objects, pins
from k2mps.core.git import quoted
from k2mps.core.objects import EXECUTABLE_MODE, File
from k2mps.core.pins import Pin
from k2mps.core.project import Project
from k2mps.series import patch_folder, patch_text, series_file
from k2mps.series.patch_folder import Series
from k2mps.series.patch_text import Patch
from k2mps.stack.checkout import Change, Checkout, Commit, stdin_of

_HUNK_TITLE = re.compile(rb"^(@@ [-+,0-9 ]+ @@).*$", re.MULTILINE)


class Plan(NamedTuple):
    """The files to write."""

    series: Series  # what they say
    # Files of the project to write, by path, upstream.toml included if the pin changes.
    changed: dict[str, File]
    removed: tuple[str, ...]  # files of the project to remove

    @property
    def written(self) -> tuple[str, ...]:
        """The paths under patches/ that are written."""
        return tuple(path for path in self.changed if path != "upstream.toml")


def plan(
    project: Project, checkout: Checkout, commits: Sequence[Commit], pin: Pin | None = None
) -> Plan:
    """Makes patches of commits, oldest first, on top of the pin or a new one; writes nothing."""
    now = project.upstream()
    old = project_patches(project)
    exporter = _Exporter(checkout, (pin or now.pin).commit, old, commits)
    contents = exporter.contents
    changed = {f"patches/{name}": file for name, file in contents.items() if old.get(name) != file}
    if pin and pin != now.pin:
        text = project.config_file.read_text(encoding="utf-8")
        changed["upstream.toml"] = File(pins.with_pin(text, pin).encode("utf-8"))
    removed = tuple(f"patches/{name}" for name in old if name not in contents)
    return Plan(exporter.series, changed, removed)


def project_patches(project: Project) -> dict[str, File]:
    """The files of patches/, by path in it, also those that no patch has."""
    folder = project.patches
    modes = None if patch_folder.has_modes(folder) else patch_folder.executables(folder)
    paths = (path for path in sorted(folder.rglob("*")) if path.name != ".DS_Store")
    places = (path.relative_to(folder).as_posix() for path in paths if path.is_file())
    return {place: patch_folder.read(folder, place, modes) for place in places}


def name_of(commit: Commit) -> str:
    """The patch name that a commit of the tool's carries; may be empty."""
    return _split_message(commit.message)[2].get("Patch-Filename", "")


def _parsed(files: dict[str, File]) -> dict[str, Patch]:
    """The patches of patches/ by name, in order; export replaces one that cannot be read."""
    found: dict[str, Patch] = {}
    lines = files["series"].content.split(b"\n") if "series" in files else []
    order = {os.fsdecode(line.strip()): number for number, line in enumerate(lines)}
    for name in sorted(files, key=lambda name: order.get(name, len(order))):
        if name.endswith(".patch") and "/" not in name:
            with contextlib.suppress(errors.SeriesError):
                found[name] = patch_text.parse(name, files[name].content)
    return found


class _Exporter:
    """Turns commits into patches, and into all of patches/, by path in it."""

    def __init__(
        self, checkout: Checkout, pin: str, old: dict[str, File], commits: Sequence[Commit]
    ):
        for commit in commits:
            if len(commit.parents) != 1:
                raise _refused(
                    commit,
                    "is a merge",
                    why="a series is a line of commits",
                    next_command=f"git -C {quoted(checkout.directory)} rebase {pin[:12]}, which"
                    " makes it one",
                )
        self._known = _parsed(old)
        self._names = _names(commits, self._known)
        self._upstream = checkout.entries(pin)
        self._folded = patch_folder.folded(self._upstream)
        self.names = [self._names[commit.id] for commit in commits]
        order = old["series"].content if "series" in old else b""
        order = series_file.render_order(order, self.names)
        self._groups = series_file.parse_groups(order)
        self._changes = checkout.changes_of(commits)
        self._diffs = _diffs(checkout, commits)
        added = [one for changes in self._changes.values() for one in changes if one.kind == "A"]
        self._blobs = objects.read(checkout.git, (one.new_id for one in added))
        self._owners: dict[str, Commit] = {}
        self._files: dict[str, File] = {}
        patches = tuple(map(self._patch, commits))
        self.series = Series(patches, self._files, self._groups)
        self.contents = {
            "series": File(order),
            **{patch.name: File(patch.render()) for patch in patches},
            **{f"files/{path}": file for path, file in self._files.items()},
        }

    def _patch(self, commit: Commit) -> Patch:
        """Makes the next patch from a commit."""
        changes = self._changes[commit.id]
        if not changes:
            raise _refused(commit, "changes nothing", next_command="git rebase -i, and drop it")
        for change in changes:
            self._check(commit, change)
        added = [change for change in changes if change.kind == "A"]
        subject, body, trailers = _split_message(commit.message)
        name = self._names[commit.id]
        known = self._known.get(name)
        diff = self._diffs.get(commit.id, b"")
        if b"\0" in diff:
            raise _refused(
                commit,
                "changes a binary file of k2's",
                why="patches are text",
                next_command="git rebase -i, and take it out of the commit",
            )
        patch = Patch(
            name=name,
            subject=subject,
            status=trailers.get("Upstream-Status")
            or (known.status if known else patch_text.DEFAULT_STATUS),
            body=body,
            new_files=tuple(sorted(change.path for change in added)),
            diff=diff,
            edits=patch_text.parse_diff(name, diff),
            author=commit.author.who,
            date="" if commit.author.who == patch_text.FROM else commit.author.date,
        )
        self._check_words(patch)
        for change in added:
            self._owners[change.path] = commit
            self._files[change.path] = File(
                self._blobs[change.new_id], change.new_mode == EXECUTABLE_MODE
            )
        return patch

    def _check(self, commit: Commit, change: Change) -> None:
        """Refuses changes that the patch format has no words for."""
        patch_text.check_path(change.path, f"commit {commit.id[:12]}", change.kind == "A")
        regular = (*objects.MODES, "000000")
        if change.old_mode not in regular or change.new_mode not in regular:
            raise _refused(
                commit,
                f"changes {change.path}, which is a symbolic link or a submodule",
                why="patches touch regular files only",
                next_command="git rebase -i, and take it out of the commit",
            )
        owner = self._owners.get(change.path)
        if owner and not series_file.may_edit(
            self._groups, self._names[commit.id], self._names[owner.id]
        ):
            raise _refused(
                commit,
                f"changes {change.path}, which commit {owner.id[:12]} ({owner.subject}) adds",
                why="a new file lies under patches/files in one state, which the patch that adds it"
                " owns; only one of a later group may edit it",
                next_command=f"git commit --fixup={owner.id[:12]} that part,"
                " then git rebase -i --autosquash",
            )
        if change.kind != "A":
            return
        if change.path in self._upstream:
            raise _refused(
                commit,
                f"adds {change.path}, which an earlier commit deletes",
                next_command="git rebase -i, and make one commit of the two",
            )
        other = patch_folder.same_elsewhere(self._folded, change.path)
        has = other or patch_folder.taken(self._upstream, self._folded, change.path)
        if has:
            raise _refused(
                commit,
                f"adds {change.path}, but k2 has {has}",
                why="they are one file where upper and lower case are the same, as on a Mac"
                if other
                else "a patch makes no folder of k2's file, and no file of k2's folder",
                next_command="give the new file another name",
            )

    def _check_words(self, patch: Patch) -> None:
        """Refuses a header and a message that a patch file cannot have."""
        why = "a line of it is '---', or it has unusual white space"
        try:
            same = patch_text.parse(patch.name, patch.render()) == patch
        except errors.SeriesError as error:
            same, why = False, error.what
        if not same:
            raise errors.K2mpsError(
                f"the message or the author of {patch.subject!r} cannot be written as a patch",
                why=why,
                next_command="git rebase -i, and reword it, or git commit"
                " --amend --author there; or k2mps edit",
            )


def _refused(commit: Commit, what: str, *, why: str = "", next_command: str) -> errors.K2mpsError:
    title = f"commit {commit.id[:12]} ({commit.subject}) {what}"
    return errors.K2mpsError(title, why=why, next_command=next_command)


def _names(commits: Sequence[Commit], old: dict[str, Patch]) -> dict[str, str]:
    """The patch name of each commit, by commit id.

    A patch keeps its name when its subject changes; a new commit is named after its subject.
    """
    names: dict[str, str] = {}
    by_subject: dict[str, list[str]] = {}
    for name, patch in old.items():
        by_subject.setdefault(patch.subject, []).append(name)
    for commit in commits:
        name = name_of(commit)
        if name and name not in names.values():
            series_file.check_name(name, f"commit {commit.id[:12]}")
            names[commit.id] = name
    unnamed = [commit for commit in commits if commit.id not in names]
    for commit in unnamed:
        # Several patches may have one subject.
        for name in by_subject.get(_split_message(commit.message)[0], ()):
            if name not in names.values():
                names[commit.id] = name
                break
    for commit in unnamed:
        names.setdefault(commit.id, name_for(commit.subject, set(names.values())))
    return names


def name_for(subject: str, taken: set[str]) -> str:
    """A file name for a new patch that is not taken."""
    plain = re.sub(r"[^a-z0-9]+", "-", subject.lower())
    stem = plain[:52].strip("-") or "patch"
    name, number = f"{stem}.patch", 1
    while name in taken:
        number += 1
        name = f"{stem}-{number}.patch"
    return name


def _split_message(message: str) -> tuple[str, str, dict[str, str]]:
    """Subject, body and the trailers that are headers of a patch file."""
    first, *rest = re.split(r"\n[ \t]*\n", message.strip("\n"), maxsplit=1)
    trailers: dict[str, str] = {}
    kept = []
    for line in rest[0].strip("\n").split("\n") if rest else ():
        match = patch_text.TRAILER.fullmatch(line.rstrip())
        if match:
            # Of commits that were squashed into one, the first gives the name.
            trailers.setdefault(match[1], match[2])
        else:
            kept.append(line)
    return " ".join(first.split()), patch_text.plain("\n".join(kept)), trailers


def _diffs(checkout: Checkout, commits: Sequence[Commit]) -> dict[str, bytes]:
    """What each commit changes in files that it does not add, by its id.

    git writes a line of upstream's after a hunk header, for orientation only;
    which line depends on the user's attributes.  Here that line goes.
    """
    output = checkout.git.bytes(
        *(
            "diff-tree --stdin -r -p -U1 --full-index --no-renames --no-color --no-ext-diff"
            " --no-textconv --text --diff-filter=a --src-prefix=a/ --dst-prefix=b/"
            " --diff-algorithm=myers --indent-heuristic --inter-hunk-context=0"
        ).split(),
        stdin=stdin_of(commits),
    )
    # A line of content starts with a blank, a plus, a minus or a backslash.
    _, *parts = re.split(rb"^([0-9a-f]{40})\n", output, flags=re.MULTILINE)
    return {
        id_.decode(): _HUNK_TITLE.sub(rb"\1", diff) for id_, diff in zip(parts[0::2], parts[1::2])
    }

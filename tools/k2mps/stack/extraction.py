"""Makes the contents of patches/ from a linear history of commits.

The text of a patch depends only on its commit.  So a file of patches/ changes only if its commit
has changed.
"""

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from k2mps.core import errors, objects, pins
from k2mps.core.objects import EXECUTABLE_MODE, File
from k2mps.core.pins import Pin
from k2mps.series import conflict_markers, patch_folder, patch_text, series_file
from k2mps.series.patch_folder import Series
from k2mps.series.patch_text import Patch
from k2mps.stack.advice import rebase_command
from k2mps.stack.checkout import Checkout, Commit, stdin_of

# The first words of the subjects that `git commit --fixup` and `git commit --squash` write.
_FOLLOWERS = ("fixup! ", "squash! ", "amend! ")


class Plan(NamedTuple):
    """The new contents of patches/ and upstream.toml, and which files must be written."""

    series: Series  # the series that `files` contain
    files: dict[str, File]  # all files of patches/, and upstream.toml, by path in the project
    changed: tuple[str, ...]  # the paths of `files` that must be written
    removed: tuple[str, ...]  # the paths of existing files that must be removed


def plan(
    checkout: Checkout,
    commits: Sequence[Commit],
    old_files: Mapping[str, File],
    pin: Pin,
    new_pin: Pin | None = None,
) -> Plan:
    """Plans the patches for commits on top of the pin, and writes no file.

    Args:
      commits: the commits, the oldest first.
      old_files: patches/ and upstream.toml as they are, by path in the project.
      pin: the pin in upstream.toml.
      new_pin: the pin that replaces it; None if it stays.
    Raises:
      K2mpsError: no patch can express a commit.
    """
    config = old_files["upstream.toml"]
    order = old_files["patches/series"].content if "patches/series" in old_files else b""
    old_patches = _patches(old_files, order)
    names = names_of(commits, old_patches)
    order = series_file.render_order(order, names)
    series = _series(checkout, (new_pin or pin).commit, commits, names, old_patches, order)
    if new_pin and new_pin != pin:
        config = File(pins.with_pin(config.content.decode("utf-8"), new_pin).encode("utf-8"))
    contents = {
        "patches/series": File(order),
        **{f"patches/{patch.name}": File(patch.render()) for patch in series.patches},
        **{f"patches/files/{path}": file for path, file in series.files.items()},
        # upstream.toml is written last.  So a run that is killed before that leaves the old pin.
        "upstream.toml": config,
    }
    changed = tuple(path for path, file in contents.items() if old_files.get(path) != file)
    removed = tuple(path for path in old_files if path not in contents)
    return Plan(series, contents, changed, removed)


def _patches(files: Mapping[str, File], order: bytes) -> dict[str, Patch]:
    """Returns the patches that patches/series lists and that can be read, by name."""
    patches = {}
    names, _ = series_file.parse(order)
    for name in names:
        with contextlib.suppress(errors.SeriesError, KeyError):
            patches[name] = patch_text.parse(name, files[f"patches/{name}"].content)
    return patches


def name_of(commit: Commit) -> str:
    """Returns the patch's name from a commit's message; empty if the message has no such name."""
    _, _, trailers = _split_message(commit.message)
    return trailers.get("Patch-Filename", "")


def _series(
    checkout: Checkout,
    pin: str,
    commits: Sequence[Commit],
    names: Sequence[str],
    old_patches: Mapping[str, Patch],
    order: bytes,
) -> Series:
    """Makes patches of the commits.

    Args:
      names: the file names of the patches.
      old_patches: the patches that patches/ has, by name.
      order: the contents of patches/series.
    Raises:
      K2mpsError: no patch can express a commit.
    """

    def rebase() -> str:
        """Returns the command with which the user changes commits."""
        return f"{rebase_command(checkout, pin, commits[-1].id)} -i {pin[:12]}"

    _check_followers(commits, rebase)
    contents = _Contents(checkout, commits)
    _, groups = series_file.parse(order)
    files: dict[str, File] = {}
    patches = []
    for commit, name in zip(commits, names):
        status = series_file.first_status(groups.get(name, ""))
        if name in old_patches:
            status = old_patches[name].status
        patch = contents.patch(commit, name, status)
        fault = contents.fault(commit, patch, old_patches.get(name))
        if fault:
            raise errors.K2mpsError(
                f"commit {commit} cannot be written as a patch",
                why=fault,
                next_command="undo that in the edits; or in the commit, if the branch has it, with"
                f" {rebase()}",
            )
        files |= contents.new_files(commit)
        patches.append(patch)
    _check_owners(patches, groups, rebase)
    return Series(tuple(patches), files, groups)


class _Contents:
    """The contents of commits; a few commands of git read all of them."""

    def __init__(self, checkout: Checkout, commits: Sequence[Commit]):
        self._diffs = _diffs(checkout, commits)
        self._added = {
            id_: [change for change in changes if not change.old]
            for id_, changes in checkout.changes_of(commits).items()
        }
        self._blobs = checkout.objects.blobs(
            change.new.id for changes in self._added.values() for change in changes
        )

    def patch(self, commit: Commit, name: str, status: str) -> Patch:
        """Makes the patch of a commit.

        Args:
          status: the patch's status, unless the commit's message has one.
        """
        subject, body, trailers = _split_message(commit.message)
        return Patch(
            name=name,
            subject=subject,
            status=trailers.get("Upstream-Status") or status,
            body=body,
            new_files=tuple(sorted(change.path for change in self._added[commit.id])),
            diff=self._diffs.get(commit.id, b""),
            author=commit.author,
            date="" if commit.author == patch_text.FROM else commit.date,
        )

    def new_files(self, commit: Commit) -> dict[str, File]:
        """Returns the files that a commit adds, by path."""
        return {
            path: File(self._blobs[entry.id], entry.mode == EXECUTABLE_MODE)
            for path, _, entry in self._added[commit.id]
        }

    def fault(self, commit: Commit, patch: Patch, old_patch: Patch | None) -> str:
        """Returns why a commit cannot be written as a patch; empty if it can.

        Args:
          old_patch: the patch that patches/ has, which needs no check.
        """
        if not commit.date:
            return "its date is before 1970"
        if conflict_markers.ADDED.search(patch.diff):
            return "it adds a conflict marker of git"
        for path, _, entry in self._added[commit.id]:
            if entry.mode not in objects.MODES:
                return f"{path} is a symbolic link or a submodule"
            if entry.mode == EXECUTABLE_MODE and not self._blobs[entry.id].startswith(b"#!"):
                return f"{path} is executable, but does not begin with #!"
            if conflict_markers.MARKER.search(self._blobs[entry.id]):
                return f"{path} has a conflict marker of git"
        try:
            if patch != old_patch:
                patch_text.check(patch)
        except errors.SeriesError as error:
            return f"{error.message}: {error.why}" if error.why else error.message
        return ""


def _check_owners(
    patches: Sequence[Patch], groups: Mapping[str, str], rebase: Callable[[], str]
) -> None:
    """Raises K2mpsError if the patches may not change the files that they change together.

    Args:
      groups: {name of a patch: its group}.
      rebase: returns the command with which the user changes commits.
    """
    try:
        patch_folder.owners(patches, groups)
    except errors.SeriesError as error:
        remedy = f"k2mps fold adds edits to that patch, and {rebase()} adds a commit to it"
        raise errors.K2mpsError(error.message, why=error.why, next_command=remedy) from None


def _check_followers(commits: Sequence[Commit], rebase: Callable[[], str]) -> None:
    """Raises K2mpsError if a commit is to become part of another commit.

    Args:
      rebase: returns the command with which the user changes commits.
    """
    for commit in commits:
        if commit.subject.startswith(_FOLLOWERS):
            raise errors.K2mpsError(
                f"commit {commit} is to become part of another one",
                next_command=f"{rebase()} --autosquash, which drops the message of a fixup!; then"
                " the same command again",
            )


def names_of(commits: Sequence[Commit], old_patches: dict[str, Patch]) -> list[str]:
    """Returns the name of the patch for each commit.

    A patch keeps its name when the commit's subject changes.  The patch of a new commit is named
    after the subject.

    Args:
      old_patches: the patches that patches/ has, by name.
    """
    names: dict[str, str] = {}  # by commit
    for commit in commits:
        own_name = name_of(commit)
        if own_name and own_name not in names.values():
            series_file.check_name(own_name, f"commit {commit.id[:12]}")
            names[commit.id] = own_name
    for commit in commits:
        if commit.id in names:
            continue
        subject, _, _ = _split_message(commit.message)
        taken = set(names.values())
        # Several patches can have the same subject.
        same = [patch.name for patch in old_patches.values() if patch.subject == subject]
        free = [name for name in same if name not in taken]
        names[commit.id] = free[0] if free else name_for(subject, taken | old_patches.keys())
    return [names[commit.id] for commit in commits]


def name_for(subject: str, taken: set[str]) -> str:
    """Returns a file name, not among `taken`, for a new patch."""
    plain = re.sub(r"[^a-z0-9]+", "-", subject.lower())
    stem = plain[:52].strip("-") or "patch"
    name, number = f"{stem}.patch", 1
    while name in taken:
        number += 1
        name = f"{stem}-{number}.patch"
    return name


def _split_message(message: str) -> tuple[str, str, dict[str, str]]:
    """Splits a commit's message into its subject, its body, and the trailers that become headers of
    the patch file."""
    parts = re.split(r"\n[ \t]*\n", message.strip("\n"), maxsplit=1)
    # git takes the whole first paragraph for the subject.
    subject = " ".join(parts[0].split())
    rest = parts[1].strip("\n") if len(parts) > 1 else ""
    body_lines = []
    trailers: dict[str, str] = {}
    for line in rest.split("\n"):
        match = patch_text.TRAILER.fullmatch(line.rstrip())
        if match:
            # A squashed commit can have several trailers with one name; the first of these is kept.
            trailers.setdefault(match[1], match[2])
        else:
            body_lines.append(line)
    return subject, patch_text.plain("\n".join(body_lines)), trailers


def _diffs(checkout: Checkout, commits: Sequence[Commit]) -> dict[str, bytes]:
    """Returns the diff of each commit, by the commit's id, without the files that the commit adds.

    After `@@ ... @@`, git repeats the last line before the hunk that starts with a letter, "_" or
    "$": in k2 often the head of the function.  No attributes of the user have an effect.
    """
    output = checkout.objects.bytes(
        "diff-tree",
        "--stdin",
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
        stdin=stdin_of(commits),
    )
    # A line with the commit's id comes before each diff.  A line of a hunk cannot match, because it
    # starts with a blank, a plus, a minus or a backslash.
    parts = re.split(rb"^([0-9a-f]{40})\n", output, flags=re.MULTILINE)
    # The first part is what comes before the first id.
    ids, diffs = parts[1::2], parts[2::2]
    return {id_.decode(): diff for id_, diff in zip(ids, diffs)}

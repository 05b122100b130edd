"""The commits that the series becomes.

They are made in a workspace of their own (an index file that is thrown away,
objects that nothing refers to yet).  A commit's author
is its patch's; the committer is fixed, and the date is the pin's, so that a
commit's id depends on the pin and on patches/ only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from k2mps.core import errors, git, objects
from k2mps.core.pins import Pin, sha256
from k2mps.core.project import Project
from k2mps.series import hunks
from k2mps.series.patch_folder import Series, folded, same_elsewhere
from k2mps.series.patch_text import EXECUTABLE_MODE, FILE_MODE, FROM, Edit, Patch, raw_date
from k2mps.stack.checkout import Author, Checkout, Commit

# Which commit and tree the last series gave; only ever a saving of time.
_NOTE = "k2mps-series"
_COMMITTED = re.compile(rb"^committer .* (\d+) [-+]\d+$", re.MULTILINE)


class Planned:
    """The commits that a series becomes.

    Where every patch fits to the byte they are known without asking git to
    make any; and what the last series gave in a checkout is noted there.

    Args:
      checkout: one that has the pin.
      found: the series.
    Attributes:
      tip: the last commit; None where git has to place hunks first.
      tree: what the series gives; None as above.
    """

    def __init__(self, checkout: Checkout, pin: Pin, found: Series):
        self._checkout = checkout
        self._pin = pin
        self._found = found
        self._store: objects.Store | None = None
        self._note = checkout.git_dir / _NOTE
        self._key = sha256(f"{pin.commit} {found.lock}".encode())
        self.tip: str | None = None
        self.tree: str | None = None
        try:
            key, tip, tree = self._note.read_text().split()
        except (FileNotFoundError, ValueError):
            key = ""
        if key == self._key:
            self.tip, self.tree = tip, tree
        else:
            self._plan()

    def _plan(self) -> None:
        self._store = objects.Store()
        exact = _commit_exactly(self._checkout, self._pin, self._found, self._store)
        if exact:
            self.tip, self.tree = exact
        else:
            self.tip = self.tree = self._store = None

    def to_write(self) -> objects.Store:
        """What is to be written so that the commits exist; git has to have
        placed the hunks.

        The caller holds the checkout's `exclusive`, and writes them.

        Raises:
          PatchConflictError: names the patch, the file and the hunk.
        """
        if self._store is None:
            self._plan()
        if self._store is None:
            self._place()
        return self._store or objects.Store()

    def remember(self) -> None:
        """Notes in the checkout what was made, where there is room."""
        try:
            self._note.write_text(f"{self._key} {self.tip} {self.tree}\n")
        except OSError:
            self._note.unlink(missing_ok=True)

    def make(self) -> str:
        """Makes the commits; changes no ref and no file.

        The caller holds the checkout's `exclusive`.

        Returns:
          The id of the last commit; the pin where the series is empty.
        Raises:
          PatchConflictError: names the patch, the file and the hunk.
        """
        self.to_write().write(self._checkout.git)
        self.remember()
        return self.tip

    def _place(self) -> None:
        """Lets git place the hunks."""
        with self._checkout.scratch_index() as index:
            workspace = _Workspace(self._checkout, index, self._pin)
            blobs = workspace.write_blobs(self._found)
            for patch in self._found.patches:
                workspace.commit(patch, self._found, blobs)
        self.tip = workspace.tip
        self.tree = self._checkout.tree_of(self.tip)

    def seem_said(self, project: Project, commit: str) -> bool:
        """As `say_series`, for those who only look: it makes no commits.

        Where git would have to place the hunks of a patch, names, order and
        words are compared, and which change is in which patch is not.
        """
        checkout, pin = self._checkout, self._pin
        if commit == self.tip:
            return True
        if not checkout.is_ancestor(pin.commit, commit):
            return False
        if self.tip:
            return say_series(project, checkout, pin, commit, self.tip)
        made = checkout.commits(f"{pin.commit}..{commit}")
        return [one.message.strip("\n") for one in made] == [
            patch.commit_message().strip("\n") for patch in self._found.patches
        ]


def commit_series(checkout: Checkout, pin: Pin, found: Series) -> str:
    """Makes the commits of the series: see `Planned.make`."""
    return Planned(checkout, pin, found).make()


def commit_date(checkout: Checkout, pin: str) -> str:
    """When the commits of a series on this pin are made, for git."""
    return checkout.git.text("log", "-1", "--format=@%ct +0000", pin)


def identity(patch: Patch, date: str) -> dict[str, str]:
    """The environment in which git makes the commit of a patch.

    Args:
      date: what `commit_date` returned.
    """
    author = Author(patch.author, patch.date or date)
    return {**author.variables(), "GIT_COMMITTER_DATE": date}


def moved(checkout: Checkout, commit: Commit, onto: str) -> str | None:
    """The tree of a commit's changes on another commit; None where they do
    not fit."""
    parent = commit.parents[0]
    if checkout.tree_of(onto) == checkout.tree_of(parent):
        return checkout.tree_of(commit.id)
    return changed(checkout, onto, parent, commit.id)


def changed(checkout: Checkout, commit: str, old: str, new: str) -> str | None:
    """A commit's tree with what leads from one tree to another, by a 3-way
    merge; None where that does not fit."""
    diff = checkout.git.bytes(
        "diff-tree", "-r", "-p", "--full-index", "--binary", "--no-renames", "-U3", old, new
    )
    with checkout.scratch_index() as index:
        index.bytes("read-tree", commit)
        if index.succeeds("apply", "--cached", "--3way", "-", stdin=diff):
            return index.text("write-tree")
    return None


def say_series(project: Project, checkout: Checkout, pin: Pin, commit: str, tip: str) -> bool:
    """Whether the commits up to `commit` say what patches/ says: the same
    patches in the same order under the same names, each with the same words
    and changes.

    Args:
      tip: what `commit_series` has returned.
    """
    if commit == tip:
        return True
    from k2mps.stack import extraction  # `k2mps status` seldom comes here

    try:
        said = extraction.plan(project, checkout, checkout.commits(f"{pin.commit}..{commit}"))
    except (errors.RefusedError, errors.SeriesError):
        return False
    return not (said.written or said.removed)


def _commit_exactly(
    checkout: Checkout, pin: Pin, found: Series, store: objects.Store
) -> tuple[str, str] | None:
    """Makes the commits, in `store`, where every patch fits to the byte.

    That is so for a series that was exported: each edit takes the blob that
    its patch names to the blob that its patch names.  Any other series is
    left to git, which places its hunks or says why it cannot.

    Returns:
      The ids of the last commit and of its tree; or None.
    """
    repository = checkout.git
    tree = objects.Tree.of(repository, pin.commit)
    first = (edit.old_id for patch in found.patches for edit in patch.edits)
    blobs = objects.read(repository, [pin.commit, *filter(None, first)])
    date = _COMMITTED.search(blobs[pin.commit])[1].decode() + " +0000"
    tip, last = pin.commit, pin.tree
    names = folded(tree.files())
    for patch in found.patches:
        by_path: dict[str, list[hunks.Hunk]] = {}
        for hunk in hunks.split(patch.diff):
            by_path.setdefault(hunk.path, []).append(hunk)
        for edit in patch.edits:
            of_file = by_path.get(edit.path, [])
            if not _edit_exactly(tree, store, blobs, edit, of_file):
                return None
        for path in patch.new_files:
            if not _is_free(tree, path) or same_elsewhere(names, path):
                return None
            file = found.files[path]
            content = file.source.read_bytes()
            blob = store.add("blob", content)
            blobs[blob] = content  # a patch of a later group may edit it
            tree.set(path, file.mode, blob)
        message = patch.commit_message()
        last = tree.write(store)
        when = raw_date(patch.date) if patch.date else date
        tip = store.add(
            "commit",
            os.fsencode(
                f"tree {last}\nparent {tip}\n"
                f"author {patch.author} {when}\n"
                f"committer {FROM} {date}\n\n{message}"
            ),
        )
    return tip, last


def _edit_exactly(
    tree: objects.Tree,
    store: objects.Store,
    blobs: dict[str, bytes],
    edit: Edit,
    of_file: Sequence[hunks.Hunk],
) -> bool:
    """Does one edit, if it fits to the byte."""
    before = tree.get(edit.path)
    if not before or before[0] not in (FILE_MODE, EXECUTABLE_MODE):
        return False
    mode, blob = before
    if edit.old_mode not in (None, mode) or edit.old_id not in (None, blob):
        return False
    if edit.deletes:
        tree.remove(edit.path)
        return True
    if edit.new_id:
        text = blobs.get(blob)
        new = None if text is None else hunks.apply_all(text, of_file)
        if new is None or objects.object_id("blob", new) != edit.new_id:
            return False
        blob = store.add("blob", new)
        blobs[blob] = new
    tree.set(edit.path, edit.new_mode or mode, blob)
    return True


def _is_free(tree: objects.Tree, path: str) -> bool:
    """Whether a new file can be there: neither it nor a file above it is."""
    parts = path.split("/")
    above = (tree.get("/".join(parts[:end])) for end in range(1, len(parts)))
    return tree.get(path) is None and all(one is None or one[0] == "040000" for one in above)


class _Workspace:
    """An index of its own, in which the series is built up from the pin."""

    def __init__(self, checkout: Checkout, index: git.Git, pin: Pin):
        self._checkout = checkout
        self._git = index
        self._git.bytes("read-tree", pin.commit)
        self._files = checkout.files_of(pin.commit)
        self._folded = folded(self._files)
        self._date = commit_date(checkout, pin.commit)
        self.tip = pin.commit

    def write_blobs(self, found: Series) -> Mapping[str, str]:
        """Stores all new files, byte for byte; their blob ids by path."""
        if not found.files:
            return {}
        sources = "".join(f"{file.source}\n" for file in found.files.values())
        ids = self._git.text(
            "hash-object", "-w", "--no-filters", "--stdin-paths", stdin=os.fsencode(sources)
        )
        return dict(zip(found.files, ids.split("\n")))

    def commit(self, patch: Patch, found: Series, blobs) -> None:
        """Adds one patch with its new files as one commit."""
        if patch.diff:
            result = self._git.run("apply", "--cached", "-", stdin=patch.diff)
            if result.status != 0:
                raise _conflict(patch, result.stderr)
        self._check_free(patch)
        if patch.new_files:
            entries = "".join(
                f"{found.files[path].mode} {blobs[path]}\t{path}\0" for path in patch.new_files
            )
            self._git.bytes("update-index", "-z", "--index-info", stdin=os.fsencode(entries))
        tree = self._git.text("write-tree")
        who = identity(patch, self._date)
        self.tip = self._checkout.commit_tree(tree, self.tip, patch.commit_message(), who)

    def _check_free(self, patch: Patch) -> None:
        """Refuses a new file where upstream has a file or a link."""
        for path in patch.new_files:
            other = same_elsewhere(self._folded, path)
            if other:
                raise errors.PatchConflictError(
                    f"patches/{patch.name} adds {path}, but k2 has {other}",
                    why="they are one file where upper and lower case are the same, as on a Mac",
                    next_command=f"rename patches/files/{path}, and in"
                    f" patches/{patch.name}, then k2mps lock",
                )
            parts = path.split("/")
            for end in range(1, len(parts) + 1):
                place = "/".join(parts[:end])
                if place in self._files:
                    raise errors.PatchConflictError(
                        f"patches/{patch.name} adds {path}, but k2 has {place}",
                        why="upstream has added it, or a patch adds what it should edit",
                        next_command=f"rename patches/files/{path}, or make it an edit",
                    )


def _conflict(patch: Patch, stderr: str) -> errors.PatchConflictError:
    """Tells which hunk of which file git could not place."""
    places = []
    lines = []
    for path, line in re.findall(r"^error: patch failed: (.*):(\d+)$", stderr, re.MULTILINE):
        of_file = [h for h in hunks.split(patch.diff) if h.path == path]
        for number, hunk in enumerate(of_file, start=1):
            if hunk.old_start == int(line):
                places.append(f"hunk {number} of {len(of_file)} of {path} (line {line})")
                lines.append(patch.diff_line + hunk.line - 1)
    for path in re.findall(r"^error: (.*): does not exist in index$", stderr, re.MULTILINE):
        places.append(f"{path}, which k2 does not have")
    return errors.PatchConflictError(
        f"patches/{patch.name}:{lines[0] if lines else 1}: does not apply: "
        + ("; ".join(places) or stderr),
        why="the pin was moved, an earlier patch of the series changes the"
        " same lines, or the patch was edited by hand",
        next_command="git log -- upstream.toml patches, to see what changed;"
        " git checkout patches upstream.toml brings the locked series back",
    )

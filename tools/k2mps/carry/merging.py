"""Merging a patch into another upstream commit, in memory.

Each file is merged as by `git cherry-pick`: the base is the file before the
patch, one side is the file after it, the other side is upstream's.  A probe tries
thousands of patches, most of them with texts that it has merged before.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from k2mps.core.git import split_z
from k2mps.stack.checkout import Change, Checkout


class Merger:
    """Reads blobs and merges them, each once."""

    def __init__(self, checkout: Checkout):
        self._git = checkout.git
        self._contents: dict[str, bytes] = {}
        self._merged: dict[tuple[str, str, str], str | None] = {}
        # A probe comes to the same commits with each patch.
        self._entries = functools.cache(checkout.entries)
        self.renames = functools.cache(self._renames)

    def content(self, blob: str) -> bytes:
        if blob not in self._contents:
            self._contents[blob] = self._git.bytes("cat-file", "blob", blob)
        return self._contents[blob]

    def blobs(self, commit: str, paths: Iterable[str]) -> dict[str, str]:
        """The blob ids of those of these files that a commit has."""
        entries = self._entries(commit)
        return {path: entries[path][1] for path in paths if path in entries}

    def _renames(self, old: str, new: str) -> dict[str, str]:
        """Where files of one commit lie in another, if git can tell."""
        options = "diff-tree -r -z --find-renames --diff-filter=R --name-status"
        fields = split_z(self._git.bytes(*options.split(), old, new))
        return dict(zip(fields[1::3], fields[2::3]))

    def merge(self, ours: str, base: str, theirs: str) -> str | None:
        """Merges blobs.

        Returns:
          The id of the result, which only this object knows where git does not
          have it; None for a conflict.
        """
        if ours == base:
            return theirs
        if base == theirs or ours == theirs:
            return ours
        key = (ours, base, theirs)
        if key not in self._merged:
            text = self.merge_text(*map(self.content, key))
            name = None if text is None else f"merged {'-'.join(key)}"
            if name:
                self._contents[name] = text
            self._merged[key] = name
        return self._merged[key]

    def merge_text(self, ours: bytes, base: bytes, theirs: bytes) -> bytes | None:
        """Merges texts; None for a conflict."""
        with tempfile.TemporaryDirectory(prefix="k2mps-") as folder:
            names = ("ours", "base", "theirs")
            for name, text in zip(names, (ours, base, theirs)):
                Path(folder, name).write_bytes(text)
            result = self._git.run(
                "merge-file", "--stdout", "--quiet", *(os.path.join(folder, name) for name in names)
            )
        return result.stdout if result.status == 0 else None

    def pick(
        self, changes: Sequence[Change], files: dict[str, str], renames: Mapping[str, str]
    ) -> list[str]:
        """Puts a commit's changes into a tree.

        Args:
          files: blob ids by path, which this function changes.
          renames: the new paths of files that upstream has moved.
        Returns:
          The paths that conflict.
        """
        conflicts = []
        for change in changes:
            path = change.path
            if path not in files and change.old_id:
                path = renames.get(path, path)
            ours = files.get(path)
            if ours == change.new_id:
                continue
            result: str | None = None
            if change.old_id is None:
                clean = ours is None
                result = change.new_id
            elif change.new_id is None:
                clean = ours == change.old_id
            elif ours is None:
                clean = False
            else:
                result = self.merge(ours, change.old_id, change.new_id)
                clean = result is not None
            if not clean:
                conflicts.append(change.path)
            elif result is None:
                del files[path]
            else:
                files[path] = result
        return conflicts

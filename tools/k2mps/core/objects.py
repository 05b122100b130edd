"""Git objects that are made here and written to git all at once.

To start git for every patch, tree and commit would take most of the time of an apply: for 35
patches, six times as long as this module.  The objects are
plain: their ids are computed here, and one git command stores them all,
checking each.
"""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping

from k2mps.core import git

_PACK_TYPES = {"commit": 1, "tree": 2, "blob": 3}


def object_id(kind: str, content: bytes) -> str:
    """The id of an object."""
    head = f"{kind} {len(content)}\0".encode()
    return hashlib.sha1(head + content).hexdigest()


class Store:
    """Objects that git does not have yet."""

    def __init__(self) -> None:
        self._objects: dict[str, tuple[str, bytes]] = {}

    def add(self, kind: str, content: bytes) -> str:
        """Takes an object; its id."""
        id_ = object_id(kind, content)
        self._objects[id_] = (kind, content)
        return id_

    def write(self, repository: git.Git) -> None:
        """Writes all objects to git."""
        if not self._objects:
            return
        pack = bytearray(struct.pack(">4sII", b"PACK", 2, len(self._objects)))
        for kind, content in self._objects.values():
            pack += _entry_head(_PACK_TYPES[kind], len(content))
            pack += zlib.compress(content, 0)
        pack += hashlib.sha1(pack).digest()
        repository.bytes("unpack-objects", "-q", stdin=bytes(pack))


def _entry_head(kind: int, size: int) -> bytes:
    """Type and size of a pack's entry: 4 bits of the size, then 7 each."""
    byte = kind << 4 | size & 15
    size >>= 4
    head = bytearray()
    while size:
        head.append(byte | 128)
        byte = size & 127
        size >>= 7
    head.append(byte)
    return bytes(head)


class Tree:
    """A tree of files, which can be changed and written."""

    def __init__(self) -> None:
        # The entries of each directory: mode and id by name.
        self._entries: dict[str, dict[str, tuple[str, str]]] = {"": {}}
        self._stale: set[str] = set()

    @staticmethod
    def of(repository: git.Git, commit: str) -> Tree:
        """The tree of a commit."""
        tree = Tree()
        tree._read(repository.bytes("ls-tree", "-r", "-t", "-z", commit))
        return tree

    def _read(self, output: bytes) -> None:
        for line in git.split_z(output):
            facts, path = line.split("\t", 1)
            mode, kind, id_ = facts.split(" ")
            folder, _, name = path.rpartition("/")
            self._entries.setdefault(folder, {})[name] = (mode, id_)
            if kind == "tree":
                self._entries.setdefault(path, {})

    def get(self, path: str) -> tuple[str, str] | None:
        """Mode and id of a file or a directory, or None."""
        folder, _, name = path.rpartition("/")
        return self._entries.get(folder, {}).get(name)

    def files(self) -> Iterator[str]:
        """The paths of all files."""
        for folder, entries in self._entries.items():
            above = f"{folder}/" if folder else ""
            for name, (mode, _) in entries.items():
                if mode != "040000":
                    yield above + name

    def set(self, path: str, mode: str, blob: str) -> None:
        """Puts a file there."""
        folder, _, name = path.rpartition("/")
        self._entries.setdefault(folder, {})[name] = (mode, blob)
        self._touch(folder)

    def remove(self, path: str) -> None:
        """Takes a file away."""
        folder, _, name = path.rpartition("/")
        del self._entries[folder][name]
        self._touch(folder)

    def _touch(self, folder: str) -> None:
        while True:
            self._stale.add(folder)
            if not folder:
                break
            folder = folder.rpartition("/")[0]

    def write(self, store: Store) -> str:
        """Adds the directories that have changed to `store`; the tree's
        id."""
        deepest_first = sorted(self._stale, key=lambda folder: folder.count("/"), reverse=True)
        for folder in deepest_first:
            if folder:
                self._write_folder(store, folder)
        self._stale.clear()
        return store.add("tree", _content(self._entries[""]))

    def _write_folder(self, store: Store, folder: str) -> None:
        above, _, name = folder.rpartition("/")
        entries = self._entries[folder]
        if not entries:
            self._entries.setdefault(above, {}).pop(name, None)
            return
        id_ = store.add("tree", _content(entries))
        self._entries.setdefault(above, {})[name] = ("040000", id_)


def _content(entries: Mapping[str, tuple[str, str]]) -> bytes:
    """A tree object; git sorts a directory as if its name ended in "/"."""

    lines = []
    for name, (mode, id_) in entries.items():
        encoded = os.fsencode(name)
        order = encoded + b"/" if mode == "040000" else encoded
        lines.append(
            (order, b"%s %s\0%s" % (mode.lstrip("0").encode(), encoded, bytes.fromhex(id_)))
        )
    return b"".join([line for _, line in sorted(lines)])


def read(repository: git.Git, ids: Iterable[str]) -> dict[str, bytes]:
    """The contents of those of these objects that the repository has."""
    wanted = list(dict.fromkeys(ids))
    output = repository.bytes(
        "cat-file", "--batch", stdin="".join(f"{i}\n" for i in wanted).encode()
    )
    found = {}
    at = 0
    for id_ in wanted:
        end = output.index(b"\n", at)
        facts = output[at:end].split(b" ")
        at = end + 1
        if facts[-1] != b"missing":
            size = int(facts[2])
            found[id_] = output[at : at + size]
            at += size + 1
    return found

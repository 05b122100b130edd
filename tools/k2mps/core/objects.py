"""Blobs of git, which one process reads."""

from collections.abc import Iterable
from typing import NamedTuple

from k2mps.core import git

FILE_MODE = "100644"
EXECUTABLE_MODE = "100755"
MODES = (FILE_MODE, EXECUTABLE_MODE)


class File(NamedTuple):
    """A regular file: its bytes, and whether it is executable."""

    content: bytes
    executable: bool = False

    @property
    def mode(self) -> str:
        return EXECUTABLE_MODE if self.executable else FILE_MODE


def read(repository: git.Git, ids: Iterable[str]) -> dict[str, bytes]:
    """The contents of these objects, by id; the repository may lack some."""
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


def files(repository: git.Git, tree: str, paths: Iterable[str] = ()) -> dict[str, File]:
    """The files of a tree or commit; with `paths`, these files and folders where they exist."""
    output = repository.bytes("ls-tree", "-r", "-z", "--full-tree", tree, "--", *paths)
    listed = {}
    for line in git.split_z(output):
        facts, path = line.split("\t", 1)
        mode, _, id_ = facts.split(" ")
        listed[path] = (mode, id_)
    blobs = read(repository, (id_ for _, id_ in listed.values()))
    return {
        path: File(blobs[id_], mode == EXECUTABLE_MODE)
        for path, (mode, id_) in listed.items()
        if id_ in blobs
    }

"""Git objects: commits that `git fast-import` makes, and blobs that one process reads.

One process makes all commits of a series: a process for each patch, tree and
commit would take most of the time of an apply.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from k2mps.core import errors, git

FILE_MODE = "100644"
EXECUTABLE_MODE = "100755"
MODES = (FILE_MODE, EXECUTABLE_MODE)
# fast-import wants a ref for its commits; the last command of a stream keeps it from being written.
_REF = b"refs/k2mps/import"


class File(NamedTuple):
    """A regular file: its bytes, and whether it is executable."""

    content: bytes
    executable: bool = False

    @property
    def mode(self) -> str:
        return EXECUTABLE_MODE if self.executable else FILE_MODE

    @property
    def digest(self) -> str:
        """The lock's entry: the sha256, and " executable" where that is so."""
        return hashlib.sha256(self.content).hexdigest() + " executable" * self.executable


class Import:
    """Commits that are made together."""

    def __init__(self) -> None:
        self._stream: list[bytes] = []
        self._count = 0

    def commit(
        self,
        message: str,
        author: str,
        committer: str,
        parents: Sequence[str],
        changes: Mapping[str, File | None],
        anew: bool = False,
    ) -> str:
        """Adds a commit.

        Args:
          author, committer: "NAME <EMAIL> DATE", the date as in mail or as "SECONDS ZONE".
          parents: commit ids, or what this function returned for earlier commits.
          changes: files by path; None removes one.
          anew: whether these are all files; else they change the first parent's.
        Returns:
          What stands for the commit among the parents of later ones.
        """
        self._count += 1
        first, *others = parents
        lines = [
            f"commit {os.fsdecode(_REF)}",
            f"mark :{self._count}",
            f"author {author}",
            f"committer {committer}",
        ]
        self._lines(lines)
        self._data(os.fsencode(message))
        self._lines([f"from {first}", *(f"merge {other}" for other in others)])
        if anew:
            self._lines(["deleteall"])
        for path, file in changes.items():
            if file is None:
                self._lines([f"D {path}"])
            else:
                self._lines([f"M {file.mode} inline {path}"])
                self._data(file.content)
        return f":{self._count}"

    def run(self, repository: git.Git) -> tuple[str, str]:
        """Makes the commits; no ref names them yet.

        Returns:
          The ids of the last commit and of its tree.
        """
        last = f":{self._count}"
        self._lines([f"get-mark {last}", f'ls {last} ""', f"reset {os.fsdecode(_REF)}", "", "done"])
        try:
            options = "fast-import --quiet --done --depth=0 --date-format=rfc2822"
            output = repository.text(*options.split(), stdin=b"".join(self._stream))
        except errors.K2mpsError:
            # fast-import leaves a report of what it read.
            folder = Path(repository.text("rev-parse", "--absolute-git-dir"))
            for report in folder.glob("fast_import_crash_*"):
                report.unlink(missing_ok=True)
            raise
        commit, entry = output.split("\n")
        return commit, entry.split()[2]

    def _lines(self, lines: Iterable[str]) -> None:
        self._stream.append(os.fsencode("".join(f"{line}\n" for line in lines)))

    def _data(self, content: bytes) -> None:
        self._stream.append(b"data %d\n%s\n" % (len(content), content))


def blob_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0%s" % (len(content), content)).hexdigest()


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

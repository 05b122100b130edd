"""Reads and makes blobs, trees and commits of a repository, whose configuration has no effect.

`Objects` runs git in a temporary bare repository, which has the tool's configuration and uses the
object store of the checkout.  So commits do not depend on any other configuration, attributes or
hooks.
"""

import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from k2mps.core.git import IDENTITY_EMAIL, IDENTITY_NAME, Git, Result, split_z
from k2mps.core.progress import Reporter

FILE_MODE = "100644"
EXECUTABLE_MODE = "100755"
MODES = (FILE_MODE, EXECUTABLE_MODE)
TREE_MODE = "040000"

_SLASH = re.compile("/")
# The author and committer of a commit of which only the tree matters.
_NOBODY = f"{IDENTITY_NAME} <{IDENTITY_EMAIL}> 0 +0000"

_CONFIGURATION = f"""\
[core]
	repositoryformatversion = 0
	bare = true
	attributesFile = {os.devnull}
	# Compression would take a third of the time, and git compresses the objects later anyway.
	looseCompression = 0
[pack]
	compression = 0
[gc]
	auto = 0
[merge]
	conflictStyle = diff3
	directoryRenames = false
"""


class File(NamedTuple):
    """A regular file: its bytes, and whether it is executable."""

    content: bytes
    executable: bool = False

    @property
    def mode(self) -> str:
        return EXECUTABLE_MODE if self.executable else FILE_MODE

    @property
    def entry(self) -> "Entry":
        """The tree entry for the file."""
        import hashlib  # hashlib takes time to import.

        head = b"blob %d\0" % len(self.content)
        return Entry(self.mode, hashlib.sha1(head + self.content).hexdigest())


def read(path: str | Path) -> File:
    """Reads a regular file.

    Only a script, which begins with `#!`, can count as executable, because all files seem to be
    executable on a file system without modes.
    """
    with open(path, "rb") as file:
        content = file.read()
    return File(content, content.startswith(b"#!") and os.access(path, os.X_OK))


class Entry(NamedTuple):
    """A file's entry in a tree."""

    mode: str  # six octal digits
    id: str  # the blob's id, 40 hexadecimal digits


class Objects(Git):
    """Runs git on the objects of a repository.

    Args:
      store: the repository's folder `objects`, to which new objects are added.
      shallow: the repository's file `shallow`, in which git lists the commits whose parents a
        shallow clone lacks; the file need not exist.
      shown: the working tree of the repository, for messages.
    """

    def __init__(self, store: Path, shallow: Path, shown: Path, reporter: Reporter = Reporter()):
        self._folder = tempfile.TemporaryDirectory(prefix="k2mps-", ignore_cleanup_errors=True)
        home = Path(self._folder.name).absolute()  # $TMPDIR may be relative
        super().__init__(home, reporter=reporter)
        self._options = ["--no-pager"]
        self.shown = shown
        for name in ("refs", "objects"):
            (home / name).mkdir()
        (home / "HEAD").write_text("ref: refs/heads/none\n")
        (home / "config").write_text(_CONFIGURATION)
        self._loaded = ""  # the id of the tree in the index; empty if unknown
        self._variables = {
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_DIR": str(home),
            "GIT_INDEX_FILE": str(home / "index"),
            "GIT_OBJECT_DIRECTORY": str(store),
            "GIT_SHALLOW_FILE": str(shallow),
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home),
        }

    def _environment(self) -> dict[str, str]:
        """Returns the environment variables of each command, without the user's settings of git."""
        return {
            name: value
            for name, value in super()._environment().items()
            if not name.startswith(("GIT_CONFIG", "GIT_TRACE")) or name in self._variables
        }

    def blobs(self, ids: Iterable[str]) -> dict[str, bytes]:
        """Returns the contents of blobs, by id; blobs that the repository lacks are left out."""
        unique = list(dict.fromkeys(ids))
        lines = "".join(f"{id_}\n" for id_ in unique)
        output = self.bytes("cat-file", "--batch", stdin=lines.encode())
        contents = {}
        at = 0
        for id_ in unique:
            end = output.index(b"\n", at)
            fields = output[at:end].split(b" ")
            at = end + 1
            if fields[-1] != b"missing":
                size = int(fields[2])
                contents[id_] = output[at : at + size]
                at += size + 1
        return contents

    def entries(self, tree: str, paths: Iterable[str] = ()) -> dict[str, Entry]:
        """Returns the entries of a tree or a commit, by path.

        Args:
          paths: the files and folders to which the result is limited; all if empty.
        """
        output = self.bytes("ls-tree", "-r", "-z", "--full-tree", tree, "--", *paths)
        entries = {}
        for line in split_z(output):
            fields, path = line.split("\t", 1)
            mode, _, id_ = fields.split(" ")
            entries[path] = Entry(mode, id_)
        return entries

    def files(self, tree: str, paths: Iterable[str] = ()) -> dict[str, File]:
        """Returns the files of a tree or a commit, by path; arguments as for `entries`.

        Entries whose blobs the repository lacks, such as submodules, are left out.
        """
        entries = self.entries(tree, paths)
        blobs = self.blobs(entry.id for entry in entries.values())
        return {
            path: File(blobs[entry.id], entry.mode == EXECUTABLE_MODE)
            for path, entry in entries.items()
            if entry.id in blobs
        }

    def load(self, tree: str) -> None:
        """Fills the index with the entries of a tree."""
        if tree != self._loaded:
            self.bytes("read-tree", tree)
            self._loaded = tree

    def stage(self, entries: Mapping[str, Entry]) -> None:
        """Puts entries into the index, by path."""
        lines = "".join(f"{entry.mode} {entry.id}\t{path}\0" for path, entry in entries.items())
        self._loaded = ""
        self.bytes("update-index", "-z", "--index-info", stdin=os.fsencode(lines))

    def apply(self, diff: bytes) -> Result:
        """Applies a diff to the index.  If git refuses the diff, the result's status is not 0."""
        self._loaded = ""
        return self.run("apply", "--cached", "--whitespace=nowarn", "-", stdin=diff)

    def tree(self) -> str:
        """Writes the index as a tree, and returns the tree's id."""
        self._loaded = self.text("write-tree")
        return self._loaded

    def commit(
        self, tree: str, parent: str, message: str, author: str = _NOBODY, committer: str = _NOBODY
    ) -> str:
        """Makes a commit of a tree, and moves no branch; returns the commit's id.

        Args:
          parent: the id of the parent; empty if there is none.
          author, committer: "NAME <EMAIL> SECONDS ZONE".
        """
        changes = {"": Entry(TREE_MODE, tree)}
        return self.import_commits([importable(parent, changes, message, author, committer)])

    def import_commits(self, commits: Iterable[bytes]) -> str:
        """Makes the commits that `importable` describes; returns the id of the last one."""
        stream = b"".join([*commits, b"get-mark :1\n"])
        options = ("--quiet", "--force", "--date-format=raw-permissive")
        return self.text("fast-import", *options, stdin=stream)


def folders_of(path: str) -> list[str]:
    """Returns the folders that lead to a path, such as "k2" and "k2/csrc" to "k2/csrc/array.h"."""
    return [path[: match.start()] for match in _SLASH.finditer(path)]


def importable(
    parent: str,
    changes: Mapping[str, File | Entry | None],
    message: str,
    author: str,
    committer: str,
) -> bytes:
    """Returns the description of a commit for `git fast-import`.

    Args:
      parent: the id of the parent; empty for the commit that is described before this one.
      changes: the changed files by path; None deletes a file.  An empty path is the whole tree.
      author, committer: "NAME <EMAIL> SECONDS ZONE".
    """
    if message and not message.endswith("\n"):
        message += "\n"
    text = os.fsencode(message)
    head = f"author {author}\ncommitter {committer}\ndata {len(text)}\n"
    # The branch is in the temporary repository.  The mark lets git print the id.
    parts = [b"commit refs/heads/made\nmark :1\n", os.fsencode(head), text]
    if parent:
        parts.append(f"from {parent}\n".encode())
    # The whole tree comes first.  What a file or a folder replaces must go before it comes.
    written = {path: new for path, new in changes.items() if path and new}
    first = {path: new for path, new in changes.items() if path not in written}
    for path, new in {**first, **written}.items():
        name = _quoted(path)
        if isinstance(new, File):
            file_head = f"M {new.mode} inline {name}\ndata {len(new.content)}\n"
            parts += [os.fsencode(file_head), new.content, b"\n"]
        elif new:
            parts.append(os.fsencode(f"M {new.mode} {new.id} {name}\n"))
        else:
            parts.append(os.fsencode(f"D {name}\n"))
    return b"".join(parts)


def _quoted(path: str) -> str:
    """Quotes a path for `git fast-import`."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'

"""The tool's one ref, `REF`, which records the state in which patches/ and the branch last agreed.

`REF` names a commit.  The tree of this commit has patches/ and upstream.toml.  The parent of this
commit is the last commit that `apply` makes of these files.  The tool needs the ref only if
patches/ and branch k2-mps disagree; then the ref is their merge base.  If a file of patches/ is the
same as in the ref, branch k2-mps has all of the file's content.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

from k2mps.core import objects
from k2mps.core.objects import Entry, File, importable
from k2mps.core.project import Project
from k2mps.series import patch_folder
from k2mps.series.patch_text import FROM
from k2mps.stack.checkout import Checkout

REF = "refs/k2mps/applied"
_CONFIG = "upstream.toml"


class Applied(NamedTuple):
    """The contents of the ref."""

    id: str  # the commit that the ref names
    tip: str  # its parent: the last commit of the applied series
    files: Mapping[str, Entry]  # patches/ and upstream.toml, by path in the project


def read(checkout: Checkout) -> Applied | None:
    """Reads the ref; returns None if the series was never applied in this checkout."""
    line = checkout.git.text("for-each-ref", "--format=%(objectname) %(parent)", REF)
    id_, _, tip = line.partition(" ")
    return Applied(id_, tip, checkout.objects.entries(id_)) if tip else None


def files(project: Project) -> dict[str, File]:
    """Reads patches/ and upstream.toml; returns the files by path in the project.

    A symbolic link counts as a file whose content is the link's target.
    """
    paths = [f"patches/{path}" for path in patch_folder.paths_of(project.patches)]
    contents = {}
    for path in (_CONFIG, *paths):
        target = os.path.join(project.root, path)
        if os.path.islink(target):
            contents[path] = File(os.fsencode(os.readlink(target)))
        elif os.path.isfile(target):
            contents[path] = objects.read(target)
    return contents


def entries(contents: Mapping[str, File]) -> dict[str, Entry]:
    """Returns the tree entries (mode and blob id) for the files `contents`."""
    return {path: file.entry for path, file in contents.items()}


def series_id(checkout: Checkout) -> str:
    """Returns the id that git gives to the tree of patches/, as it was applied."""
    return checkout.git.text("rev-parse", f"{REF}:patches")


def differing(first: Mapping[str, object], second: Mapping[str, object]) -> list[str]:
    """Returns the paths at which two collections of files differ."""
    paths = first.keys() | second.keys()
    return sorted(path for path in paths if first.get(path) != second.get(path))


def commit(checkout: Checkout, old: Applied | None, contents: Mapping[str, File], tip: str) -> str:
    """Makes a commit for the ref; the caller must move the ref to the commit.

    Args:
      old: the contents of the ref, whose blobs the repository has.
      contents: patches/ and upstream.toml.
      tip: the last commit of the series.
    """
    who = f"{FROM} 0 +0000"
    stored = old.files if old else {}
    new = {
        path: file.entry if file.entry == stored.get(path) else file
        for path, file in contents.items()
    }
    # The empty path stands for the tree of the parent, which is removed.
    described = importable(tip, {"": None, **new}, "", who, who)
    return checkout.objects.import_commits([described])

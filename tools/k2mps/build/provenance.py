"""The origin of a build of k2: its patches and tools, and whether it was edited.

A build tree holds this as lib/k2mps.json, beside the library `_k2`, and a
wheel in its .dist-info; `k2.mps.build_info()` reads either.
"""

import json
from collections.abc import Mapping

from k2mps.core.git import Git
from k2mps.core.pins import sha256
from k2mps.core.project import Project

FILE = "k2mps.json"
NATIVE = "native"


def as_bytes(origin: Mapping[str, object]) -> bytes:
    return (json.dumps(origin, indent=2, sort_keys=True) + "\n").encode()


def series_hash(lock: Mapping[str, str]) -> str:
    """One SHA-256 for all patches and new files, by the lock's own ones."""
    return sha256(json.dumps(dict(lock), sort_keys=True).encode())


def edits(project: Project) -> list[str] | None:
    """The files of the clone of k2-mps that differ from its commit, or that
    git does not know; None where it is no git clone."""
    if not (project.root / ".git").exists():
        return None
    listing = Git(project.root).text(
        "status", "--porcelain", "--untracked-files=normal", work_tree=True
    )
    return [line[3:] for line in listing.splitlines()]

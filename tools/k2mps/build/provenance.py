"""The origin of a build of k2: its patches and tools, and whether it was edited.

The file is lib/k2mps.json in a build tree, and in .dist-info in a wheel; `k2.mps.build_info()`
reads either.
"""

import json
from collections.abc import Mapping

from k2mps.core.git import Git
from k2mps.core.project import Project

FILE = "k2mps.json"
NATIVE = "native"


def as_bytes(origin: Mapping[str, object]) -> bytes:
    return (json.dumps(origin, indent=2, sort_keys=True) + "\n").encode()


def edits(project: Project) -> list[str] | None:
    """The edited and untracked files of the clone of k2-mps; None where it is no git clone."""
    if not (project.root / ".git").exists():
        return None
    command = ("status", "--porcelain", "--untracked-files=normal")
    return [line[3:] for line in Git(project.root).text(*command, work_tree=True).splitlines()]

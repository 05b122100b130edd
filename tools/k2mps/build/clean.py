"""Deleting what the tool has made, without losing anybody's work."""

import shutil
from pathlib import Path

from k2mps.core.project import Project


def clean(project: Project) -> list[Path]:
    """Deletes all under build/ but git's clones and worktrees, which may hold work."""
    found = sorted(project.build_root.iterdir()) if project.build_root.is_dir() else []
    doomed = [path for path in found if not (path / ".git").exists()]
    for path in doomed:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return doomed

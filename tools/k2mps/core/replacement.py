"""Writing a file by a temporary name and a rename: after a kill, it is the old one or the new."""

import os
from pathlib import Path

from k2mps.core.objects import File

# The temporary name of a file in patches/, which git ignores and `lint` does not see.
DRAFT = ".k2mps-draft"


def rewrite(path: Path, text: str) -> None:
    """Writes a text."""
    replace(path, File(text.encode("utf-8")), path.with_name(f"{path.name}.draft"))


def replace(path: Path, file: File, draft: Path) -> None:
    """Writes a file, by the temporary name `draft` on the same file system."""
    try:
        draft.write_bytes(file.content)
        mode = draft.stat().st_mode
        draft.chmod(mode | 0o111 if file.executable else mode & ~0o111)
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise

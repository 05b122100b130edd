"""Writes a file under a temporary name, and renames it.

So after a kill the file has either its old or its new contents.
"""

import os
from pathlib import Path

from k2mps.core.objects import File

# The temporary name of a file in patches/.  git and `k2mps lint` ignore files of this name.
DRAFT = ".k2mps-draft"


def rewrite(path: Path, text: str) -> None:
    """Replaces the contents of a file by a text, in UTF-8."""
    replace(path, File(text.encode("utf-8")), path.with_name(f"{path.name}.draft"))


def replace(path: Path, file: File, draft: Path) -> None:
    """Replaces a file.

    Args:
      draft: the temporary path, which must be on the same file system.
    """
    try:
        draft.write_bytes(file.content)
        mode = draft.stat().st_mode
        draft.chmod(mode | 0o111 if file.executable else mode & ~0o111)
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise

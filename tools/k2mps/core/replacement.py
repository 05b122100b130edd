"""Writes a file under a temporary name, and renames it.

So after a kill the file has either its old or its new contents.
"""

import os
from pathlib import Path

from k2mps.core.objects import File

# The beginning of a temporary name.  git and `k2mps lint` ignore files of such names.
_DRAFT = ".k2mps-draft-"


def rewrite(path: Path, text: str) -> None:
    """Replaces the contents of a file by a text, in UTF-8."""
    replace(path, File(text.encode("utf-8")), path.parent)


def replace(path: Path, file: File, folder: Path) -> None:
    """Replaces a file.

    Args:
      folder: the folder of the temporary file, which must be on the same file system.
    """
    draft = folder / f"{_DRAFT}{os.urandom(8).hex()}"
    # The draft is always a new file, never a file or a link that someone has put there.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(draft, flags, 0o777 if file.executable else 0o666)
    try:
        with open(descriptor, "wb") as written:
            written.write(file.content)
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise

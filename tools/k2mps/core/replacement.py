"""Writes a file or a folder under a temporary name, and renames it.

So after a kill the file has either its old or its new contents, and a folder is complete or absent.
A killed run leaves the temporary file or folder.  The next run says so, but does not delete it.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from k2mps.core.git import quoted
from k2mps.core.objects import File
from k2mps.core.progress import Reporter

# The beginning of a temporary file's name.  git and `k2mps lint` ignore files of such names.
_DRAFT = ".k2mps-draft-"

# The random end of a temporary name.  A name such as k2.partial-old is the user's.
_RANDOM = "[0-9a-f]" * 16


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


@contextlib.contextmanager
def new_folder(folder: Path, reporter: Reporter) -> Iterator[Path]:
    """Yields an empty folder, which gets the name `folder` at the end of the context.

    If an error leaves the context, the folder is deleted.
    """
    warn_of_kills(reporter, folder.parent, f"{folder.name}.partial-{_RANDOM}")
    partial = folder.with_name(f"{folder.name}.partial-{os.urandom(8).hex()}")
    partial.mkdir(parents=True)
    try:
        yield partial
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def warn_of_kills(reporter: Reporter, folder: Path, pattern: str = f"{_DRAFT}{_RANDOM}") -> None:
    """Warns of the temporary files in a folder that killed runs have left."""
    paths = sorted(folder.glob(pattern))
    if paths:
        reporter.warn(
            "a killed run has left temporary files; if no other k2mps is running, delete them:"
            f" rm -rf {' '.join(map(quoted, paths))}"
        )

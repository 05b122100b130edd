"""Reading a wheel: its files and its metadata."""

import email
import email.message
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from k2mps.build import provenance
from k2mps.core import errors


class WheelFile:
    """A wheel of k2 that was read.

    Attributes:
      entries, files: the archive's entries and contents, by path in the archive, in its order.

    Raises:
      CheckFailedError: the file is no archive.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                self.entries = {entry.filename: entry for entry in archive.infolist()}
                self.files = {name: archive.read(name) for name in self.entries}
        except (zipfile.BadZipFile, OSError) as error:
            raise refusal(path, "a wheel", f"not a zip file that can be read: {error}") from None

    @property
    def info(self) -> str:
        """The path of .dist-info in the archive; empty where there is none."""
        found = (name for name in self.files if name.endswith(".dist-info/WHEEL"))
        return next(found, "").rpartition("/")[0]

    @property
    def metadata(self) -> email.message.Message:
        return email.message_from_bytes(self._of_info("METADATA"))

    @property
    def origin(self) -> Mapping[str, Any]:
        """The origin of the build, see provenance.py."""
        try:
            return dict(json.loads(self._of_info(provenance.FILE)))
        except (TypeError, ValueError) as error:
            raise errors.CheckFailedError(
                f"{self.path.name} does not name its origin",
                why=f"{provenance.FILE}: {error}",
                next_command="k2mps wheel makes one that does",
            ) from None

    def _of_info(self, name: str) -> bytes:
        for path, content in self.files.items():
            if path.endswith(f".dist-info/{name}"):
                return content
        raise refusal(self.path, "a wheel of k2-mps", f"it has no .dist-info/{name}")


def refusal(wheel: Path, what: str, why: str) -> errors.CheckFailedError:
    """The error about a file that is not a wheel, or not one of k2-mps."""
    return errors.CheckFailedError(
        f"{wheel.name} is not {what}", why=why, next_command="ls build/wheels"
    )

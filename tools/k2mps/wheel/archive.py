"""Reading a wheel: its files and its metadata.

A wheel may be damaged or hostile: reading one takes bounded time and memory, and its texts reach
the terminal only through `shown`.
"""

import email
import email.message
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from k2mps.build import provenance
from k2mps.core import errors

# The most that is read.  A wheel of k2 has 2 to 5 MB, twice as many unpacked, in some 60 files.
_ARCHIVE_BYTES = 16 << 20
_BYTES = 64 << 20
_FILES = 1000


class WheelFile:
    """A wheel of k2 that was read.

    Attributes:
      entries, files: the archive's entries and contents, by path in the archive, in its order.

    Raises:
      CheckFailedError: the file is no archive, a damaged one, or larger than any wheel of k2.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            if path.stat().st_size > _ARCHIVE_BYTES:
                raise ValueError(f"it has more than {_ARCHIVE_BYTES >> 20} MiB")
            with zipfile.ZipFile(path) as archive:
                _check(archive.infolist())
                self.entries = {entry.filename: entry for entry in archive.infolist()}
                self.files = {name: archive.read(name) for name in self.entries}
                for name, content in self.files.items():
                    if len(content) != self.entries[name].file_size:
                        raise ValueError(f"{name} has another size than the archive says")
        except Exception as error:  # zipfile does not list what it raises for a damaged archive
            why = f"it cannot be read: {error}"
            raise refusal(path, "a wheel", why) from None

    @property
    def info(self) -> str:
        """The path of .dist-info in the archive; empty where there is none."""
        found = (name for name in self.files if name.endswith(".dist-info/WHEEL"))
        return next(found, "").rpartition("/")[0]

    @property
    def metadata(self) -> email.message.Message:
        return email.message_from_bytes(self._of_info("METADATA"))

    def told(self, name: str) -> str:
        """A line of METADATA."""
        value = self.metadata[name]
        if value is None:
            raise refusal(self.path, "a wheel of k2-mps", f"its METADATA has no {name}")
        return str(value)

    @property
    def requirements(self) -> list[Requirement]:
        """The packages that pip installs with the wheel."""
        lines = self.metadata.get_all("Requires-Dist", [])
        try:
            return [Requirement(str(line)) for line in lines]
        except InvalidRequirement as error:
            why = f"its METADATA requires what is no package: {error}"
            raise refusal(self.path, "a wheel", why) from None

    @property
    def origin(self) -> Mapping[str, Any]:
        """The origin of the build, see provenance.py, as the wheel tells it: any JSON."""
        try:
            found = json.loads(self._of_info(provenance.FILE))
            if not isinstance(found, dict):
                raise TypeError("it is not a table")
            return found
        except (RecursionError, TypeError, ValueError) as error:
            raise errors.CheckFailedError(
                f"{shown(self.path.name)} does not name its origin",
                why=shown(f"{provenance.FILE}: {error}"),
                next_command="k2mps wheel makes one that does",
            ) from None

    def fact(self, *keys: str) -> str:
        """A text of the origin, by its place in the tables there."""
        found: Any = self.origin
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        if not isinstance(found, str):
            raise self._lacks(*keys)
        return found

    def facts(self, key: str) -> dict[str, str]:
        """A table of texts of the origin."""
        found = self.origin.get(key)
        if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
            raise self._lacks(key)
        return found

    def _lacks(self, *keys: str) -> errors.CheckFailedError:
        why = f"its {provenance.FILE} does not tell {'.'.join(keys)}"
        return refusal(self.path, "a wheel of k2-mps", why)

    def _of_info(self, name: str) -> bytes:
        for path, content in self.files.items():
            if path.endswith(f".dist-info/{name}"):
                return content
        raise refusal(self.path, "a wheel of k2-mps", f"it has no .dist-info/{name}")


def _check(entries: Sequence[zipfile.ZipInfo]) -> None:
    """Refuses an archive that is larger than any wheel of k2, before it is unpacked."""
    if len(entries) > _FILES:
        raise ValueError(f"it has {len(entries)} files, more than {_FILES}")
    if sum(entry.file_size for entry in entries) > _BYTES:
        raise ValueError(f"its files have more than {_BYTES >> 20} MiB")
    names = set()
    for entry in entries:
        if entry.filename in names:
            raise ValueError(f"{entry.filename} is twice in it")
        names.add(entry.filename)
        # Other methods can ask for gigabytes of memory.
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{entry.filename} is compressed by method {entry.compress_type}")


def refusal(wheel: Path, what: str, why: str) -> errors.CheckFailedError:
    """The error about a file that is not a wheel, or not one of k2-mps."""
    return errors.CheckFailedError(
        f"{shown(wheel.name)} is not {what}", why=shown(why), next_command="ls build/wheels"
    )


def shown(text: str) -> str:
    """A text of a wheel for the terminal: control characters, and those that change the direction
    of writing, as Python writes them in a literal."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)

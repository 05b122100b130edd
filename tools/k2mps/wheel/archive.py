"""Reading a wheel: its name, its files and its metadata.

A wheel may be damaged or hostile: reading one takes bounded time and memory.
"""

import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.metadata import ExceptionGroup, Metadata
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from k2mps.build import provenance
from k2mps.core import bounded, errors, pins

# The most that is read.  A wheel of k2 has 2 to 5 MB, twice as many unpacked, in some 60 files.
_ARCHIVE_BYTES = 16 << 20
_BYTES = 64 << 20
_FILES = 1000
# The most that a file of .dist-info may have: those of a wheel of k2 have some 3 kB.
_INFO_BYTES = 64 << 10

# The local part of a version, see contents.describe: torch, and whether anything was edited.
_LOCAL = re.compile(r"(?:mps\.)?cpu\.torch(\d+(?:\.\d+)*)(\.dirty)?")

# The texts and tables of texts that k2mps.json has in a wheel, see provenance.py.
_TEXTS = ("built", "compiler", "device", "patched_tree", "series", "torch")
_TABLES = ("headers", "kernels", "upstream")


class WheelFile:
    """A wheel of k2 that was read.

    Attributes:
      version, tag, torch, dirty: as the name tells them; torch is None where the name has none.
      sha256: the digest of the file's bytes.
      entries, files: the archive's entries and contents, by path in the archive, in its order.
      info: the path of .dist-info in the archive; empty where there is none.

    Raises:
      CheckFailedError: the file is no archive, a damaged one, or larger than any wheel of k2; or
        its name is not that of a wheel of k2.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            path.name.encode()  # A page of wheels cannot have a name that is not UTF-8.
            _, self.version, _, tags = parse_wheel_filename(path.name)
            [self.tag] = tags
        except (InvalidWheelFilename, ValueError) as error:
            raise refusal(path, f"its name: {error}") from None
        match = _LOCAL.fullmatch(self.version.local or "")
        self.torch, self.dirty = match[1] if match else None, bool(match and match[2])
        try:
            content = bounded.read(path, _ARCHIVE_BYTES)
            self.sha256 = pins.sha256(content)
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                _check(archive.infolist())
                self.entries = {entry.filename: entry for entry in archive.infolist()}
                self.files = {name: archive.read(name) for name in self.entries}
                for name, content in self.files.items():
                    if len(content) != self.entries[name].file_size:
                        raise ValueError(f"{name} has another size than the archive says")
        except Exception as error:  # zipfile does not list what it raises for a damaged archive
            raise refusal(path, f"it cannot be read: {error}") from None
        found = (name for name in self.files if name.endswith(".dist-info/WHEEL"))
        self.info = next(found, "").rpartition("/")[0]

    @property
    def metadata(self) -> Metadata:
        content = self.of_info("METADATA")
        try:
            return Metadata.from_email(content)
        except ExceptionGroup as error:
            why = "; ".join(map(str, error.exceptions))
            raise refusal(self.path, f"METADATA: {why}") from None
        # Its parsers do not list what they raise for an expression that is nested deeply.
        except Exception as error:
            raise refusal(self.path, f"METADATA: {type(error).__name__}") from None

    @property
    def origin(self) -> Mapping[str, Any]:
        """The origin of the build, see provenance.py, with all its texts and tables of texts."""
        content = self.of_info(provenance.FILE)
        try:
            found = json.loads(content)
            texts = [found[name] for name in _TEXTS]
            texts += [found["upstream"][name] for name in ("commit", "url")]
            for name in _TABLES:
                texts += found[name].values()
            if not all(isinstance(text, str) for text in texts):
                raise TypeError("a value is not a text")
            # JSON can have half of a surrogate pair, which no file can have.
            json.dumps(found, ensure_ascii=False).encode()
            return found
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise refusal(self.path, f"{provenance.FILE}: {error!r}") from None

    def of_info(self, name: str) -> bytes:
        """The content of a file of .dist-info, which must be there and be small."""
        content = self.files.get(f"{self.info}/{name}")
        if content is None:
            raise refusal(self.path, f"it has no .dist-info/{name}")
        if len(content) > _INFO_BYTES:
            raise refusal(self.path, f"{name} has more than {_INFO_BYTES >> 10} kB")
        return content


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


def refusal(wheel: Path, why: str) -> errors.CheckFailedError:
    """The error about a file that is not a wheel of k2-mps."""
    return errors.CheckFailedError(
        f"{wheel.name} is not a wheel of k2-mps", why=why, next_command="ls build/wheels"
    )

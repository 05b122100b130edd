"""Reads a wheel: its name, its files and its metadata.

A wheel may be damaged, or made by an attacker.  So the time and memory for reading are bounded.
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

# Limits for the wheel's size, the sum of the unpacked files' sizes, and the number of files.  A
# wheel of k2 has 2 to 5 MB, unpacked twice as much, and some 60 files.
_ARCHIVE_BYTES = 16 << 20
_BYTES = 64 << 20
_FILES = 1000
# The limit for the size of a file of .dist-info.  In a wheel of k2, these files have some 3 kB.
_INFO_BYTES = 64 << 10

# The local part of a version, see contents.describe: the version of torch, and ".dirty" if the
# build had edits.
_LOCAL = re.compile(r"(?:mps\.)?cpu\.torch(\d+(?:\.\d+)*)(\.dirty)?")

# The names in k2mps.json whose values are texts, or tables of texts; see provenance.py.
_TEXTS = ("built", "compiler", "device", "patched_tree", "series", "torch")
_TABLES = ("headers", "kernels", "upstream")


class WheelFile:
    """The contents of a wheel of k2.

    Attributes:
      version, tag: from the file's name.
      torch: the version of torch in the file's name; None if the name has none.
      dirty: whether the file's name says that the build had edits.
      sha256: the digest of the file's bytes.
      entries, files: the archive's entries, and the files' contents; both by path in the archive,
        in the archive's order.
      info: the path of .dist-info in the archive; empty if there is none.

    Raises:
      CheckFailedError: the file is not an archive, is damaged, or is larger than any wheel of k2;
        or its name is not that of a wheel.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            # mps.html cannot contain a name that is not UTF-8.  encode() refuses such a name.
            path.name.encode()
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
        except Exception as error:  # zipfile's exceptions for damaged archives are not documented.
            raise refusal(path, f"it cannot be read: {error}") from None
        names = (name for name in self.files if name.endswith(".dist-info/WHEEL"))
        self.info = next(names, "").rpartition("/")[0]

    @property
    def metadata(self) -> Metadata:
        content = self.of_info("METADATA")
        try:
            return Metadata.from_email(content)
        except ExceptionGroup as error:
            why = "; ".join(map(str, error.exceptions))
            raise refusal(self.path, f"METADATA: {why}") from None
        # The parsers' exceptions for deeply nested expressions are not documented.
        except Exception as error:
            raise refusal(self.path, f"METADATA: {type(error).__name__}") from None

    @property
    def origin(self) -> Mapping[str, Any]:
        """The origin of the build, see provenance.py, with all of `_TEXTS` and `_TABLES`.

        Raises:
          CheckFailedError: k2mps.json is missing or damaged.
        """
        content = self.of_info(provenance.FILE)
        try:
            origin = json.loads(content)
            texts = [origin[name] for name in _TEXTS]
            texts += [origin["upstream"][name] for name in ("commit", "url")]
            for name in _TABLES:
                texts += origin[name].values()
            if not all(isinstance(text, str) for text in texts):
                raise TypeError("a value is not a text")
            # This fails for half of a surrogate pair, which JSON can contain and UTF-8 cannot.
            json.dumps(origin, ensure_ascii=False).encode()
            return origin
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise refusal(self.path, f"{provenance.FILE}: {error!r}") from None

    def of_info(self, name: str) -> bytes:
        """Returns the content of a file of .dist-info.

        Raises:
          CheckFailedError: the file is missing or too large.
        """
        content = self.files.get(f"{self.info}/{name}")
        if content is None:
            raise refusal(self.path, f"it has no .dist-info/{name}")
        if len(content) > _INFO_BYTES:
            raise refusal(self.path, f"{name} has more than {_INFO_BYTES >> 10} kB")
        return content


def _check(entries: Sequence[zipfile.ZipInfo]) -> None:
    """Raises ValueError, before an archive is unpacked, if it cannot be a wheel of k2.

    Such an archive is too large, has a file twice, or uses an unusual compression.
    """
    if len(entries) > _FILES:
        raise ValueError(f"it has {len(entries)} files, more than {_FILES}")
    if sum(entry.file_size for entry in entries) > _BYTES:
        raise ValueError(f"its files have more than {_BYTES >> 20} MiB")
    names = set()
    for entry in entries:
        if entry.filename in names:
            raise ValueError(f"it has {entry.filename} twice")
        names.add(entry.filename)
        # Unpacking with another method of compression can need gigabytes of memory.
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{entry.filename} is compressed by method {entry.compress_type}")


def refusal(wheel: Path, why: str) -> errors.CheckFailedError:
    """Returns the error for a file that is not a wheel of k2-mps."""
    return errors.CheckFailedError(
        f"{wheel.name} is not a wheel of k2-mps", why=why, next_command="ls build/wheels"
    )

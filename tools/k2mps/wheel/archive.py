"""Reads a wheel: its name, its files and its metadata."""

import io
import json
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from k2mps.build import provenance
from k2mps.core import errors, pins

# The local part of a version, see contents.describe, has the version of torch.
_LOCAL = re.compile(r"(?:mps\.)?cpu\.torch(\d+(?:\.\d+)*)(?:\.dirty)?")

# The names in k2mps.json, see provenance.py.
_ORIGIN = {"built", "compiler", "device", "headers", "kernels", "patched_tree", "series", "torch"}
_ORIGIN |= {"upstream"}


class WheelFile:
    """The contents of a wheel of k2.

    Attributes:
      version, tag: from the file's name.
      torch: the version of torch in the file's name; None if the name has none.
      sha256: the digest of the file's bytes.
      files: the files' contents, by path in the archive, in the archive's order.
      info: the path of .dist-info in the archive; empty if there is none.

    Raises:
      CheckFailedError: the file is not an archive or is damaged, or its name is not that of a
        wheel.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            _, self.version, _, tags = parse_wheel_filename(path.name)
            [self.tag] = tags
        except (InvalidWheelFilename, ValueError) as error:
            raise refusal(path, f"its name: {error}") from None
        match = _LOCAL.fullmatch(self.version.local or "")
        self.torch = match[1] if match else None
        try:
            content = path.read_bytes()
            self.sha256 = pins.sha256(content)
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                self.files = {name: archive.read(name) for name in archive.namelist()}
        except (OSError, zipfile.BadZipFile, zlib.error) as error:
            raise refusal(path, f"it cannot be read: {error}") from None
        names = (name for name in self.files if name.endswith(".dist-info/WHEEL"))
        self.info = next(names, "").rpartition("/")[0]

    @property
    def origin(self) -> Mapping[str, Any]:
        """The origin of the build, see provenance.py.

        Raises:
          CheckFailedError: k2mps.json is missing, or is not the origin of a build.
        """
        try:
            name = f"{self.info}/{provenance.FILE}"
            if name not in self.files:
                raise ValueError("missing")
            origin = json.loads(self.files[name])
            missing = _ORIGIN.difference(origin)
            if missing:
                raise ValueError(f"it has no {', '.join(sorted(missing))}")
            return origin
        except (TypeError, ValueError) as error:
            raise refusal(self.path, f"{provenance.FILE}: {error}") from None


def refusal(wheel: Path, why: str) -> errors.CheckFailedError:
    """Returns the error for a file that is not a wheel of k2-mps."""
    return errors.CheckFailedError(
        f"{wheel.name} is not a wheel of k2-mps", why=why, next_command="ls build/wheels"
    )

"""A recording of a program's work on the device, see README.md."""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

VERSION = 1
# The content of each byte of a buffer before its first write.
POISON = 0xC7
# The kinds of commands that can be repeated.  For other commands the recording has the results.
REPEATED = ("dispatch", "copy")


class Recording:
    """A recording, read from its folder or from a prepared folder.

    Attributes:
      folder: the folder.
      programs: the list `programs` of manifest.json.
      commands: the list `commands` of manifest.json.
      sizes: {id of a buffer: its size in bytes}.
      contents: the bytes of contents.bin, an array of uint8.
      times_only: whether the folder lacks results and large inputs.
    Raises:
      ValueError: the folder has no recording, or a recording of another version.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        try:
            manifest = json.loads((folder / "manifest.json").read_text())
        except FileNotFoundError:
            raise ValueError(
                f"{folder} holds no recording: it has no manifest.json, which a program "
                "writes when its recording ends"
            ) from None
        if manifest["version"] != VERSION:
            raise ValueError(
                f"{folder} is of version {manifest['version']}; this program reads only version "
                f"{VERSION}"
            )
        self.programs: list[dict] = manifest["programs"]
        self.commands: list[dict] = manifest["commands"]
        self.sizes: dict[int, int] = {b["id"]: b["size"] for b in manifest["buffers"]}
        self.times_only = manifest.get("times_only", False)
        packed = folder / "contents.packed"
        if packed.exists():
            self.contents = np.frombuffer(zlib.decompress(packed.read_bytes()), np.uint8)
        else:
            self.contents = np.fromfile(folder / "contents.bin", np.uint8)

    def changes(self, command: dict, when: str) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yields the id of the buffer, the offset in bytes and the new bytes of each change.

        If the folder lacks the contents of an input, the array has random float32 numbers in
        [0.5, 1.5) instead.  Such numbers are valid logits and valid sums of exponentials.

        Args:
          when: the list of changes to read, "before" or "after".
        """
        for buffer, offset, size, begin in command.get(when, ()):
            if begin is None:
                floats = np.random.default_rng(buffer).random(size // 4, np.float32) + 0.5
                yield buffer, offset, floats.astype(np.float32).view(np.uint8)
            else:
                yield buffer, offset, self.contents[begin : begin + size]

    def poisoned(self) -> dict[int, np.ndarray]:
        """Returns the contents of all buffers before their first write, by id."""
        return {id_: np.full(size, POISON, np.uint8) for id_, size in self.sizes.items()}


def uses(command: dict) -> list[int]:
    """Returns the ids of the buffers that a command uses."""
    return [use["buffer"] for use in command["uses"]]


def written(command: dict) -> list[int]:
    """Returns the ids of the buffers that a command may write."""
    return sorted({use["buffer"] for use in command["uses"] if use["writes"]})

"""Lets a Player run commands on the emulated device."""

import numpy as np

from ..msl.native import Metal
from .recording import Recording


class Emulated:
    """The emulated device as a machine: it has the methods that player.py lists.

    A buffer is an array of uint8.

    Args:
      recording: the recording to replay.
    Raises:
      msl.native.Fatal: a dispatch broke a rule of Metal.  In a program that uses torch,
        the same mistake ends the process.
    """

    def __init__(self, recording: Recording):
        self._recording = recording
        self._metal = Metal()
        self._libraries = {}  # {number of a program: its Library}

    def allocate(self, size: int) -> np.ndarray:
        return np.empty(size, np.uint8)

    def write(self, buffer: np.ndarray, offset: int, array: np.ndarray) -> None:
        buffer[offset : offset + len(array)] = array

    def read(self, buffer: np.ndarray, size: int) -> np.ndarray:
        return buffer[:size].copy()

    def copy(
        self, source: np.ndarray, begin: int, destination: np.ndarray, to: int, size: int
    ) -> None:
        destination[to : to + size] = source[begin : begin + size]

    def dispatch(self, command: dict, buffers: dict[int, np.ndarray]) -> None:
        given = {}
        for argument in command["arguments"]:
            if "bytes" in argument:
                content = np.frombuffer(bytes.fromhex(argument["bytes"]), np.uint8).copy()
            else:
                use = command["uses"][argument["use"]]
                content = buffers[use["buffer"]][argument["offset"] :]
            given[argument["index"]] = content
        self._library(command["program"]).run(
            command["kernel"],
            given,
            command["grid"],
            command["threadgroup"],
            {int(i): n for i, n in command["threadgroup_bytes"].items()},
        )

    def _library(self, number):
        if number not in self._libraries:
            program = self._recording.programs[number]
            self._libraries[number] = self._metal.compile(
                (self._recording.folder / program["file"]).read_text(),
                fast_math=program["fast_math"],
            )
        return self._libraries[number]

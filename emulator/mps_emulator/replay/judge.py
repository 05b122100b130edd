"""Compares the contents of buffers with the recorded contents."""

import fnmatch
from collections.abc import Sequence

import numpy as np

DTYPES = {
    "float": np.float32,
    "half": np.float16,
    "bfloat": np.uint16,
    "bool": np.bool_,
    "char": np.int8,
    "uchar": np.uint8,
    "short": np.int16,
    "ushort": np.uint16,
    "int": np.int32,
    "uint": np.uint32,
    "long": np.int64,
    "ulong": np.uint64,
}
_FLOATS = ("float", "half", "bfloat")


class Difference:
    """How the found contents of a buffer differ from the expected contents.

    Args:
      found, expected: two arrays of uint8, of the same size but with different contents.
      numbers: the type of the numbers in the buffer, a key of DTYPES, or None.
      tolerance: a `number` of Judge's `tolerances`, or None if no difference is allowed.
    Attributes:
      elements: how many numbers differ.
      total: how many numbers the buffer has.
      first: the index of the first number that differs.
      largest: the largest difference between a found and an expected float.  NaN if a number is a
        NaN in only one of the two contents.  None if the numbers are not floats.
      allowed: whether all differences are within the tolerance.
    """

    def __init__(
        self, found: np.ndarray, expected: np.ndarray, numbers: str | None, tolerance: float | None
    ):
        dtype = DTYPES.get(numbers, np.uint32)
        if len(expected) % np.dtype(dtype).itemsize:
            numbers, dtype = None, np.uint8
        found, expected = found.view(dtype), expected.view(dtype)
        integer = f"u{np.dtype(dtype).itemsize}"
        where = np.nonzero(found.view(integer) != expected.view(integer))[0]
        self.elements, self.total = len(where), len(expected)
        self.first = int(where[0])
        self.largest = None
        self.allowed = False
        if numbers not in _FLOATS:
            return
        a, b = (_to_float64(x[where], numbers) for x in (found, expected))
        with np.errstate(invalid="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            error = np.where(same, 0, np.abs(a - b))
            self.largest = float(error.max())
            if tolerance is not None:
                most = tolerance * np.maximum(1, np.abs(b))
                near = np.isfinite(error) & (error <= most)
                self.allowed = bool((same | near).all())

    def __str__(self) -> str:
        by = ""
        if self.largest is not None:
            by = f" by up to {self.largest:.2g}"
        allowed = " (allowed)" if self.allowed else ""
        return f"{self.elements} of {self.total} differ{by}, first [{self.first}]{allowed}"


def _to_float64(array, numbers):
    if numbers == "bfloat":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


class Judge:
    """Compares buffers with their expected contents.

    Args:
      kernels: for each program {name: msl.nvptx.description() of the kernel}.
      tolerances: pairs of a pattern and a number.  The first pattern that matches a kernel's name
        gives the kernel's tolerance.  A float that the kernel writes may differ from the expected
        value by `number` * max(1, |expected value|).  The results of a kernel that no pattern
        matches must be bit for bit identical.
    """

    def __init__(
        self, kernels: Sequence[dict[str, dict]], tolerances: Sequence[tuple[str, float]] = ()
    ):
        self._kernels = kernels
        self._tolerances = tolerances

    def differences(
        self,
        expected: dict[int, np.ndarray],
        found: dict[int, np.ndarray],
        writers: dict[int, dict],
    ) -> dict[int, Difference]:
        """Returns the differences of the buffers of `found`, by buffer.

        Args:
          expected: the contents by buffer, for at least the buffers of `found`.
          found: the contents by buffer.
          writers: the command that wrote a buffer, by buffer.  No tolerance applies to a buffer
            that `writers` lacks.
        """
        compared = {
            buffer: self.difference(writers.get(buffer), buffer, content, expected[buffer])
            for buffer, content in found.items()
        }
        return {buffer: result for buffer, result in compared.items() if result is not None}

    def difference(
        self, command: dict | None, buffer: int, found: np.ndarray, expected: np.ndarray
    ) -> Difference | None:
        """Returns the difference of a buffer, or None if its contents are as expected.

        Args:
          command: the command that wrote the buffer, or None.
        """
        if np.array_equal(found, expected):
            return None
        numbers = tolerance = None
        if command is not None and command["kind"] == "dispatch":
            numbers = self._numbers(command, buffer)
            tolerance = next(
                (
                    value
                    for pattern, value in self._tolerances
                    if fnmatch.fnmatchcase(command["kernel"], pattern)
                ),
                None,
            )
        return Difference(found, expected, numbers, tolerance)

    def _numbers(self, command, buffer):
        kernel = self._kernels[command["program"]][command["kernel"]]
        for argument in command["arguments"]:
            if "use" not in argument:
                continue
            use = command["uses"][argument["use"]]
            if use["buffer"] == buffer and use["writes"]:
                return kernel["numbers"].get(str(argument["index"]))
        return None

"""The parts of a check: buffers and launches."""

import dataclasses
from typing import NamedTuple

import numpy as np

from k2_mps_tests.kernels import runner

# The value of output elements before the launch, and of unwritten elements after the launch.
UNTOUCHED = 77.0
# Twice the largest relative error of one rounding to float32.
EPS = float(np.finfo(np.float32).eps)


class Buffer(NamedTuple):
    """An argument of a kernel.

    Attributes:
      content: the contents before the launch, a non-empty array of the kernel's
        element type; numpy.uint16 for bfloat, which NumPy lacks.  For a struct of the
        kernel's parameters, the array has the struct's fields.
      expected: the contents after the launch, an array of the shape of `content`, of numpy.float32
        for bfloat.  If the last axis of `content` has the floats of a PathSum, `expected` can
        instead have the scores of the sums, without this axis.  If `expected` is None, the launch
        must not change the contents.
      tolerance: by how much each element may differ from `expected`.  The tolerance's shape must
        broadcast to the shape of `expected`.  An element with an infinite tolerance may have any
        value.
    """

    content: np.ndarray
    expected: np.ndarray | None = None
    tolerance: float | np.ndarray = 0.0

    @classmethod
    def scratch(cls, content):
        """Returns a buffer whose final contents do not matter."""
        return cls(content, content, np.inf)

    @classmethod
    def output(cls, expected, tolerance=0.0, dtype=np.float32):
        """Returns a buffer that the kernel writes.  If `expected` is empty, the buffer has one
        element, which must stay UNTOUCHED."""
        expected = np.asarray(expected)
        if expected.size == 0:
            return cls(np.full(1, UNTOUCHED, dtype))
        return cls(np.full(expected.shape, UNTOUCHED, dtype), expected, tolerance)

    @classmethod
    def struct(cls, layout, **fields):
        """Returns an input buffer that has one struct.

        Args:
          layout: the type of the struct, see sources.layout().
          fields: the value of each field.  For a field that is a struct, a record().
        Raises:
          TypeError: a field is missing, or the struct has no field of this name.
        """
        return cls(record(layout, **fields))

    @classmethod
    def path_sums(cls, scores, tolerance, floats):
        """Returns a buffer of PathSums, see path_sums.h, that the kernel writes.

        Different pairs of a significand and an exponent can represent the same sum.  So the check
        compares scores, not the floats of the sums.

        Args:
          scores: the expected scores, float64; NaN for sums that the kernel must not write.
          tolerance: by how much each score may differ.
          floats: the number of floats of a sum, 2 or 3.
        """
        content = np.full((*scores.shape, floats), UNTOUCHED, np.float32)
        expected = np.where(np.isnan(scores), runner.scores_of(content), scores)
        return cls(content, expected, np.where(np.isnan(scores), 0, tolerance))


def record(layout, **fields):
    """Returns a struct as an array of one element; see Buffer.struct()."""
    for names, what in (
        (set(layout.names) - fields.keys(), "needs a value for"),
        (fields.keys() - set(layout.names), "has no field"),
    ):
        if names:
            raise TypeError(f"the struct {what} {', '.join(sorted(names))}")
    struct = np.zeros(1, layout)
    for name, value in fields.items():
        struct[name] = value
    return struct


# A kernel has an instance for each of these numbers, as in FitInstance() of grid.h.  The number is
# the most threads that the instance's threadgroups can have.  The name of the instance ends in this
# number.
INSTANCES = (256, 512, 1024)


def fit_instance(kernel, wanted):
    """Returns (instance, number of threads), as FitInstance() chooses them for `wanted` threads."""
    most = next((n for n in INSTANCES if wanted <= n), INSTANCES[-1])
    return f"{kernel}_{most}", min(most, -(-wanted // 32) * 32)


def ints(values):
    """Returns an input buffer of numpy.int32.  If `values` is empty, the buffer has one zero."""
    values = np.array(values, np.int32)
    return Buffer(values if values.size else np.zeros(1, np.int32))


@dataclasses.dataclass
class Case:
    """One or more launches of a kernel, in threadgroups of one dimension."""

    name: str  # differs from the names of the kernel's other cases
    kernel: str  # the name of the function
    groups: int  # the number of threadgroups
    threads: int  # the number of threads in each threadgroup
    # {number: Buffer}: the arguments of the first launch.  The numbers are members of an
    # enumeration in the kernels' header; sources.enumeration() reads the enumeration.
    buffers: dict
    # The launches after the first one, [(threadgroups, {number: Buffer})].  For numbers that
    # a launch's dict lacks, the launch uses the first launch's buffers.
    more: list = dataclasses.field(default_factory=list)

    def all_buffers(self):
        """Returns the buffers of all launches, {name: Buffer}."""
        every = {_name(number): buffer for number, buffer in self.buffers.items()}
        for launch, (_, others) in enumerate(self.more, 1):
            every |= {_name(number, launch): buffer for number, buffer in others.items()}
        return every

    def launches(self):
        """Returns the launches, [(threadgroups, {number: name in all_buffers()})]."""
        common = {number: _name(number) for number in self.buffers}
        return [(self.groups, common)] + [
            (groups, common | {number: _name(number, launch) for number in others})
            for launch, (groups, others) in enumerate(self.more, 1)
        ]


def _name(number, launch=0):
    """Returns the name of an argument in messages."""
    name = getattr(number, "name", str(number))
    return f"{name} of launch {launch}" if launch else name

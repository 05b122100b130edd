"""The parts of a check: buffers and launches."""

import dataclasses
from typing import NamedTuple

import numpy as np

from k2_mps_tests.kernels import runner

# What the elements of outputs are before the launch.  Where a kernel does not write, they stay.
UNTOUCHED = 77.0


class Buffer(NamedTuple):
    """An argument of a kernel.

    Attributes:
      content: the contents before the launch, a non-empty array of the kernel's
        element type; numpy.uint16 for bfloat, which NumPy lacks.
      expected: the contents after the launch, of the same shape, numpy.float32 for bfloat.  If
        the last axis of `content` is PathSums, `expected` may have their scores, without this
        axis.  None if the launch must not change a bit.
      tolerance: how much each element may differ from `expected`; its shape broadcasts to
        that of `expected`.  An element with an infinite tolerance may have any value.
    """

    content: np.ndarray
    expected: np.ndarray | None = None
    tolerance: float | np.ndarray = 0.0

    @classmethod
    def scratch(cls, content):
        """A buffer whose final contents do not matter."""
        return cls(content, content, np.inf)

    @classmethod
    def output(cls, expected, tolerance=0.0, dtype=np.float32):
        """A buffer that the kernel writes.  If `expected` is empty, the buffer has one element,
        which must stay UNTOUCHED."""
        expected = np.asarray(expected)
        if expected.size == 0:
            return cls(np.full(1, UNTOUCHED, dtype))
        return cls(np.full(expected.shape, UNTOUCHED, dtype), expected, tolerance)

    @classmethod
    def path_sums(cls, scores, tolerance, floats):
        """A buffer of PathSums of path_sums.h that the kernel writes.

        A kernel may store a sum as any significand * 2^exponent, so the scores are compared.

        Args:
          scores: the expected scores, float64; NaN where the kernel must not write.
          floats: the number of floats of a sum.
        """
        content = np.full((*scores.shape, floats), UNTOUCHED, np.float32)
        expected = np.where(np.isnan(scores), runner.scores_of(content), scores)
        return cls(content, expected, np.where(np.isnan(scores), 0, tolerance))


# The instances of a kernel, as in FitInstance() of grid.h.  An instance is named by the most
# threads that a threadgroup may have.
INSTANCES = (256, 512, 1024)


def fit_instance(kernel, wanted):
    """The instance and the number of threads that the host chooses where it wants `wanted`."""
    most = next((n for n in INSTANCES if wanted <= n), INSTANCES[-1])
    return f"{kernel}_{most}", min(most, -(-wanted // 32) * 32)


def ints(values):
    """An input buffer of numpy.int32; an empty array gets one element."""
    values = np.array(values, np.int32)
    return Buffer(values if values.size else np.zeros(1, np.int32))


@dataclasses.dataclass
class Case:
    """One or more launches of a kernel, in threadgroups of one dimension."""

    name: str  # tells the case from other cases of the kernel
    kernel: str  # the name of the function
    groups: int  # the number of threadgroups
    threads: int  # the number of threads in each threadgroup
    # {number: Buffer}: the arguments.  The numbers are members of an enumeration, which
    # sources.enumeration() reads from the header of the kernel's family.
    buffers: dict
    # The launches after the first one, [(threadgroups, {number: Buffer})].  Their buffers replace
    # those of the first launch.
    more: list = dataclasses.field(default_factory=list)

    def all_buffers(self):
        """The buffers of all launches, {name: Buffer}."""
        every = {_name(number): buffer for number, buffer in self.buffers.items()}
        for launch, (_, others) in enumerate(self.more, 1):
            every |= {_name(number, launch): buffer for number, buffer in others.items()}
        return every

    def launches(self):
        """The launches, [(threadgroups, {number: name in all_buffers()})]."""
        common = {number: _name(number) for number in self.buffers}
        return [(self.groups, common)] + [
            (groups, common | {number: _name(number, launch) for number in others})
            for launch, (groups, others) in enumerate(self.more, 1)
        ]


def _name(number, launch=0):
    """The name of an argument in messages."""
    name = getattr(number, "name", str(number))
    return f"{name} of launch {launch}" if launch else name

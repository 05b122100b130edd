"""The parts of a check: buffers and launches."""

import dataclasses

import numpy as np


@dataclasses.dataclass
class Buffer:
    """An argument of a kernel, [[buffer(i)]].

    Attributes:
      content: the contents before the launch, a non-empty array of the kernel's
        element type; numpy.uint16 for bfloat, which NumPy lacks.
      expected: the contents afterwards, of the same shape, numpy.float32 for
        bfloat; None if the launch must not change a bit.
      tolerance: the largest difference of each element from `expected`, of a
        shape that broadcasts to that of `expected`; infinite for any value.
    """

    content: np.ndarray
    expected: np.ndarray | None = None
    tolerance: float | np.ndarray = 0.0

    @classmethod
    def scratch(cls, content):
        """A buffer whose final contents do not matter."""
        return cls(content, content, np.inf)


@dataclasses.dataclass
class Case:
    """One launch, or several of a kernel, in threadgroups of one dimension.

    Attributes:
      name: the difference from other cases of the kernel.
      kernel: the name of the function.
      groups, threads: the number of threadgroups, and of threads in each.
      buffers: the arguments, in the order of their indexes.
      more: further launches in their order, with another last argument:
        [(threadgroups, Buffer)].
    """

    name: str
    kernel: str
    groups: int
    threads: int
    buffers: list
    more: list = dataclasses.field(default_factory=list)

    def all_buffers(self):
        """The buffers, then those of further launches."""
        return self.buffers + [buffer for _, buffer in self.more]

    def launches(self):
        """The launches, [(threadgroups, indexes into all_buffers())]."""
        count = len(self.buffers)
        common = list(range(count - 1))
        return [(self.groups, common + [count - 1])] + [
            (groups, common + [count + i]) for i, (groups, _) in enumerate(self.more)
        ]

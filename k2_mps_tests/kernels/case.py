"""The parts of a check: buffers and launches."""

import dataclasses

import numpy as np


@dataclasses.dataclass
class Buffer:
    """An argument of a kernel, [[buffer(i)]].

    Attributes:
      content: what is in it before the launch, of the kernel's element type;
        numpy.uint16 for bfloat, which NumPy does not have. Not empty.
      expected: what is in it afterwards, of the same shape; None if it has to
        be what it was, bit by bit. Of numpy.float32 for bfloat.
      tolerance: by how much each element may differ from `expected`; where
        it is infinite, any value will do.  Has a shape that broadcasts to
        that of `expected`.
    """

    content: np.ndarray
    expected: np.ndarray | None = None
    tolerance: float | np.ndarray = 0.0

    @classmethod
    def scratch(cls, content):
        """A buffer whose content afterwards does not matter."""
        return cls(content, content, np.inf)


@dataclasses.dataclass
class Case:
    """One launch, or several of a kernel, in threadgroups of one dimension.

    Attributes:
      name: what differs from other cases of the kernel.
      kernel: the function's name.
      groups, threads: threadgroups, and threads of each.
      buffers: the arguments, in the order of their indexes.
      more: further launches, which differ in the last argument, in their
        order: [(threadgroups, Buffer)].
    """

    name: str
    kernel: str
    groups: int
    threads: int
    buffers: list
    more: list = dataclasses.field(default_factory=list)

    def all_buffers(self):
        """The buffers, and those of further launches behind them."""
        return self.buffers + [buffer for _, buffer in self.more]

    def launches(self):
        """[(threadgroups, indexes into all_buffers())], one for each launch."""
        count = len(self.buffers)
        common = list(range(count - 1))
        return [(self.groups, common + [count - 1])] + [
            (groups, common + [count + i]) for i, (groups, _) in enumerate(self.more)
        ]

"""Replaces parameters that are arrays without a size with pointers.

In MSL and in C++, `T a[]` as a parameter is a pointer.  If MSL's parameter names no address space,
the pointer points to `thread` memory.  In C++ for OpenCL, the pointer of a template's parameter
would point to no address space, and clang could not deduce T.
"""

from . import names
from .edits import Step


class ArrayParameters(Step):
    """Rewrites the parameters that are arrays without a size."""

    def run(self) -> None:
        s = self._structure
        for index, token in enumerate(self._tokens):
            if token.text != "[" or s.text(index + 1) != "]" or s.text(index + 2) not in (",", ")"):
                continue
            begin = self._begin_of_parameter(index)
            if s.text(begin - 1) not in ("(", ",") or begin >= index - 1:
                continue
            if names.ADDRESS_SPACES.keys().isdisjoint(map(s.text, range(begin, index))):
                self._edits.insert_before(begin, names.ADDRESS_SPACES["thread"] + " ")
                self._edits.insert_before(index - 1, "*")
                self._edits.erase(index, index + 2)

    def _begin_of_parameter(self, index):
        """Returns the index of the first token of the parameter whose [ is token `index`."""
        s = self._structure
        stops = ("(", ",", ";", "{", "}")
        return next(i for i in s.backwards(index - 1) if s.text(i) in stops or i == 0) + 1

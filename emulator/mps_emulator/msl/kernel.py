"""Describes kernels and their parameters."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # The package clang may be missing.
    from clang.cindex import Cursor

MAX_BUFFERS = 31
MAX_THREADS_PER_THREADGROUP = 1024


@dataclasses.dataclass
class Parameter:
    """A parameter of a kernel."""

    name: str
    kind: str  # "buffer", "threadgroup" or "builtin"
    type_spelling: str  # the type in words of MSL
    index: int | None = None  # the i of [[buffer(i)]] or [[threadgroup(i)]]

    # Only for the kind "builtin".
    builtin: str | None = None  # the name of the attribute
    components: int = 0  # 1 for a scalar, 2 or 3 for a vector
    scalar: str | None = None  # "uint" or "ushort"

    # Only for the other kinds.
    writable: bool = False  # whether the kernel may write to the buffer
    by_reference: bool = False  # whether the parameter is a reference, not a pointer
    constant: bool = False  # whether the parameter points to `constant` memory
    element_size: int = 0  # the size of the pointee, in bytes
    alignment: int = 1  # the alignment of the pointee, in bytes
    # The type of all scalars in the pointee, like "float" or "uint".  The pointee may be a scalar,
    # a vector, an atomic, or a structure of these.  None for other pointees, and if the scalars are
    # of several types.
    numbers: str | None = None

    @property
    def builtin_type(self) -> str:
        """The type of a parameter of the kind "builtin", like "uint2"."""
        return self.scalar + ("" if self.components == 1 else str(self.components))


@dataclasses.dataclass
class Kernel:
    """A kernel function, or one instance of a kernel template."""

    name: str  # the name by which the host finds the kernel
    function: str  # a C++ expression for the function's address; empty for a kernel of AIR
    cursor: Cursor | None = None  # libclang's cursor of the function; None for a kernel of AIR
    instantiation: int | None = None  # the number of the kernel's instantiations.Instantiation
    parameters: list[Parameter] = dataclasses.field(default_factory=list)
    max_total_threads: int = MAX_THREADS_PER_THREADGROUP
    limits_threads: bool = False  # whether the source has [[max_total_threads_per_threadgroup]]
    static_threadgroup_bytes: int = 0
    suspends: bool = False  # whether the kernel can reach a barrier or a simdgroup function

"""Compiles kernels and runs them on NumPy arrays, without torch."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._paths import library_path
from .kernel import MAX_BUFFERS

if TYPE_CHECKING:
    import numpy as np

_MESSAGE_SIZE = 1 << 20


class CompileError(Exception):
    """The compiler refused the program.  The exception's text is the compiler's output."""


class Fatal(Exception):
    """A dispatch broke a rule of Metal.

    In programs that use torch, Fatal() of src/core/fatal.h reports the same mistake and ends the
    process.  The exception's text is the message of Fatal().
    """


class Metal:
    """The emulator's compiler and executor for Metal."""

    def __init__(self):
        self._lib = ctypes.CDLL(library_path())
        text = [ctypes.c_char_p, ctypes.c_uint64]
        handle = ctypes.c_void_p
        self._lib.mps_emulator_msl_compile.restype = handle
        self._lib.mps_emulator_msl_compile.argtypes = [*text, ctypes.c_bool, *text]
        self._lib.mps_emulator_msl_compile_metallib.restype = handle
        self._lib.mps_emulator_msl_compile_metallib.argtypes = [*text, ctypes.c_char_p, *text]
        self._lib.mps_emulator_msl_release.argtypes = [handle]
        self._lib.mps_emulator_msl_run.argtypes = [
            handle,
            ctypes.c_char_p,
            *[ctypes.c_void_p] * 5,
            *text,
        ]

    def compile(self, source: str, fast_math: bool = True) -> Library:
        """Compiles a source text.

        Raises:
          CompileError: the compiler refuses the text.
        """
        message = ctypes.create_string_buffer(_MESSAGE_SIZE)
        text = source.encode()
        handle = self._lib.mps_emulator_msl_compile(
            text, len(text), fast_math, message, _MESSAGE_SIZE
        )
        if not handle:
            raise CompileError(message.value.decode())
        return Library(self._lib, handle)

    def load(self, metallib: bytes, kernels: Sequence[str]) -> Library:
        """Compiles kernels of a .metallib for the host.

        Args:
          metallib: the content of the file.
          kernels: the names of kernels.
        Raises:
          CompileError: the .metallib has no such kernel, or a kernel uses what the emulator lacks.
        """
        message = ctypes.create_string_buffer(_MESSAGE_SIZE)
        handle = self._lib.mps_emulator_msl_compile_metallib(
            metallib, len(metallib), "\n".join(kernels).encode(), message, _MESSAGE_SIZE
        )
        if not handle:
            raise CompileError(message.value.decode())
        return Library(self._lib, handle)


class Library:
    """A compiled library of kernels."""

    def __init__(self, lib, handle):
        self._lib = lib
        self._handle = handle

    def __del__(self):
        self._lib.mps_emulator_msl_release(self._handle)

    def run(
        self,
        kernel: str,
        buffers: Sequence[np.ndarray] | dict[int, np.ndarray],
        grid: int | Sequence[int],
        threadgroup: int | Sequence[int],
        threadgroup_bytes: dict[int, int] | None = None,
    ) -> None:
        """Runs the kernel with the name `kernel` and waits for it.

        Args:
          buffers: contiguous arrays, in the order of the buffer indices 0, 1, ..., or by buffer
            index.  The kernel writes into the arrays.
          grid, threadgroup: sizes in threads: a number, or one to three numbers.
          threadgroup_bytes: {i: size of [[threadgroup(i)]] in bytes}.
        Raises:
          Fatal: the dispatch breaks a rule of Metal.
          KeyError: the library has no such kernel.
          ValueError: an array is not contiguous.
        """
        if not isinstance(buffers, dict):
            buffers = dict(enumerate(buffers))
        pointers = (ctypes.c_void_p * MAX_BUFFERS)()
        sizes = (ctypes.c_uint64 * MAX_BUFFERS)()
        for index, array in buffers.items():
            if not array.flags.c_contiguous:
                raise ValueError(f"the array of buffer {index} is not contiguous")
            pointers[index] = array.ctypes.data
            sizes[index] = array.nbytes
        lengths = (ctypes.c_uint64 * MAX_BUFFERS)()
        for index, size in (threadgroup_bytes or {}).items():
            lengths[index] = size
        message = ctypes.create_string_buffer(_MESSAGE_SIZE)
        status = self._lib.mps_emulator_msl_run(
            self._handle,
            kernel.encode(),
            pointers,
            sizes,
            lengths,
            _extent(grid),
            _extent(threadgroup),
            message,
            _MESSAGE_SIZE,
        )
        if status == 1:
            raise Fatal(message.value.decode())
        if status == 2:
            raise KeyError(f"the library has no kernel {kernel}")


def _extent(value):
    values = (value,) if isinstance(value, int) else tuple(value)
    return (ctypes.c_uint32 * 3)(*values, *(1,) * (3 - len(values)))

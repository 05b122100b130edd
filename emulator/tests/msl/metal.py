"""Compiles and runs kernels for the tests, and makes small NumPy arrays."""

import re
import tempfile

import numpy as np
from mps_emulator.msl import native
from mps_emulator.msl.kernel import Kernel
from mps_emulator.msl.native import CompileError, Fatal
from mps_emulator.msl.pipeline import Program
from mps_emulator.replay.judge import DTYPES

__all__ = ["CompileError", "Fatal", "Metal", "TYPES", "errors", "floats", "kernels_of", "uint"]

# {name of a scalar type of Metal: NumPy's dtype}.  NumPy has no bfloat.
TYPES = {name: dtype for name, dtype in DTYPES.items() if name != "bfloat"}

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"


class Metal(native.Metal):
    """Compiles each program with the two lines of HEADER before the program.

    In messages, the first line of a program is therefore line 3.
    """

    def compile(self, source: str, header: str = HEADER, **options) -> native.Library:
        return super().compile(header + source, **options)

    def run(self, source: str, kernel: str, *arguments, **options) -> None:
        """Compiles a program and runs a kernel once.

        Args:
          arguments, options: the arguments of native.Library.run() after `kernel`.
        """
        self.compile(source).run(kernel, *arguments, **options)

    def refusal(self, source: str, **options) -> str:
        """Returns the diagnostics of a program that the compiler must refuse."""
        try:
            self.compile(source, **options)
        except CompileError as error:
            return str(error)
        raise AssertionError("the program was not refused:\n" + source)


def kernels_of(source: str) -> dict[str, Kernel]:
    """Returns the kernels that the front end reads from a program, by name."""
    with tempfile.NamedTemporaryFile("w", suffix=".metal") as file:
        file.write(HEADER + source)
        file.flush()
        _, kernels = Program(file.name, file.name).analyse()
    return {kernel.name: kernel for kernel in kernels}


def errors(diagnostics: str) -> list[tuple[int, int, str]]:
    """Returns the line, the column and the message of each error in the compiler's output."""
    found = re.findall(
        r"^program_source:(\d+):(\d+): (?:fatal )?error: (.*)$", diagnostics, re.MULTILINE
    )
    return [(int(line), int(column), text) for line, column, text in found]


def uint(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint32)


def floats(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)

"""The tests' compiler and executor of kernels, and small NumPy helpers."""

import re
import tempfile

import numpy as np
from mps_emulator.msl import native
from mps_emulator.msl.native import CompileError, Fatal
from mps_emulator.msl.pipeline import Program
from mps_emulator.replay.player import DTYPES

__all__ = ["CompileError", "Fatal", "Metal", "TYPES", "errors", "floats", "kernels_of", "uint"]

# The scalar types of Metal that NumPy has as well.
TYPES = {name: dtype for name, dtype in DTYPES.items() if name != "bfloat"}

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"


class Metal(native.Metal):
    """Puts a header of two lines before each program, whose first line is then line 3."""

    def compile(self, source, header=HEADER, **options):
        return super().compile(header + source, **options)

    def run(self, source, kernel, *arguments, **options):
        """Compiles a program, and runs one of its kernels once."""
        self.compile(source).run(kernel, *arguments, **options)

    def refusal(self, source, **options):
        """The diagnostics of a program that the compiler must refuse."""
        try:
            self.compile(source, **options)
        except CompileError as error:
            return str(error)
        raise AssertionError("the program was not refused:\n" + source)


def kernels_of(source):
    """The front end's description of a program's kernels, {name: msl.analysis.kernels.Kernel}."""
    with tempfile.NamedTemporaryFile("w", suffix=".metal") as file:
        file.write(HEADER + source)
        file.flush()
        _, kernels = Program(file.name, file.name).analyse()
    return {kernel.name: kernel for kernel in kernels}


def errors(diagnostics):
    """[(line, column, message)] of the errors in a compiler's output."""
    found = re.findall(
        r"^program_source:(\d+):(\d+): (?:fatal )?error: (.*)$", diagnostics, re.MULTILINE
    )
    return [(int(line), int(column), text) for line, column, text in found]


def uint(*values):
    return np.array(values, dtype=np.uint32)


def floats(*values):
    return np.array(values, dtype=np.float32)

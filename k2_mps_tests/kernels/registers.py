"""Finds how many registers each kernel needs, and how much memory if registers are capped.

NVIDIA's assembler, ptxas, reports these numbers.  Apple's compiler does not.

A thread of Apple's GPUs has at most 128 registers of 32 bits.  If the threadgroups of a pipeline
can have many threads, each thread gets fewer registers: at most 52 for 1,024 threads.  ptxas
compiles each kernel with this number of registers as the cap.
"""

import importlib.util
import re
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from k2_mps_tests import ending
from k2_mps_tests.kernels import sources
from k2_mps_tests.running import ran

# {registers of a thread: the most threads that a core of an M1 holds}.  The people who wrote Mesa's
# driver for the M1 found these numbers by experiments (src/asahi/compiler/agx_performance.c).
THREADS = {
    52: 1024,
    56: 896,
    64: 832,
    68: 768,
    72: 704,
    80: 640,
    92: 576,
    104: 512,
    116: 448,
    128: 384,
}
MOST_REGISTERS = max(THREADS)
LIBDEVICE = "nvvm/libdevice/libdevice.10.bc"
# An NVIDIA GPU whose registers have 32 bits, like the registers of Apple's GPUs.
GPU = "sm_90"
SIMD_WIDTH = 32


class Use(NamedTuple):
    """The registers and memory that a kernel needs."""

    kernel: str  # the kernel's name
    threads: int  # the most threads that a threadgroup of the kernel can have
    cap: int  # the registers of 32 bits that a thread may have
    registers: int  # the registers that ptxas gives a thread without a cap
    stack: int  # the bytes of memory that a thread needs with the cap, see _assemble()
    threadgroup_bytes: int  # the threadgroup memory of the kernel


def cap(threads):
    """Returns how many registers a thread gets in threadgroups of `threads` threads."""
    return max(registers for registers, most in THREADS.items() if threads <= most)


def most_threads(registers):
    """Returns the most threads that a threadgroup can have if the kernel sets no limit.

    Metal's compiler then gives each thread the registers that the kernel needs.  The registers of
    a core limit the number of threads.
    """
    return THREADS[min(given for given in THREADS if given >= min(registers, MOST_REGISTERS))]


def uses(name, folder, nvcc):
    """Yields a Use for each kernel of a file.

    Args:
      name: the file's name without .metal.
      folder: a folder for the PTX.
      nvcc: CUDA's compiler, see find_nvcc().
    """
    ptx = Path(folder) / (name + ".ptx")
    kernels = sources.compile_to_ptx(name, ptx, nvcc / LIBDEVICE, GPU)
    # ptxas accepts either a cap of registers or a number of threads (.maxntid), not both.
    ptx.write_text(re.sub(r"^\.maxntid.*\n", "", ptx.read_text(), flags=re.MULTILINE))
    free = _assemble(ptx, nvcc, 255)
    capped = {}
    for kernel in kernels:
        entry = kernel["entry"]
        registers = free[entry][0]
        threads = kernel["max_threads"] or most_threads(registers)
        most = cap(threads)
        if most not in capped:
            capped[most] = _assemble(ptx, nvcc, most)
        stack = capped[most][entry][1]
        yield Use(kernel["name"], threads, most, registers, stack, kernel["threadgroup_bytes"])


def _assemble(ptx, nvcc, most):
    """Returns {kernel: (registers, bytes of the stack)} with `most` registers as the cap.

    A stack has the registers that a thread spills, the arrays that do not fit into registers, and
    the arguments of calls.  A GPU keeps a stack in its slow memory.
    """
    options = (f"-arch={GPU}", "-v", f"--maxrregcount={most}", "-o", "/dev/null")
    said = ran(nvcc / "bin/ptxas", *options, ptx, check=True).stderr
    found = re.findall(
        r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame.*?Used (\d+) registers",
        said,
        re.DOTALL,
    )
    return {kernel: (int(registers), int(stack)) for kernel, stack, registers in found}


def table(rows):
    """Formats `rows`, an iterable of Use, as a table in Markdown."""
    head = "| kernel | threads | cap | registers | bytes of stack | threadgroup memory |"
    lines = [head, "|---|--:|--:|--:|--:|--:|"]
    for kernel, *cells in sorted(rows):
        lines.append(f"| `{kernel}` | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def find_nvcc():
    """Returns the folder of CUDA's compiler from PyPI, with bin/ptxas and nvvm/libdevice.

    Returns None if the compiler is not installed.
    """
    spec = importlib.util.find_spec("nvidia.cuda_nvcc")
    return Path(next(iter(spec.submodule_search_locations))) if spec else None


def find_libdevice():
    """Returns the path of libdevice.10.bc in find_nvcc(); None if there is no such folder."""
    nvcc = find_nvcc()
    return nvcc and nvcc / LIBDEVICE


def main():
    """Prints the table of all kernels."""
    nvcc = find_nvcc()
    if nvcc is None:
        sys.exit("there is no ptxas: pip install nvidia-cuda-nvcc-cu12")
    with tempfile.TemporaryDirectory() as folder:
        print(table(use for name in sources.names() for use in uses(name, folder, nvcc)))


if __name__ == "__main__":
    ending.run(main)

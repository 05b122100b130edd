"""Finds and keeps how Mesa's compiler compiles k2's kernels for the M1: kernels.toml.

Mesa's compiler is the work of people who studied the M1's GPU, G13.  It is not Apple's compiler.
"""

import re
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from k2mps.core.pins import tomllib

from k2_mps_tests.kernels import registers, sources

_FILE = Path(__file__).with_name("kernels.toml")
INSTRUCTION_CACHE = 12 << 10  # bytes of code, on an M1
_REPORT = re.compile(
    r"(?P<instructions>\d+) inst, (?P<cycles>\d+) alu, .*?, (?P<code>\d+) bytes, (?P<halves>\d+) "
    r"regs, .*?(?P<stack>\d+) scratch"
)


class Row(NamedTuple):
    """How Mesa's compiler compiles a kernel for the M1."""

    threads: int  # the most threads that a threadgroup of the kernel can have
    registers: int  # the registers of 32 bits that a thread needs, at most 128
    stack: int  # the bytes of memory that a thread needs because registers are missing
    code: int  # the size of the code in bytes
    instructions: int  # the number of instructions
    cycles: int  # the cycles in which a simdgroup can issue each instruction once
    air: int  # the number of instructions of AIR, see counting.py
    memory: int  # the bytes of the threadgroup memory

    @property
    def threads_of_core(self):
        """The threads that a core holds at the same time."""
        return registers.most_threads(min(self.registers, registers.cap(self.threads)))


def load():
    """Returns {kernel: Row} of kernels.toml."""
    return {name: Row(*row) for name, row in tomllib.loads(_FILE.read_text())["kernels"].items()}


def text(rows):
    """Returns the content of kernels.toml for {kernel: Row}."""
    lines = [
        "# Written by `python -m k2_mps_tests.agx --write`.",
        f"# kernel = [{', '.join(Row._fields)}]",
        "[kernels]",
        *(f"{name} = {list(row)}" for name, row in sorted(rows.items())),
    ]
    return "\n".join(lines) + "\n"


def write(rows):
    _FILE.write_text(text(rows))


def files():
    """Returns the names of k2's files of kernels, without .metal."""
    return [name for name in sources.names() if sources.path(name).parent == sources.KERNELS]


def measure(program, names):
    """Compiles the kernels of k2's files; returns {kernel: Row}.

    Args:
      program: the Path of agx_kernels, see mesa.py.
      names: the names of the files, without .metal.
    Raises:
      subprocess.CalledProcessError: the front end, LLVM or Mesa refused a kernel.
    """
    rows = {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda name: list(_measure(program, name, folder)), names):
            rows |= found
    return rows


def _measure(program, name, folder):
    # These need the emulator, which the reader of a table may lack.
    from mps_emulator.msl.air import threadgroup_variables

    from k2_mps_tests.agx import counting, spirv

    for kernel, path, module in spirv.kernels_of(name, folder):
        # With 32 threads in a threadgroup, a thread can have all registers.
        free = _compile(program, path, kernel, registers.SIMD_WIDTH)
        needed = free["halves"] // 2 + 1  # the report has the last register's number
        threads = module.max_total_threads or registers.most_threads(needed)
        found = _compile(program, path, kernel, threads)
        reported = (found[name] for name in ("stack", "code", "instructions", "cycles"))
        air = counting.instructions(module.text)
        memory = threadgroup_variables.size(module)
        yield kernel, Row(threads, needed, *reported, air, memory)


def _compile(program, path, kernel, threads):
    """Returns the numbers of Mesa's report, {name: int}."""
    command = [program, path, kernel, str(threads)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {name: int(value) for name, value in _REPORT.search(said).groupdict().items()}

"""Counts the instructions and the barriers that the kernels of a recording execute.

The kernels are compiled to AIR, and run on the emulated device with code that counts: each block of
a kernel's code adds its number of instructions.  What a function of AIR does, such as simd_sum(),
counts as one instruction.  `count` runs this file as a program, with the environment that it needs.

The emulated device compiles a kernel with the program that MPS_EMULATOR_CLANG names.  This file
replaces clang, and adds the code that counts before clang compiles the kernel.
"""

import ctypes
import json
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from k2_mps_tests.agx import model
from k2_mps_tests.kernels import sources

# The variable of a kernel's library in which the code counts.
_COUNTS = "k2_mps_tests_counts"
_BLOCK = re.compile(r"^[\w.$-]+:")
# Instructions of LLVM that are no instruction of a GPU, or that stand before all others.
_NONE = re.compile(
    r"\s*(;|(%\S+ = )?(phi|bitcast|freeze|getelementptr|ret|unreachable|extractelement)\b)"
)
_BARRIER = "@air.wg.barrier("
# The entry of a kernel, and the functions of vectors: the emulator adds both.
_NOT_COUNTED = r"@mps_emulator_air_entry_|\balwaysinline\b"


def instructions(text):
    """Returns the number of instructions in LLVM's text of a module with one function."""
    return sum(map(_instructions, _blocks(text.splitlines())[1::2]))


def with_counts(text):
    """Returns LLVM's text of a kernel with code that counts its instructions and barriers."""
    pieces = _blocks(text.splitlines())
    for number in range(1, len(pieces), 2):
        pieces[number] = _counted(pieces[number], number)
    lines = [line for piece in pieces for line in piece]
    return "\n".join([*lines, f"@{_COUNTS} = weak global [2 x i64] zeroinitializer", ""])


def _blocks(lines):
    """Splits lines; the pieces with odd numbers are the blocks of the kernel's code."""
    pieces, inside = [[]], False
    for line in lines:
        if line.startswith("define "):
            inside = not re.search(_NOT_COUNTED, line)
            pieces[-1].append(line)
            if inside:
                pieces.append([])
        elif inside and (line == "}" or _BLOCK.match(line)):
            pieces.append([line])
            inside = line != "}"
            if inside:
                pieces.append([])
        else:
            pieces[-1].append(line)
    return pieces


def _instructions(block):
    return sum(bool(line.strip()) and not _NONE.match(line) for line in block)


def _counted(block, number):
    """Adds the code that counts to a block, behind its phis."""
    phis = [line for line in block if re.match(r"\s*%\S+ = phi ", line)]
    others = block[len(phis) :]
    numbers = _instructions(others), sum(_BARRIER in line for line in others)
    added = []
    for index, amount in enumerate(numbers):
        if amount:
            address = f"getelementptr ([2 x i64], ptr @{_COUNTS}, i64 0, i64 {index})"
            name = f"%count.{number}.{index}"
            added.append(f"  {name} = atomicrmw add ptr {address}, i64 {amount} monotonic")
    return [*phis, *added, *others]


def count(folder):
    """Counts what the kernels of a recording execute, in a process of its own.

    Args:
      folder: the folder of the recording.
    Returns:
      {kernel: model.Work}.
    """
    with tempfile.TemporaryDirectory() as scratch:
        clang = Path(scratch, "clang++")
        program = [sys.executable, "-m", "k2_mps_tests.agx.counting"]
        clang.write_text(f'#!/bin/sh\nexec {shlex.join(program)} clang "$@"\n')
        clang.chmod(0o755)
        paths = [str(sources.TESTS.parent), os.environ.get("PYTHONPATH", "")]
        settings = {
            "MPS_EMULATOR_CLANG": str(clang),
            "MPS_EMULATOR_CACHE_DIR": scratch,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }
        command = [*program, str(folder)]
        done = subprocess.run(
            command, env=os.environ | settings, check=True, stdout=subprocess.PIPE
        )
        return {kernel: model.Work(*row) for kernel, row in json.loads(done.stdout).items()}


class _Libraries:
    """The kernels of a recording, compiled to AIR and from AIR to code that counts."""

    def __init__(self, recording):
        from mps_emulator.msl.native import Metal

        self._recording = recording
        self._cache = os.environ["MPS_EMULATOR_CACHE_DIR"]
        self._metal = Metal()
        self._metallibs, self._libraries = {}, {}

    def get(self, program, kernel):
        """Returns (the library of a kernel, an array of its two counts)."""
        key = program, kernel
        if key not in self._libraries:
            before = _loaded(self._cache)
            library = self._metal.load(self._metallib(program), [kernel])
            [path] = _loaded(self._cache) - before
            counts = (ctypes.c_uint64 * 2).in_dll(ctypes.CDLL(path), _COUNTS)
            self._libraries[key] = library, counts
        return self._libraries[key]

    def _metallib(self, program):
        from mps_emulator.msl.pipeline import Program

        if program not in self._metallibs:
            output = Path(self._cache, f"{program}.metallib")
            text = self._recording.folder / self._recording.programs[program]["file"]
            Program(str(text), text.name, fast_math=False).build_metallib(str(output))
            self._metallibs[program] = output.read_bytes()
        return self._metallibs[program]


def _count(folder):
    """Returns {kernel: the members of its model.Work}."""
    from mps_emulator.replay import emulated, player
    from mps_emulator.replay.recording import Recording, uses

    recording = Recording(folder)
    libraries, rows = _Libraries(recording), {}

    class Counting(emulated.Emulated):
        def dispatch(self, command, buffers):
            library, counts = libraries.get(command["program"], command["kernel"])
            self._library = lambda number: library
            before = list(counts)
            super().dispatch(command, buffers)
            executed, barriers = (after - count for after, count in zip(counts, before))
            grid, threadgroup = command["grid"], command["threadgroup"]
            # The last threadgroup of an axis may be cut off by the end of the grid.
            groups = math.prod(
                math.ceil(threads / size) for threads, size in zip(grid, threadgroup)
            )
            moved = sum(recording.sizes[buffer] for buffer in set(uses(command)))
            added = model.Work(1, groups, math.prod(grid), executed, barriers, moved)
            row = rows.setdefault(command["kernel"], [0] * len(added))
            rows[command["kernel"]] = [a + b for a, b in zip(row, added)]

    machine = Counting(recording)
    player.CommandSequence(recording, player.Player(recording, machine), machine).run()
    return rows


def _loaded(folder):
    """Returns the set of the libraries in a folder that this process has loaded."""
    paths = re.findall(r"(/\S+)$", Path("/proc/self/maps").read_text(), re.MULTILINE)
    folder = os.path.realpath(folder)
    return {path for path in paths if path.startswith(folder) and path.endswith(".so")}


def _clang(arguments):
    """Does the work of clang, with code that counts in each kernel of AIR."""
    from mps_emulator.msl import toolchain

    if "ir" in arguments and "-c" in arguments:
        source = Path(arguments[arguments.index("-c") + 1])
        source.write_text(with_counts(source.read_text()))
    clang = toolchain.find_clang()
    os.execv(clang, [clang, *arguments])


if __name__ == "__main__":
    if sys.argv[1] == "clang":
        del os.environ["MPS_EMULATOR_CLANG"]
        _clang(sys.argv[2:])
    print(json.dumps(_count(Path(sys.argv[1]))))

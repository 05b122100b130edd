"""Checks the .metallibs in a library of k2 for macOS: are they as Apple's compiler writes them?

    python -m k2_mps_tests.apple.check libk2context.dylib

Each kernel of the series must be in one of the .metallibs.  Each function that a kernel calls must
have the type and the attributes that facts.toml has, and each argument must be described as there.

Exit status: 0 there is no problem, 1 there is one.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from mps_emulator.msl import toolchain
from mps_emulator.msl.air import metallib
from mps_emulator.msl.air.module import Module, disassemble
from mps_emulator.msl.errors import ToolError

from k2_mps_tests import ending
from k2_mps_tests.apple import facts, functions, wheels

_VERSION = (2, 6)
# The wheels have a function for each pair of types.
_CONVERSION = re.compile(r"air\.convert(\.[fsu]\.(i1|i8|i16|i32|i64|f16|bf16|f32)){2}")


def problems(content: bytes) -> Iterator[str]:
    """Yields the faults of the .metallibs in `content`."""
    libraries = metallib.find(content)
    wanted = {kernel.name for file in facts.files() for kernel in functions.compiled(file)[1]}
    found = [name for library in libraries for name in library.kernels]
    for name in sorted(wanted ^ set(found)):
        yield f"{name} is {'missing' if name in wanted else 'no kernel of the series'}"
    arguments = set(map(tuple, facts.load()["arguments"]))
    for library in libraries:
        for name in library.kernels:
            if library.air_version(name) != _VERSION:
                yield f"{name} is of AIR {library.air_version(name)}, not {_VERSION}"
            try:
                module = Module(disassemble(library.bitcode(name), toolchain.find_clang()))
            except ToolError as error:
                yield f"{name} cannot be read: {error}"
                continue
            yield from _kernel_faults(name, module, arguments)


def _kernel_faults(name, module, arguments):
    for declared in module.declarations():
        known = facts.known(declared.name)
        is_listed = declared.name in facts.load()["elsewhere"]
        if known is None and not is_listed and not _CONVERSION.fullmatch(declared.name):
            yield f"{name} calls {declared.name}, which facts.toml lacks"
        elif known not in (None, declared.type):
            yield f"{name} calls {declared.name} as {declared.type}, not {known}"
        attributes = facts.load()["attributes"].get(declared.name)
        if attributes not in (None, facts.words(declared.attributes)):
            yield f"{name} calls {declared.name}, whose attributes are not {attributes}"
    scalars = {described[1] for described in arguments if described[0] == "type"}
    for described in wheels.described(module) - arguments:
        # The size of a structure or a vector is that of the text.
        if described[0] != "type" or described[1] in scalars:
            yield f"{name} describes an argument as {described}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m k2_mps_tests.apple.check", description=__doc__)
    parser.add_argument("library", type=Path, metavar="FILE")
    status = 0
    for problem in problems(parser.parse_args().library.read_bytes()):
        print(problem)
        status = 1
    return status


if __name__ == "__main__":
    ending.run(main)

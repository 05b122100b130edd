"""Finds functions of AIR and arguments of kernels in the wheels of mlx and torch for macOS."""

import itertools
import zipfile

from k2mps.build.environment import Environment
from mps_emulator.msl import toolchain
from mps_emulator.msl.air import metallib
from mps_emulator.msl.air.module import Module, disassemble
from packaging.requirements import Requirement

PACKAGES = ("mlx-metal==0.32.4", "torch==2.14.1")
_PLATFORM, _PYTHON = "macosx_14_0_arm64", "3.11"
# How many kernels of a wheel are read for the facts about arguments.
_SAMPLE = 100
_OF_EACH_BUILTIN = 24


def load(environment: Environment) -> dict[str, metallib.Metallib]:
    """Returns {package: its first .metallib}.  Downloads wheels that build/apple lacks.

    Raises:
      IndexUnreachableError, RequirementMissingError: pip cannot download a wheel.
    """
    found = {}
    for package in PACKAGES:
        folder = environment.project.build_root / "apple" / package
        wheels = list(folder.glob("*.whl"))
        if not wheels:
            wheels = [environment.download(Requirement(package), folder, _PLATFORM, _PYTHON)]
        with zipfile.ZipFile(wheels[0]) as archive:
            ends = (".metallib", "libtorch_cpu.dylib")
            name = next(name for name in archive.namelist() if name.endswith(ends))
            found[package] = metallib.find(archive.read(name))[0]
    return found


def declaration(library: metallib.Metallib, name: str):
    """Returns (type of LLVM, attributes) of a function of AIR, or None if no kernel calls it."""
    wanted = name.encode()
    for kernel in library.kernels:
        if wanted not in bytes(library.bitcode(kernel)):
            continue
        module = Module(disassemble(library.bitcode(kernel), toolchain.find_clang()))
        for found in module.declarations():
            if found.name == name:
                type = f"{found.result} ({', '.join(found.parameters)})"
                return type, sorted(found.attributes)
    return None


def arguments(library: metallib.Metallib, builtins: set[str]) -> set[tuple]:
    """Returns how Apple's compiler describes arguments, from a sample of the kernels.

    The sample has kernels with each of the built-in values `builtins`, if the library has any.

    A buffer is ("buffer", address space, whether it has a size, whether it is written), a scalar's
    type is ("type", name, size, alignment), and a built-in value is (its name, type of LLVM).
    """
    found = set()
    kernels = library.kernels
    sample = kernels[:: max(len(kernels) // _SAMPLE, 1)]
    for builtin in sorted(builtins):
        wanted = f"air.{builtin}".encode()
        having = (kernel for kernel in kernels if wanted in bytes(library.bitcode(kernel)))
        sample += itertools.islice(having, _OF_EACH_BUILTIN)
    for kernel in sample:
        module = Module(disassemble(library.bitcode(kernel), toolchain.find_clang()))
        for argument in module.arguments:
            fields = argument.fields
            if argument.kind != "buffer":
                found.add((argument.kind, argument.type))
                continue
            written = "read_write" in fields or "write" in fields
            found.add(("buffer", fields["address_space"], "buffer_size" in fields, written))
            # A pointer to void has no size.
            if "struct_type_info" not in fields and "arg_type_size" in fields:
                size, alignment = fields["arg_type_size"], fields["arg_type_align_size"]
                found.add(("type", fields["arg_type_name"], size, alignment))
    return found

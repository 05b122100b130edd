"""Finds functions of AIR and arguments of kernels in the wheels of mlx and torch for macOS."""

import collections
import re
import zipfile

from k2mps.build.environment import Environment
from mps_emulator.msl import toolchain
from mps_emulator.msl.air import metallib
from mps_emulator.msl.air.module import Declaration, Module, disassemble
from packaging.requirements import Requirement

PACKAGES = ("mlx-metal==0.32.4", "torch==2.14.1")
_PLATFORM, _PYTHON = "macosx_14_0_arm64", "3.11"
# How many kernels of a wheel are read for the facts about arguments.
_SAMPLE = 100
_SAMPLE_OF_BUILTIN = 24


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


def declarations(library: metallib.Metallib, names: set[str]) -> dict[str, Declaration]:
    """Returns {function of AIR: its Declaration} for those of `names` that a kernel calls."""
    found = {}
    for kernel in _having(library, names, 1):
        for declared in _module(library, kernel).declarations():
            if declared.name in names:
                found.setdefault(declared.name, declared)
    return found


def _having(library: metallib.Metallib, names: set[str], count: int) -> list[str]:
    """Returns kernels whose bitcode contains the names, up to `count` for each name."""
    pattern = re.compile(b"|".join(re.escape(name.encode()) for name in sorted(names)))
    seen = collections.Counter()
    having = []
    for kernel in library.kernels:
        inside = set(pattern.findall(library.bitcode(kernel)))
        if any(seen[name] < count for name in inside):
            having.append(kernel)
            seen.update(inside)
    return having


def _module(library: metallib.Metallib, kernel: str) -> Module:
    return Module(disassemble(library.bitcode(kernel), toolchain.find_clang()))


def arguments(library: metallib.Metallib, builtins: set[str]) -> set[tuple]:
    """Returns how Apple's compiler describes arguments, from a sample of the kernels.

    The sample has kernels with each of the built-in values `builtins`, if the library has any.
    """
    found = set()
    kernels = library.kernels
    sample = kernels[:: max(len(kernels) // _SAMPLE, 1)]
    sample += _having(library, {f"air.{builtin}" for builtin in builtins}, _SAMPLE_OF_BUILTIN)
    for kernel in sample:
        found |= described(_module(library, kernel))
    return found


def described(module: Module) -> set[tuple]:
    """Returns how a module describes the arguments of its kernel.

    A buffer is ("buffer", address space, whether it has a size, whether it is written), a scalar's
    type is ("type", name, size, alignment), and a built-in value is (its name, type of LLVM).
    """
    found = set()
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

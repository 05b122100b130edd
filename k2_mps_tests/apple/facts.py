"""Reads and writes facts.toml: what Apple's compiler wrote in the wheels of mlx and torch.

For each package, facts.toml has {function of AIR: type of LLVM} for the functions that k2's kernels
use, and how the compiler describes the arguments of kernels.  The table `attributes` has the
attributes of these functions, from which a compiler knows how it may move a call.  The table
`elsewhere` says what is known of the functions that no wheel has.
"""

import functools
import json
from pathlib import Path

import tomllib
from mps_emulator.msl.air.functions import in_air

from k2_mps_tests.apple import functions, wheels
from k2_mps_tests.kernels import sources

_FILE = Path(__file__).with_name("facts.toml")
# The types of the parameters whose values the GPU computes.
_BUILTIN_TYPES = {"uint": "i32", "ushort": "i16"}
_SPACES = {"device": 1, "constant": 2, "threadgroup": 3}


@functools.cache
def load() -> dict:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def known(name: str) -> str | None:
    """Returns the type of a function of AIR in the wheels, or None."""
    found = [load()[package].get(name) for package in wheels.PACKAGES]
    return next((type for type in found if type), None)


def files() -> list[str]:
    """Returns the names of k2's files of kernels, without .metal."""
    return [name for name in sources.names() if sources.path(name).parent == sources.KERNELS]


def used_functions() -> dict[tuple[str, str], set[str]]:
    """Returns {(function of AIR, its type): the files of kernels that use the function}."""
    used = {}
    for file in files():
        for function in functions.called(file):
            if found := in_air(function):
                used.setdefault(found, set()).add(file)
    return used


def used_arguments() -> dict[tuple, set[str]]:
    """Returns how our kernels declare arguments: {a tuple of wheels.arguments(): the files}."""
    used = {}
    for file in files():
        for kernel in functions.compiled(file)[1]:
            for parameter in kernel.parameters:
                for described in _described(parameter):
                    used.setdefault(described, set()).add(file)
    return used


def _described(parameter):
    if parameter.kind == "builtin":
        type = _BUILTIN_TYPES[parameter.scalar]
        if parameter.components > 1:
            type = f"<{parameter.components} x {type}>"
        yield parameter.builtin, type
        return
    space = "constant" if parameter.constant else "device"
    if parameter.kind == "threadgroup":
        space = "threadgroup"
    # Apple's compiler calls all memory of a threadgroup written.
    written = parameter.writable or space == "threadgroup"
    yield "buffer", _SPACES[space], parameter.by_reference, written
    if parameter.numbers and parameter.element_size == _SIZES.get(parameter.numbers):
        yield "type", parameter.numbers, parameter.element_size, parameter.alignment


_SIZES = {"char": 1, "uchar": 1, "half": 2, "float": 4, "int": 4, "uint": 4, "long": 8, "ulong": 8}


def words(attributes: set[str]) -> str:
    """Returns the attributes of a function as facts.toml has them."""
    return " ".join(sorted(attributes))


def read(libraries, used) -> dict:
    """Reads the facts from the wheels.

    libraries: the result of wheels.load().
    used:      the result of used_functions().
    """
    found = {"arguments": set(), "attributes": {}}
    wanted = set(used_arguments())
    builtins = {described[0] for described in wanted} - {"buffer", "type"}
    for package, library in libraries.items():
        declared = wheels.declarations(library, {name for name, _ in used})
        found[package] = {name: function.type for name, function in declared.items()}
        for name, function in declared.items():
            found["attributes"][name] = words(function.attributes)
        found["arguments"] |= wheels.arguments(library, builtins)
    found["arguments"] = sorted(map(list, found["arguments"] & wanted), key=str)
    found["elsewhere"] = load()["elsewhere"] if _FILE.exists() else {}
    return found


def text(found) -> str:
    """Returns the text of facts.toml."""
    lines = ["# Written by python -m k2_mps_tests.apple --write; `elsewhere` is by hand.", ""]
    lines.append("arguments = [")
    lines += [f"  {json.dumps(described)}," for described in found["arguments"]]
    lines.append("]")
    for table in (*wheels.PACKAGES, "attributes", "elsewhere"):
        lines += ["", f'["{table}"]' if "=" in table else f"[{table}]"]
        lines += [f'"{name}" = {json.dumps(type)}' for name, type in sorted(found[table].items())]
    return "\n".join(lines) + "\n"

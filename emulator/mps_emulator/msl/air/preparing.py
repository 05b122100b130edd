"""Prepares a program for clang's passes, after which the program is written as AIR.

The program's kernels get entries, and its calls of Metal's library become calls of functions of
AIR.
"""

import re
import subprocess

from .. import nvptx
from ..kernel import Kernel
from . import functions, lowering
from .module import split, type_of

# The prefix of the names of the kernels' entries.
ENTRY = "mps_emulator_air_kernel_"
_LIBRARY_FUNCTION = re.compile(
    r'^define [^@]*@(?P<name>_ZN5metal\w+|"_ZN5metal[^"]+")\((?P<parameters>.*)\) [^()]*\{$'
    r"(?s:.*?)^\}$",
    re.M,
)


def entry(number: int, kernel: Kernel) -> str:
    """Returns the definition of a kernel's entry, as one line of C++."""
    signature, buffers, arguments = [], [], []
    for index, parameter in enumerate(kernel.parameters):
        if parameter.kind == "builtin":
            signature.append(f"{parameter.builtin_type} a{index}")
            arguments.append(f"a{index}")
            continue
        space = "__local" if parameter.kind == "threadgroup" else "__global"
        kind = "reference" if parameter.by_reference else "pointer"
        signature.append(f"{space} uchar *a{index}")
        buffers.append(f"__msl::buffer_{kind} __b{index} = {{(void *)a{index}}}; ")
        arguments.append(f"__b{index}")
    return (
        f'extern "C" void {ENTRY}{number}({", ".join(signature)}) {{ {"".join(buffers)}'
        f"[[clang::always_inline]] ({kernel.function})({', '.join(arguments)}); }}"
    )


def prepare(ir: str) -> str:
    """Replaces the code of the functions of Metal's library by calls of functions of AIR.

    Args:
      ir: the program as LLVM's IR, before all passes.
    """
    found = list(_LIBRARY_FUNCTION.finditer(ir))
    shown = subprocess.run(
        ["c++filt"],
        input="\n".join(match["name"] for match in found),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    declared, code = {}, {}
    for match, function in zip(found, shown):
        try:
            in_air = functions.in_air(function)
        except (KeyError, ValueError):
            continue  # Modules.module() refuses a kernel that still calls the function.
        if in_air:
            code[match["name"]] = _call(match, *in_air, declared)
    ir = _LIBRARY_FUNCTION.sub(lambda match: code.get(match["name"], match[0]), ir)
    ir = lowering.make_internal(nvptx.use_threadgroup_memory(ir))
    ir = ir.replace(f"define internal void @{ENTRY}", f"define void @{ENTRY}")
    return "\n".join([ir, *declared.values(), ""])


def _call(match, name, type, declared):
    """Returns the definition of a function of Metal's library that calls a function of AIR.

    Args:
      match: the match of _LIBRARY_FUNCTION for the function.
      name, type: the function of AIR.
      declared: {name of a function of AIR: its declaration}, which gets this function.
    """
    # `thread` memory is address space 5 of a GPU of AMD.
    type = re.sub(r"ptr(?! addrspace)", "ptr addrspace(5)", type)
    result, _, types = type.partition(" (")
    types = split(types[:-1])
    further = _further_arguments(name)
    values = [f"%{number}" for number in range(len(types) - len(further))] + further
    attributes = functions.attributes(name)
    readnone = " memory(none)" if attributes == functions.MATHEMATICS and "ptr" not in type else ""
    declared[name] = f"declare {result} @{name}({', '.join(types)}) {attributes}{readnone}"
    call = f"call {result} @{name}({', '.join(map(' '.join, zip(types, values)))})"
    body = f"{call}\nret void" if result == "void" else f"%r = {call}\nret {result} %r"
    parameters = ", ".join(type_of(text) for text in split(match["parameters"]))
    convergent = "convergent " if attributes == functions.CONVERGENT else ""
    return (
        f"define internal {result} @{match['name']}({parameters}) alwaysinline nounwind "
        f"{convergent}{{\n{body}\n}}"
    )


def _further_arguments(name):
    """Returns the last arguments of a function of AIR, which the library's function lacks."""
    if name.endswith(".barrier"):
        return ["1"]  # the scope: a threadgroup
    if name.startswith(("air.clz.", "air.ctz.")):
        return ["false"]  # zero is allowed
    if name.startswith("air.atomic.") and name != "air.atomic.fence":
        # The order is relaxed, the scope is a threadgroup or the device, the access is volatile.
        return ["0", "1" if ".local." in name else "2", "true"]
    return []

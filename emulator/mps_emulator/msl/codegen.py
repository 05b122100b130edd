"""Writes the part of a kernel library's C++ that does not come from the program.

For each kernel, this part has a thunk: the function that the executor calls.  The part also has
tables that describe the kernels.  include/implementation/abi.h declares the types of the thunks and
the tables.
"""

import json
from collections.abc import Callable, Sequence

from .kernel import Kernel, Parameter


def declarations(kernels: Sequence[Kernel]) -> str:
    """Returns the declarations, at program scope, of all thunks.

    The declarations must be before the program, because some thunks are defined inside of the
    program's namespaces.
    """
    return "".join(signature(number) + ";\n" for number in range(len(kernels)))


def signature(number: int) -> str:
    """Returns the head of the thunk of kernel `number`."""
    return (
        f'extern "C" void mps_emulator_msl_thunk_{number}('
        "const mps_emulator_msl_launch *launch, "
        "uint x, uint y, uint z, uint count)"
    )


def thunk(number: int, kernel: Kernel) -> str:
    """Returns the thunk of a kernel, as one line of C++.

    The thunk calls the kernel for `count` consecutive threads of a row.
    """
    buffers, call = call_of(kernel, _address)
    return (
        f"{signature(number)} {{ {buffers}"
        "for (uint i = 0; i < count; ++i) { "
        f"__msl::built_ins at = {{{{launch, {{x + i, y, z}}}}}}; {call}; }} }}"
    )


def _address(_, parameter):
    buffers = "threadgroup_buffers" if parameter.kind == "threadgroup" else "buffers"
    return f"launch->{buffers}[{parameter.index}]"


def call_of(kernel: Kernel, address: Callable[[int, Parameter], str]) -> tuple[str, str]:
    """Returns C++ that calls a kernel.

    The code around the call must define a variable `at` of type __msl::built_ins.

    Args:
      address: takes the number of a parameter and the Parameter, and returns an expression for the
        address of the parameter's buffer.
    Returns:
      Definitions of local variables for the buffers; and the call, which uses these variables.
    """
    buffers = []
    arguments = []
    for number, parameter in enumerate(kernel.parameters):
        if parameter.kind == "builtin":
            arguments.append(_builtin(parameter))
            continue
        kind = "reference" if parameter.by_reference else "pointer"
        name = f"__msl_buffer_{number}"
        buffers.append(f"__msl::buffer_{kind} {name} = {{{address(number, parameter)}}}; ")
        arguments.append(name)
    return "".join(buffers), f"({kernel.function})({', '.join(arguments)})"


def _builtin(parameter):
    """Returns the kernel's argument for a parameter like `uint2 i [[thread_position_in_grid]]`."""
    values = ", ".join(f"at.{parameter.builtin}({d})" for d in range(parameter.components))
    return f"::__msl::make<{parameter.builtin_type}>({values})"


def tables(kernels: Sequence[Kernel]) -> str:
    """Returns the C++ tables that describe the kernels.

    Args:
      kernels: the index of a kernel is the number of its thunk.
    """
    lines = [""]
    for number, kernel in enumerate(kernels):
        lines += _array("parameter", f"parameters_{number}", map(_parameter, kernel.parameters))
    rows = [_kernel(number, kernel) for number, kernel in enumerate(kernels)]
    lines += _array("kernel", "kernels", rows)
    lines += [
        'extern "C" __attribute__((visibility("default")))',
        "const mps_emulator_msl_module mps_emulator_msl_description = {",
        f"  kMpsEmulatorMslAbiVersion, {len(kernels)}, mps_emulator_msl_kernels,",
        "  &mps_emulator_msl_runtime_in_use};",
        "",
    ]
    return "\n".join(lines)


def _array(kind, name, rows):
    """Returns the lines that define an array of structures of abi.h.

    C++ has no empty arrays, so an empty row is added at the end.
    """
    head = f"static const mps_emulator_msl_{kind} mps_emulator_msl_{name}[] = {{"
    return [head, *(f"  {{{row}}}," for row in rows), "  {}};"]


def _parameter(parameter):
    return (
        f"{json.dumps(parameter.name)}, kMpsEmulatorMsl{parameter.kind.capitalize()}, "
        f"{parameter.index or 0}, {parameter.writable:d}, {parameter.by_reference:d}, "
        f"{parameter.constant:d}, {parameter.element_size}, "
        f"{parameter.alignment}"
    )


def _kernel(number, kernel):
    return (
        f"{json.dumps(kernel.name)}, &mps_emulator_msl_thunk_{number}, "
        f"mps_emulator_msl_parameters_{number}, {len(kernel.parameters)}, "
        f"{kernel.static_threadgroup_bytes}, {kernel.max_total_threads}, "
        f"{'kMpsEmulatorMslNeedsFibers' if kernel.suspends else '0'}"
    )

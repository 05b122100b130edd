"""Writes the code that makes a program's kernels usable on NVIDIA GPUs.

Each kernel gets an entry, a function that CUDA's driver can launch.  C++ for OpenCL cannot express
the shared memory of NVIDIA GPUs or a limit on the size of a threadgroup, so finish() adds both to
LLVM's intermediate representation.
"""

import re
from collections.abc import Sequence

from .codegen import call_of
from .kernel import Kernel

# See threadgroup_variable() in include/implementation/target_nvptx.h.
_THREADGROUP_MEMORY = r"@\"?[\w.$]*mps_emulator_threadgroup_memory[\w.$]*\"?"
_DEFINITION = re.compile(
    rf"^({_THREADGROUP_MEMORY}) = .*\baddrspace\(1\) global (\[\d+ x i8\]) zeroinitializer"
    r"(?:, comdat\S*)?(, align \d+)",
    re.MULTILINE,
)
_DECLARATION = re.compile(
    rf"^({_THREADGROUP_MEMORY} = external (?:\w+ )*)addrspace\(1\)", re.MULTILINE
)
# Only threadgroup_variable() and threadgroup_buffer() name this memory, and always in this form.
_USE = re.compile(
    rf"addrspacecast \(ptr addrspace\(1\) ({_THREADGROUP_MEMORY}) to ptr addrspace\(3\)\)"
)

# The program's functions, except its entries.
_FUNCTION = re.compile(r"^define (?:\w+_odr )?dso_local (?!spir_kernel )", re.MULTILINE)

# clang numbers its metadata from 0 on, so larger numbers are free.
_FIRST_METADATA = 1000000


def arguments(kernel: Kernel) -> list[tuple[str, int]]:
    """Returns the kind and the index of each 64-bit argument of a kernel's entry.

    An argument of kind "buffer" is an address in the GPU's memory.  An argument of kind
    "threadgroup" is an offset in bytes into the launch's dynamic shared memory; the offset
    must be a multiple of 16.  The index is the i of [[buffer(i)]] or [[threadgroup(i)]].
    """
    return [
        (parameter.kind, parameter.index)
        for parameter in kernel.parameters
        if parameter.kind != "builtin"
    ]


def symbol(kernel: Kernel) -> str:
    """Returns the name of a kernel's entry in PTX.

    PTX allows only letters, digits, _ and $ in names.  So $ replaces ::, and $CODE$ replaces other
    characters.
    """
    name = kernel.name.replace("::", "$")
    return re.sub(r"[^\w$]", lambda found: f"${ord(found[0]):x}$", name)


def description(kernel: Kernel) -> dict[str, object]:
    """Returns what a host must know to launch a kernel, as a dict for JSON.

    "max_threads" is None if the source does not limit the size of a threadgroup.  "numbers" is
    {index of a buffer: the scalar type of its contents}; see kernel.Parameter.
    """
    return {
        "name": kernel.name,
        "entry": symbol(kernel),
        "arguments": arguments(kernel),
        "max_threads": (kernel.max_total_threads if kernel.limits_threads else None),
        "threadgroup_bytes": kernel.static_threadgroup_bytes,
        "numbers": {
            str(parameter.index): parameter.numbers
            for parameter in kernel.parameters
            if parameter.kind == "buffer"
        },
    }


def entry(number: int, kernel: Kernel) -> str:
    """Returns the definition of a kernel's entry, as one line of C++.

    The entry's parameters are those that arguments() lists, followed by three 32-bit numbers: the
    size of the grid in threads.
    """
    signature = [
        f"ulong a{index}"
        for index, parameter in enumerate(kernel.parameters)
        if parameter.kind != "builtin"
    ]
    signature += ["uint x", "uint y", "uint z"]
    buffers, call = call_of(kernel, _address)
    return (
        f"__kernel void mps_emulator_msl_kernel_{number}({', '.join(signature)}) "
        f"{{ __msl::built_ins at = {{{{{{x, y, z}}}}}}; if (!at.is_in_grid()) return; {buffers}"
        f"[[clang::always_inline]] {call}; }}"
    )


def _address(number, parameter):
    if parameter.kind == "threadgroup":
        return f"__msl::target::threadgroup_buffer(a{number})"
    return f"(void *)a{number}"


def declarations(kernels: Sequence[Kernel]) -> str:
    """Returns declarations that give each entry its name in PTX."""
    lines = []
    for number, kernel in enumerate(kernels):
        types = ", ".join(["ulong"] * len(arguments(kernel)) + ["uint"] * 3)
        name = f"mps_emulator_msl_kernel_{number}"
        lines.append(f'__kernel void {name}({types}) __asm__("{symbol(kernel)}");\n')
    return "".join(lines)


def finish(ir: str, kernels: Sequence[Kernel]) -> str:
    """Puts threadgroup variables into shared memory, and adds the limits on threadgroup sizes.

    Args:
      ir: LLVM's intermediate representation of the program, as clang writes it without any
        optimization.
    """
    ir = _DECLARATION.sub(r"\1addrspace(3)", use_threadgroup_memory(ir))
    ir = _FUNCTION.sub("define internal ", ir)
    return ir + _limits_of_threads(kernels)


def use_threadgroup_memory(ir: str) -> str:
    """Puts threadgroup variables into address space 3."""
    ir = _DEFINITION.sub(r"\1 = internal addrspace(3) global \2 undef\3", ir)
    return _USE.sub(r"\1", ir)


def _limits_of_threads(kernels):
    """Returns metadata with the thread limits of the kernels whose source has a limit.

    Without this metadata, the assembler may give each thread so many registers that the GPU
    cannot run a threadgroup of the largest size.  The limit is for the product of the three
    dimensions.
    """
    lines = [""]
    for kernel in kernels:
        if not kernel.limits_threads:
            continue
        number = _FIRST_METADATA + len(lines)
        lines += [
            f'!{number} = !{{ptr @{symbol(kernel)}, !"maxntidx", i32 {kernel.max_total_threads}}}',
            f"!nvvm.annotations = !{{!{number}}}",
        ]
    return "\n".join(lines) + "\n"

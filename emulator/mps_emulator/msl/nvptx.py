"""Writes an entry for each kernel, with which a program runs on NVIDIA GPUs.

C++ for OpenCL cannot express shared memory and limits of threads for this target:
finish() adds both to LLVM's intermediate representation.
"""

import re

from .codegen import call_of

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
# Only threadgroup_variable() and threadgroup_buffer() use the memory.
_USE = re.compile(
    rf"addrspacecast \(ptr addrspace\(1\) ({_THREADGROUP_MEMORY}) to ptr addrspace\(3\)\)"
)

# The program's functions, except its entries.
_FUNCTION = re.compile(r"^define (?:\w+_odr )?dso_local (?!spir_kernel )", re.MULTILINE)

# Above the numbers of clang's own metadata, which begin at 0.
_FIRST_METADATA = 1000000


def arguments(kernel):
    """The 64-bit arguments of a kernel's entry, [(kind, index)].

    kind is "buffer" for an address in the GPU's memory, or "threadgroup" for an
    offset into the launch's dynamic shared memory, in bytes, a multiple of 16.
    """
    return [
        (parameter.kind, parameter.index)
        for parameter in kernel.parameters
        if parameter.kind != "builtin"
    ]


def symbol(kernel):
    """The name of a kernel's entry.  PTX allows letters, digits, _ and $ only."""
    name = kernel.name.replace("::", "$")
    return re.sub(r"[^\w$]", lambda found: f"${ord(found[0]):x}$", name)


def description(kernel):
    """The description of an entry that a host needs to launch it, for JSON.

    max_threads is None where the source does not limit a threadgroup.  numbers gives the scalar
    type of each buffer, by index; see analysis.kernels.Parameter.
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


def entry(number, kernel):
    """The entry of a kernel, as one line of C++.

    The entry's parameters are those of arguments(), then the size of the grid in
    threads, three 32-bit numbers.
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
        f"{{ __msl::place at = {{{{{{x, y, z}}}}}}; if (!at.is_in_grid()) return; {buffers}"
        f"[[clang::always_inline]] {call}; }}"
    )


def _address(number, parameter):
    if parameter.kind == "threadgroup":
        return f"__msl::target::threadgroup_buffer(a{number})"
    return f"(void *)a{number}"


def declarations(kernels):
    """Declares the entries of the kernels with their names in PTX."""
    lines = []
    for number, kernel in enumerate(kernels):
        types = ", ".join(["ulong"] * len(arguments(kernel)) + ["uint"] * 3)
        name = f"mps_emulator_msl_kernel_{number}"
        lines.append(f'__kernel void {name}({types}) __asm__("{symbol(kernel)}");\n')
    return "".join(lines)


def finish(ir, kernels):
    """Puts threadgroup variables into shared memory and limits threads.

    ir: clang's output for the program, before any pass of LLVM.
    """
    ir = _DEFINITION.sub(r"\1 = internal addrspace(3) global \2 undef\3", ir)
    ir = _DECLARATION.sub(r"\1addrspace(3)", ir)
    ir = _USE.sub(r"\1", ir)
    ir = _FUNCTION.sub("define internal ", ir)
    return ir + _limits_of_threads(kernels)


def _limits_of_threads(kernels):
    """Metadata with the kernels' limits of threads in a threadgroup.

    Without a limit the assembler may give each thread so many registers that a threadgroup of
    this size does not fit.  The limit counts the threads of all three dimensions together.
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

"""Writes what makes a program one for NVIDIA GPUs: an entry for every kernel,
and what C++ for OpenCL cannot say, in LLVM's intermediate representation."""

import re

from .codegen import ALLOW_POINTERS, END_POINTERS, builtin

# See threadgroup_variable() in include/implementation/target_nvptx.h.
_THREADGROUP_MEMORY = r"@\"?[\w.$]*mps_emulator_threadgroup_memory[\w.$]*\"?"
_DEFINITION = re.compile(
    r"^(%s) = .*\baddrspace\(1\) global (\[\d+ x i8\]) zeroinitializer"
    r"(?:, comdat\S*)?(, align \d+)" % _THREADGROUP_MEMORY,
    re.MULTILINE,
)
_DECLARATION = re.compile(
    r"^(%s = external (?:\w+ )*)addrspace\(1\)" % _THREADGROUP_MEMORY,
    re.MULTILINE,
)
# threadgroup_variable() and threadgroup_buffer() have the only ones.
_USE = re.compile(
    r"addrspacecast \(ptr addrspace\(1\) (%s) to ptr addrspace\(3\)\)"
    % _THREADGROUP_MEMORY
)

# The program's functions, which nobody calls from outside.
_FUNCTION = re.compile(
    r"^define (?:\w+_odr )?dso_local (?!spir_kernel )", re.MULTILINE
)

# Behind the metadata that clang writes, which it numbers from 0 on.
_FIRST_METADATA = 1000000


def arguments(kernel):
    """[(kind, index)] of the 64-bit numbers that a kernel's entry takes.

    kind is "buffer" for an address in the GPU's memory, or "threadgroup" for
    an offset in bytes, a multiple of 16, into the shared memory that the
    launch gives.
    """
    return [
        (parameter.kind, parameter.index)
        for parameter in kernel.parameters
        if parameter.kind != "builtin" and parameter.active
    ]


def symbol(kernel):
    """The name of a kernel's entry: PTX has letters, digits, _ and $ alone."""
    name = kernel.name.replace("::", "$")
    return re.sub(r"[^\w$]", lambda found: "$%x$" % ord(found[0]), name)


def description(kernel):
    """What a host has to know of an entry, for JSON.

    max_threads is None where the source does not limit a threadgroup.
    numbers has what each buffer consists of, by index; see
    analysis.Parameter.
    """
    return {
        "name": kernel.name,
        "entry": symbol(kernel),
        "arguments": arguments(kernel),
        "max_threads": (
            kernel.max_total_threads if kernel.limits_threads else None
        ),
        "threadgroup_bytes": kernel.static_threadgroup_bytes,
        "numbers": {
            str(parameter.index): parameter.numbers
            for parameter in kernel.parameters
            if parameter.kind == "buffer" and parameter.active
        },
    }


def entry(number, kernel):
    """The entry of a kernel, on one line.

    Its parameters are those of arguments() and the size of the grid in
    threads, three 32-bit numbers.
    """
    text = []
    signature = []
    given = []
    for index, parameter in enumerate(kernel.parameters):
        if parameter.kind == "builtin":
            given.append(builtin(parameter))
            continue
        kind = "reference" if parameter.by_reference else "pointer"
        address = "0"
        if parameter.active:
            signature.append("ulong a%d" % index)
            address = "a%d" % index
            if parameter.kind == "threadgroup":
                address = "__msl::target::threadgroup_buffer(%s)" % address
        text.append(
            "__msl::buffer_%s __msl_buffer_%d = {(void *)%s}; "
            % (kind, index, address)
        )
        given.append("__msl_buffer_%d" % index)
    signature += ["uint x", "uint y", "uint z"]
    return (
        "%s __kernel void mps_emulator_msl_kernel_%d(%s) { "
        "__msl::place at = {{x, y, z}}; if (!at.is_in_grid()) return; %s"
        "[[clang::always_inline]] (%s)(%s); } %s"
        % (
            ALLOW_POINTERS,
            number,
            ", ".join(signature),
            "".join(text),
            kernel.function,
            ", ".join(given),
            END_POINTERS,
        )
    )


def declarations(kernels):
    """Gives the entries of the kernels their names."""
    return "".join(
        '__kernel void mps_emulator_msl_kernel_%d(%s) __asm__("%s");\n'
        % (
            number,
            ", ".join(["ulong"] * len(arguments(kernel)) + ["uint"] * 3),
            symbol(kernel),
        )
        for number, kernel in enumerate(kernels)
    )


def finish(ir, kernels):
    """Puts threadgroup variables into shared memory and limits threads.

    ir: what clang made of the program, before any of LLVM's passes.
    """
    ir = _DEFINITION.sub(
        r"\1 = internal addrspace(3) global \2 undef\3", ir
    )
    ir = _DECLARATION.sub(r"\1addrspace(3)", ir)
    ir = _USE.sub(r"\1", ir)
    ir = _FUNCTION.sub("define internal ", ir)
    return ir + _limits_of_threads(kernels)


def _limits_of_threads(kernels):
    """Metadata that tells LLVM what the source says of its kernels.

    The assembler may use more registers than so many threads have if it is
    not told.  The limit is of the product of a threadgroup's sizes.
    """
    lines = [""]
    for kernel in kernels:
        if not kernel.limits_threads:
            continue
        number = _FIRST_METADATA + len(lines)
        lines += [
            '!%d = !{ptr @%s, !"maxntidx", i32 %d}'
            % (number, symbol(kernel), kernel.max_total_threads),
            "!nvvm.annotations = !{!%d}" % number,
        ]
    return "\n".join(lines) + "\n"

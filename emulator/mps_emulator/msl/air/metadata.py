"""Writes the metadata of a kernel's module as Apple's compiler does."""

import re
from collections.abc import Sequence

from ..kernel import Kernel
from .module import CONSTANT, DEVICE, THREADGROUP

# The GPU's compiler needs the SDK's version.
_FLAGS = [
    'i32 2, !"SDK Version", [2 x i32] [i32 14, i32 0]',
    'i32 1, !"wchar_size", i32 4',
    'i32 7, !"frame-pointer", i32 2',
    'i32 7, !"air.max_device_buffers", i32 31',
    'i32 7, !"air.max_constant_buffers", i32 31',
    'i32 7, !"air.max_threadgroup_buffers", i32 31',
    'i32 7, !"air.max_textures", i32 128',
    'i32 7, !"air.max_read_write_textures", i32 8',
    'i32 7, !"air.max_samplers", i32 16',
]


def metadata(kernel: Kernel, source: str, types: Sequence[str]) -> str:
    """Returns the lines of a module's metadata.

    Args:
      source: the name of the file that has the kernel.
      types: the types of the parameters of the kernel's function.
    """
    nodes = []

    def node(text):
        nodes.append(f"!{len(nodes)} = !{{{text}}}")
        return f"!{len(nodes) - 1}"

    flags = ", ".join(map(node, _FLAGS))
    named = [
        ("llvm.module.flags", flags),
        ("llvm.ident", node('!"mps-emulator"')),
        ("air.version", node("i32 2, i32 6, i32 0")),
        ("air.language_version", node('!"Metal", i32 3, i32 1, i32 0')),
        (
            "air.compile_options",
            ", ".join(
                node(f'!"air.compile.{option}"')
                for option in ("denorms_disable", "fast_math_disable", "framebuffer_fetch_enable")
            ),
        ),
        ("air.source_file_name", node(f'!"{source}"')),
    ]
    described = [_argument(number, parameter) for number, parameter in enumerate(kernel.parameters)]
    arguments = node(", ".join(map(node, described)))
    entry = [f"void ({', '.join(types)})* @{quoted(kernel.name)}", node(""), arguments]
    if kernel.limits_threads:
        entry.append(node(f'!"air.max_work_group_size", i32 {kernel.max_total_threads}'))
    named.append(("air.kernel", node(", ".join(entry))))
    return "\n".join([*(f"!{name} = !{{{content}}}" for name, content in named), *nodes, ""])


def _argument(number, parameter):
    """Describes a kernel's parameter as Apple's compiler describes it."""
    name = f'!"air.arg_name", !"{parameter.name}"'
    if parameter.kind == "builtin":
        type = f'!"air.arg_type_name", !"{parameter.builtin_type}"'
        return f'i32 {number}, !"air.{parameter.builtin}", {type}, {name}'
    is_threadgroup = parameter.kind == "threadgroup"
    written = parameter.writable or is_threadgroup
    space = THREADGROUP if is_threadgroup else CONSTANT if parameter.constant else DEVICE
    size = f'!"air.buffer_size", i32 {parameter.element_size}, ' if parameter.by_reference else ""
    access = "read_write" if written else "read"
    return (
        f'i32 {number}, !"air.buffer", {size}!"air.location_index", i32 {parameter.index}, i32 1, '
        f'!"air.{access}", !"air.address_space", i32 {space}, '
        f'!"air.arg_type_size", i32 {parameter.element_size}, '
        f'!"air.arg_type_align_size", i32 {parameter.alignment}, '
        f'!"air.arg_type_name", !"{_type_name(parameter)}", {name}'
    )


def _type_name(parameter):
    words = r"\b(?:const|volatile|constant|device|threadgroup|__global|__local)\b|[*&]"
    return re.sub(words, "", parameter.type_spelling).strip()


def quoted(name: str) -> str:
    """Returns the name of a function as LLVM spells it after the @."""
    return name if re.fullmatch(r"[\w.$]+", name) else f'"{name}"'

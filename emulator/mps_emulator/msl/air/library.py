"""Compiles kernels of a Metal library to a library for the emulator's executor."""

import concurrent.futures
import hashlib
import os
import pathlib
import re
import tempfile
from collections.abc import Sequence

from .. import codegen, toolchain
from ..errors import NoKernelError, ToolError
from ..kernel import MAX_THREADS_PER_THREADGROUP, Kernel, Parameter
from . import lowering, threadgroup_variables
from .metallib import Metallib
from .module import Module, disassemble

_TABLES = '#include "implementation/prelude.h"\n#include "implementation/thunk.h"\n'
# In the messages of the linkers ld and lld.
_UNDEFINED = re.compile(r"undefined (?:symbol: |reference to `)(air\.[\w.]+)")


def build(
    metallib: Metallib,
    functions: Sequence[str],
    output: str,
    cpu: str,
    report_accesses: bool = False,
    clang: str | None = None,
    cache: str | None = None,
) -> None:
    """Compiles kernels of a Metal library to a kernel library, a shared object.

    Args:
      functions: the names of the kernels.
      output: the path of the new file.
      cpu: the processor for clang's option -march.
      report_accesses: whether the library reports its accesses to memory to the executor.
      clang: the path of clang++; None to search for it.
      cache: a folder for the compiled functions of AIR; None for the folder of `output`.
    Raises:
      NoKernelError: the Metal library has no such kernel.
      ToolError: a kernel uses what the emulator lacks, or clang failed.
    """
    for name in functions:
        if name not in metallib.kernels:
            raise NoKernelError(f"the Metal library has no kernel '{name}'")
    clang = clang or toolchain.find_clang()
    near = os.path.dirname(os.path.abspath(output))
    air = _functions_of_air(clang, cpu, report_accesses, cache or near)
    with tempfile.TemporaryDirectory(dir=near) as folder:
        modules = [Module(disassemble(metallib.bitcode(name), clang)) for name in functions]

        def compile_module(number):
            text = lowering.lower(modules[number], number, report_accesses)
            source, compiled = (os.path.join(folder, f"{number}.{e}") for e in ("ll", "o"))
            pathlib.Path(source).write_text(text)
            _run(toolchain.compile_ir_command(clang, cpu, source, compiled, report_accesses, air))
            return compiled

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compile_module, range(len(modules))))
        tables = os.path.join(folder, "tables.clcpp")
        pathlib.Path(tables).write_text(_tables(functions, modules))
        _run(toolchain.compile_command(clang, False, cpu, tables, output, report_accesses, objects))


def _run(command):
    """Runs a command of clang.

    Raises:
      ToolError: the command failed.
    """
    status, printed = toolchain.run(command)
    if status == 0:
        return
    if lacking := sorted(set(_UNDEFINED.findall(printed))):
        raise ToolError("the emulator lacks functions of AIR: " + ", ".join(lacking))
    raise ToolError(" ".join(command) + "\n" + printed)


def _functions_of_air(clang, cpu, report_accesses, cache):
    """Returns the path of the bitcode of include/implementation/air.h, compiled if necessary."""
    headers = pathlib.Path(toolchain.IMPLEMENTATION_HEADERS, "implementation")
    options = toolchain.host_options(cpu, report_accesses)
    content = [clang, *options, *(path.read_text() for path in sorted(headers.iterdir()))]
    key = hashlib.sha256("\0".join(content).encode()).hexdigest()[:16]
    path = os.path.join(cache, f"air-{key}.bc")
    if not os.path.exists(path):
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            source, output = os.path.join(folder, "air.clcpp"), os.path.join(folder, "air.bc")
            pathlib.Path(source).write_text('#include "implementation/air.h"\n')
            _run(toolchain.bitcode_command(clang, cpu, source, output, report_accesses))
            os.replace(output, path)
    return path


def _tables(functions, modules):
    """Returns the C++ text of the library's tables, and of the thunks that the tables name."""
    kernels = [_kernel(name, module) for name, module in zip(functions, modules)]
    parts = [_TABLES, codegen.declarations(kernels)]
    for number in range(len(kernels)):
        entry = lowering.entry_name(number)
        parts.append(
            f'extern "C" void {entry}(const mps_emulator_msl_launch *, uint, uint, uint);\n'
            f"{codegen.signature(number)} {{\n"
            f"  for (uint i = 0; i < count; ++i) {entry}(launch, x + i, y, z);\n}}\n"
        )
    return "".join([*parts, codegen.tables(kernels)])


def _kernel(name, module):
    buffers = [argument for argument in module.arguments if argument.kind == "buffer"]
    return Kernel(
        name,
        function="",
        parameters=[_parameter(argument) for argument in buffers],
        max_total_threads=min(
            module.max_total_threads or MAX_THREADS_PER_THREADGROUP, MAX_THREADS_PER_THREADGROUP
        ),
        static_threadgroup_bytes=threadgroup_variables.size(module),
        suspends=lowering.suspends(module),
    )


def _parameter(argument):
    fields = argument.fields
    return Parameter(
        name=fields.get("arg_name", f"argument {argument.number}"),
        kind="threadgroup" if argument.is_threadgroup else "buffer",
        type_spelling=fields.get("arg_type_name", ""),
        index=argument.index,
        writable="read_write" in fields or "write" in fields,
        by_reference="buffer_size" in fields,
        constant=argument.is_constant,
        element_size=fields.get("arg_type_size", 1),
        alignment=fields.get("arg_type_align_size", 1),
    )

"""Finds clang and libclang, and makes the command lines of clang."""

import ctypes.util
import os
import shutil
import subprocess
import types
from collections.abc import Sequence

from .errors import ToolError

FOLDER = os.path.dirname(os.path.abspath(__file__))
METAL_HEADERS = os.path.join(FOLDER, "include", "metal")
IMPLEMENTATION_HEADERS = os.path.join(FOLDER, "include")

# The front end needs exactly this major version, because clang's AST and its treatment of
# address spaces differ between versions.
CLANG_VERSION = 19

# torch compiles for version 3.2 of Metal's language on macOS 15.  This version is based on C++14.
_METAL_VERSION = "-D__METAL_VERSION__=320"
_CPLUSPLUS = "-std=c++14"


def find_clang() -> str:
    """Returns the path of clang++.

    Raises:
      ToolError: clang++ is not found.
    """
    path = os.environ.get("MPS_EMULATOR_CLANG")
    path = path or shutil.which(f"clang++-{CLANG_VERSION}")
    path = path or shutil.which("clang++")
    if not path:
        raise ToolError(
            f"clang++ {CLANG_VERSION} is not found: apt-get install clang-{CLANG_VERSION} "
            f"lld-{CLANG_VERSION}, or set MPS_EMULATOR_CLANG to the path of clang++"
        )
    return path


def load_libclang() -> types.ModuleType:
    """Returns the module clang.cindex, set up to load libclang of CLANG_VERSION.

    Raises:
      ToolError: the Python package clang or libclang is missing.
    """
    try:
        from clang import cindex
    except ImportError:
        raise ToolError(
            f"the Python package clang is not installed: pip install 'clang=={CLANG_VERSION}.*'"
        ) from None
    if cindex.Config.loaded:
        return cindex
    given = os.environ.get("MPS_EMULATOR_LIBCLANG")
    path = given or ctypes.util.find_library(f"clang-{CLANG_VERSION}")
    if not path or given and not os.path.exists(given):
        raise ToolError(
            f"libclang {CLANG_VERSION} is not found{' at ' + given if given else ''}: apt-get "
            f"install libclang1-{CLANG_VERSION}, or set MPS_EMULATOR_LIBCLANG to the path of "
            "libclang.so"
        )
    cindex.Config.set_library_file(path)
    return cindex


def run(command: Sequence[str], content: bytes | None = None) -> tuple[int, str]:
    """Runs a command.

    Args:
      content: the command's standard input.
    Returns:
      The exit status; and the standard output and the standard error, as one text.
    Raises:
      ToolError: the system cannot start the command.
    """
    try:
        result = subprocess.run(
            command, input=content or b"", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        raise ToolError(f"{command[0]}: {error}") from None
    return result.returncode, result.stdout.decode(errors="replace")


def preprocess_command(clang: str, source: str, include_folders: Sequence[str]) -> list[str]:
    """Returns the command that prints the preprocessed text of the file `source`.

    The macros of Metal's compiler are predefined, and the macros of the host are not.
    """
    command = [
        clang,
        _CPLUSPLUS,
        # clang must print no warnings, because run() would join warnings with the preprocessed
        # text.
        *"-E -x c++ -undef -nostdinc -nostdinc++ -fno-color-diagnostics -w".split(),
    ]
    command += ["-I" + folder for folder in (METAL_HEADERS, *include_folders)]
    return command + [_METAL_VERSION, "-D__METAL__=1", source]


def dialect_options(fast_math: bool) -> list[str]:
    """Returns clang's options for parsing and for compiling rewritten text."""
    extensions = (
        "-all",
        "+__opencl_c_generic_address_space",
        "+__opencl_c_program_scope_global_variables",
        "+__cl_clang_function_pointers",
        "+cl_khr_fp16",
    )
    return [
        *"-x clcpp -cl-std=clc++2021 -cl-no-stdinc -cl-single-precision-constant".split(),
        "-Xclang",
        "-cl-ext=" + ",".join(extensions),
        _METAL_VERSION,
        "-I" + IMPLEMENTATION_HEADERS,
        "-fno-color-diagnostics",
        # The symbols of functions contain the address spaces of the language, not the address
        # spaces of the target.  On a GPU `constant` and `device` are the same address space, so two
        # overloads could otherwise get the same symbol.
        "-Xclang",
        "-faddress-space-map-mangling=no",
        # "on" allows fused multiply-adds within a statement.  Metal's safe math allows them too.
        "-ffp-contract=" + ("fast" if fast_math else "on"),
        "-fno-math-errno",
        # bfloat rounds after each operation.  By default, clang keeps the precision of float until
        # the end of an expression.
        "-Xclang",
        "-fbfloat16-excess-precision=none",
        "-w",
    ]


# With these options, a library calls a function of target_host.h before every access to memory,
# for every index outside of an array or a vector, and for every conversion of a float to an
# integer type that cannot represent the float.  The library has line numbers for messages.  No loop
# is vectorized, because the functions for accesses exist only for accesses of up to 16 bytes.  The
# read of `x += 1` is an access of its own, so that a read outside of all memory can give zero.
_REPORT_ACCESSES = """
    -DMSL_REPORT_ACCESSES -fsanitize=thread,array-bounds,float-cast-overflow
    -fno-sanitize-link-runtime
    -mllvm -tsan-instrument-func-entry-exit=0 -mllvm -tsan-instrument-atomics=0
    -mllvm -tsan-instrument-read-before-write=1
    -fno-vectorize -fno-slp-vectorize -gline-tables-only
""".split()


def compile_command(
    clang: str,
    fast_math: bool,
    cpu: str,
    source: str,
    output: str,
    report_accesses: bool = False,
    objects: Sequence[str] = (),
) -> list[str]:
    """Returns the command that compiles `source`, a file of rewritten text, to a shared object.

    Args:
      objects: the paths of compiled files, which the command links too.
    """
    return [
        clang,
        *dialect_options(fast_math),
        "-DMSL_CODE",
        *host_options(cpu, report_accesses),
        source,
        "-x",
        "none",
        *objects,
        "-o",
        output,
        *link_options(),
    ]


def bitcode_command(
    clang: str, cpu: str, source: str, output: str, report_accesses: bool
) -> list[str]:
    """Returns the command that compiles `source`, a file of rewritten text, to bitcode."""
    options = [*dialect_options(False), "-DMSL_CODE", *host_options(cpu, report_accesses)]
    return [clang, *options, "-emit-llvm", "-c", source, "-o", output]


def compile_ir_command(
    clang: str, cpu: str, source: str, output: str, report_accesses: bool, functions: str
) -> list[str]:
    """Returns the command that compiles LLVM's IR for the host.

    Args:
      functions: the path of the bitcode of functions that the IR may call.
    """
    options = ["-x", "ir", "-w", *host_options(cpu, report_accesses)]
    linked = ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", functions]
    return [clang, *options, *linked, "-c", source, "-o", output]


def host_options(cpu: str, report_accesses: bool) -> list[str]:
    """Returns clang's options for code that the host runs."""
    options = [*(_REPORT_ACCESSES if report_accesses else ()), "-march=" + cpu]
    return options + "-O2 -fPIC -fvisibility=hidden -fno-exceptions -fno-stack-protector".split()


def link_options() -> list[str]:
    """Returns clang's options that link a kernel library."""
    options = [
        *"-shared -nostdlib -Wl,--no-undefined -Wl,-z,relro".split(),
        # If the processor has no instruction that converts halves, the compiled code calls a
        # function of libgcc.
        *"-l:libm.so.6 -l:libc.so.6 -lgcc".split(),
    ]
    if shutil.which(f"ld.lld-{CLANG_VERSION}"):
        options.append("-fuse-ld=lld")
    return options


def nvptx_ir_command(
    clang: str,
    gpu: str,
    fast_math: bool,
    source: str,
    output: str,
    libdevice: str | None,
    whole_simdgroups: bool,
) -> list[str]:
    """Returns the command that compiles rewritten text to LLVM's IR, without optimization.

    Args:
      gpu, libdevice, whole_simdgroups: the arguments of Program.build_ptx().
    """
    command = [clang] + dialect_options(fast_math)
    command += _nvptx_options(gpu)
    command += ["-DMSL_CODE", "-gline-tables-only"]
    command += ["-Xclang", "-disable-llvm-passes"]
    if whole_simdgroups:
        command.append("-DMSL_WHOLE_SIMDGROUPS")
    if fast_math:
        command += ["-Xclang", "-fdenormal-fp-math-f32=preserve-sign"]
    if libdevice:
        command += ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", libdevice]
    return command + ["-S", "-emit-llvm", source, "-o", output]


def ptx_command(clang: str, gpu: str, fast_math: bool, source: str, output: str) -> list[str]:
    """Returns the command that compiles LLVM's IR to PTX."""
    command = [clang, "-x", "ir", "-w"] + _nvptx_options(gpu)
    # Inlines all functions, as Apple's compiler does.  A call in PTX would pass large arguments
    # through memory.
    for threshold in ("inline", "locally-hot-callsite"):
        command += ["-mllvm", f"-{threshold}-threshold=1000000"]
    if fast_math:  # the error of x / y may be 2 units in the last place
        command += ["-mllvm", "-nvptx-prec-divf32=1"]
    return command + ["-S", source, "-o", output]


def _nvptx_options(gpu):
    return (
        f"--target=nvptx64-nvidia-cuda -Xclang -target-cpu -Xclang {gpu}"
        " -Xclang -target-feature -Xclang +ptx78 -O3"
    ).split()


# The target whose address spaces air/writing.py changes to those of AIR.  AMD's GPUs could keep an
# array in a vector of 32 components, which AIR lacks.
_AIR_OPTIONS = """
    --target=amdgcn-amd-amdhsa -nogpulib -O2 -S -emit-llvm -fno-vectorize -fno-slp-vectorize
    -mllvm -disable-promote-alloca-to-vector
""".split()


def air_ir_command(clang: str, source: str, output: str) -> list[str]:
    """Returns the command that compiles rewritten text to LLVM's IR for air/preparing.py."""
    # A GPU may not join a product and a sum: the text could then have another result.
    options = [*dialect_options(False), "-ffp-contract=off", "-DMSL_CODE", "-DMSL_AIR"]
    passes = ["-Xclang", "-disable-llvm-passes"]
    return [clang, *options, *_AIR_OPTIONS, *passes, source, "-o", output]


def air_passes(clang: str, source: str, output: str) -> tuple[list[str], list[str]]:
    """Returns the commands that optimize LLVM's IR, so that all pointers have an address space."""
    first = [clang, "-x", "ir", "-w", *_AIR_OPTIONS]
    # All functions are inlined, as Apple's compiler does.
    inlined = [*first, "-mllvm", "-inline-threshold=1000000", source, "-o", output]
    # The first run finds the address spaces after the passes that use them.
    return inlined, [*first, "-fno-unroll-loops", output, "-o", output]


def assemble_air(text: str) -> bytes:
    """Returns the bitcode of a module whose pointers have types.

    Raises:
      ToolError: llvm-as is not found, or refuses the module.
    """
    program = os.environ.get("MPS_EMULATOR_LLVM_AS") or "llvm-as-14"
    if shutil.which(program) is None:
        raise ToolError(
            f"{program} is not found, and later releases of LLVM do not write pointers with types: "
            "apt-get install llvm-14, or set MPS_EMULATOR_LLVM_AS to the path of llvm-as"
        )
    done = subprocess.run([program, "-", "-o", "-"], input=text.encode(), capture_output=True)
    if done.returncode != 0:
        raise ToolError(f"{program} refuses a module of AIR: " + done.stderr.decode())
    return done.stdout

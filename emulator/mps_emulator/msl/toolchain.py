"""Finds clang and libclang, and writes their command lines."""

import ctypes.util
import os
import shutil
import subprocess

from .errors import ToolError

FOLDER = os.path.dirname(os.path.abspath(__file__))
METAL_HEADERS = os.path.join(FOLDER, "include", "metal")
IMPLEMENTATION_HEADERS = os.path.join(FOLDER, "include")

# The front end needs this major version: the AST and the treatment of address
# spaces differ between versions.
CLANG_VERSION = 19


# The version of Metal's language that torch asks for on macOS 15, and its C++.
_METAL_VERSION = "-D__METAL_VERSION__=320"
_CPLUSPLUS = "-std=c++14"


def find_clang():
    """The path of clang++."""
    path = os.environ.get("MPS_EMULATOR_CLANG")
    path = path or shutil.which(f"clang++-{CLANG_VERSION}")
    path = path or shutil.which("clang++")
    if not path:
        raise ToolError(
            f"clang++ {CLANG_VERSION} is not found: apt-get install clang-{CLANG_VERSION} "
            f"lld-{CLANG_VERSION}, or set MPS_EMULATOR_CLANG to the path of clang++"
        )
    return path


def load_libclang():
    """Imports clang.cindex and makes it load libclang of CLANG_VERSION."""
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


def run(command):
    """Runs a command; returns (exit status, output)."""
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise ToolError(f"{command[0]}: {error}") from None
    return result.returncode, result.stdout


def preprocess_command(clang, source, include_folders):
    """The command that prints the preprocessed text of the file `source`.

    Metal's macros are predefined, the host's are not.
    """
    command = [
        clang,
        _CPLUSPLUS,
        # Warnings would mix with the preprocessed text.
        *"-E -x c++ -undef -nostdinc -nostdinc++ -fno-color-diagnostics -w".split(),
    ]
    command += ["-I" + folder for folder in (METAL_HEADERS, *include_folders)]
    return command + [_METAL_VERSION, "-D__METAL__=1", source]


def dialect_options(fast_math):
    """clang's options for the rewritten text, for parsing and compiling."""
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
        # Names functions by the address spaces of the language.  On a GPU, `constant` and `device`
        # are one address space, so two overloads would get one name.
        *("-Xclang", "-faddress-space-map-mangling=no"),
        # Metal's safe mode too contracts products and sums within a statement.
        "-ffp-contract=" + ("fast" if fast_math else "on"),
        "-fno-math-errno",
        "-w",
    ]


# With these options every access to memory, every index beyond an array or a vector, and every
# conversion of a float to an integer type that lacks its value calls a function of target_host.h.
# The library keeps line numbers.  Vectorized accesses are too wide for the functions.
_CHECK_RACES = """
    -DMSL_CHECK_RACES -fsanitize=thread,array-bounds,float-cast-overflow
    -fno-sanitize-link-runtime
    -mllvm -tsan-instrument-func-entry-exit=0 -mllvm -tsan-instrument-atomics=0
    -fno-vectorize -fno-slp-vectorize -gline-tables-only
""".split()


def compile_command(clang, fast_math, cpu, source, output, check_races=False):
    """The command that compiles rewritten text to a shared object."""
    command = [clang] + dialect_options(fast_math)
    command.append("-DMSL_CODE")
    if check_races:
        command += _CHECK_RACES
    command += [
        "-march=" + cpu,
        *"-O2 -fPIC -fvisibility=hidden -fno-exceptions -fno-stack-protector".split(),
        source,
        *("-x", "none", "-o", output),
        *"-shared -nostdlib -Wl,--no-undefined -Wl,-z,relro".split(),
        # On a processor without an instruction that converts halves, libgcc converts them.
        *"-l:libm.so.6 -l:libc.so.6 -lgcc".split(),
    ]
    if shutil.which(f"ld.lld-{CLANG_VERSION}"):
        command.append("-fuse-ld=lld")
    return command


def nvptx_ir_command(clang, gpu, fast_math, source, output, libdevice, whole_simdgroups):
    """The command that compiles rewritten text to LLVM's IR, without optimization.

    gpu:       an architecture, like sm_80.
    libdevice: the path of libdevice.10.bc; with None the IR keeps references to
               its mathematical functions.
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


def ptx_command(clang, gpu, fast_math, source, output):
    """The command that compiles LLVM's IR to PTX, the assembly of NVIDIA's GPUs."""
    command = [clang, "-x", "ir", "-w"] + _nvptx_options(gpu)
    # Apple's compiler inlines all functions.  A call of PTX passes a large argument in memory.
    command += ["-mllvm", "-inline-threshold=1000000"]
    if fast_math:  # x / y within 2 ulp
        command += ["-mllvm", "-nvptx-prec-divf32=1"]
    return command + ["-S", source, "-o", output]


def _nvptx_options(gpu):
    return (
        f"--target=nvptx64-nvidia-cuda -Xclang -target-cpu -Xclang {gpu}"
        " -Xclang -target-feature -Xclang +ptx78 -O3"
    ).split()

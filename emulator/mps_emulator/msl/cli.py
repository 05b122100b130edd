"""The command line of python -m mps_emulator.msl."""

import argparse
import json
import sys
import traceback
from collections.abc import Sequence

from .air import library as air_library
from .air.metallib import Metallib
from .errors import NoKernelError, Refused, ToolError
from .nvptx import arguments as ptx_arguments
from .nvptx import description as ptx_description
from .pipeline import PROGRAM_SOURCE, Program

# Python itself exits with status 1 or 2, so the front end must use other numbers.
EXIT_REFUSED = 10
EXIT_FAILED = 11


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command of the front end; returns the exit status.

    Args:
      arguments: the words of the command line; None for those of this process.
    """
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except (Refused, NoKernelError) as refused:
        sys.stdout.write(str(refused))
        return EXIT_REFUSED
    except ToolError as error:
        sys.stdout.write(f"mps_emulator.msl: error: {error}\n")
        return EXIT_FAILED
    except Exception:
        # An error of the front end itself.
        traceback.print_exc(file=sys.stdout)
        return EXIT_FAILED


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m mps_emulator.msl",
        description="The emulator's front end for the Metal Shading Language.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_build(commands)
    _add_build_metallib(commands)
    _add_metallib(commands)
    _add_ptx(commands)
    return parser


def _add_build(commands):
    parser = commands.add_parser("build", help="compile to a library for the emulator's executor")
    parser.add_argument("source")
    parser.add_argument("--output", required=True)
    parser.add_argument("--cpu", default="x86-64")
    parser.add_argument(
        "--report-accesses",
        action="store_true",
        help="make the kernels report their accesses to memory to the executor",
    )
    parser.set_defaults(run=_build)
    _add_common(parser)


def _add_build_metallib(commands):
    parser = commands.add_parser(
        "build-metallib", help="compile kernels of a .metallib to a library for the executor"
    )
    parser.add_argument("metallib", metavar="FILE.metallib")
    parser.add_argument("--kernel", action="append", default=[], metavar="NAME")
    parser.add_argument("--output", required=True)
    parser.add_argument("--cache", help="a folder for the parts that all kernels share")
    parser.add_argument("--cpu", default="x86-64")
    parser.add_argument("--report-accesses", action="store_true")
    parser.add_argument("--clang", help="the path of clang++")
    parser.set_defaults(run=_build_metallib)


def _add_metallib(commands):
    parser = commands.add_parser(
        "metallib",
        help="compile to a .metallib, a library of AIR 2.6 for macOS 14",
        description="The options are those of Apple's compiler `metal`.",
    )
    parser.add_argument("source", metavar="FILE.metal")
    parser.add_argument("-o", "--output", required=True, metavar="FILE.metallib")
    parser.add_argument("-I", dest="include", action="append", default=[], metavar="FOLDER")
    parser.add_argument(
        "-fno-fast-math", action="store_true", required=True, help="the only mode that is supported"
    )
    parser.add_argument("-mmacosx-version-min", choices=["14.0"], default="14.0")
    parser.add_argument("--clang", help="the path of clang++")
    parser.set_defaults(run=_metallib, fast_math=False)


def _add_ptx(commands):
    parser = commands.add_parser(
        "ptx",
        help="compile to PTX for NVIDIA GPUs",
        description=(
            "Writes PTX and prints the arguments of each kernel's entry. The "
            "argument for buffer(i) is a 64-bit address. The argument for "
            "threadgroup(i) is a 64-bit offset into the launch's dynamic shared "
            "memory. After these, each entry has three 32-bit arguments: the size "
            "of the grid in threads."
        ),
    )
    parser.add_argument("source", metavar="FILE.metal")
    parser.add_argument("--output", required=True, metavar="FILE.ptx")
    parser.add_argument("--gpu", default="sm_80")
    parser.add_argument(
        "--libdevice",
        metavar="LIBDEVICE.BC",
        help="link CUDA's mathematical functions from this file",
    )
    parser.add_argument(
        "--whole-simdgroups",
        action="store_true",
        help="assume that all lanes of a simdgroup call each simdgroup function together",
    )
    parser.add_argument(
        "--json", metavar="FILE.json", help="also write a description of the kernels to this file"
    )
    parser.set_defaults(run=_ptx)
    _add_common(parser)


def _add_common(parser):
    parser.add_argument("--include", "-I", action="append", default=[], metavar="FOLDER")
    parser.add_argument("--no-fast-math", dest="fast_math", action="store_false")
    parser.add_argument("--clang", help="the path of clang++")


def _program(options, path, name):
    return Program(
        path,
        name,
        include_folders=options.include,
        clang=options.clang,
        fast_math=options.fast_math,
    )


def _build(options):
    program = _program(options, options.source, PROGRAM_SOURCE)
    program.build(options.output, options.cpu, options.report_accesses)
    return 0


def _build_metallib(options):
    with open(options.metallib, "rb") as file:
        metallib = Metallib(file.read())
    air_library.build(
        metallib,
        options.kernel,
        options.output,
        options.cpu,
        options.report_accesses,
        options.clang,
        options.cache,
    )
    return 0


def _metallib(options):
    _program(options, options.source, options.source).build_metallib(options.output)
    return 0


def _ptx(options):
    program = _program(options, options.source, options.source)
    kernels = program.build_ptx(
        options.output, options.gpu, options.libdevice, options.whole_simdgroups
    )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([ptx_description(kernel) for kernel in kernels], file)
    for kernel in kernels:
        arguments = [f"{kind}({index})" for kind, index in ptx_arguments(kernel)]
        sys.stdout.write("{}: {}\n".format(kernel.name, ", ".join(arguments)))
    return 0

"""The command line of python -m mps_emulator.replay."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..msl.errors import Refused, ToolError
from ..msl.native import CompileError, Fatal
from . import cuda, prepare
from .emulated import Emulated
from .recording import Recording
from .replaying import WRONG, add_options, replay


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status.

    Args:
      arguments: the words of the command line; None for those of this process.
    """
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except (CompileError, Fatal, OSError, Refused, ToolError, ValueError) as error:
        print(f"python -m mps_emulator.replay: error: {error}")
        return cuda.UNUSABLE


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m mps_emulator.replay",
        description="Repeats the work of a recording (mps_emulator.record()) "
        "and compares every buffer.",
        epilog="Exit status: 0 all results are as recorded, 1 some differ, 4 the "
        "recording cannot be used.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_check(commands)
    _add_prepare(commands)
    return parser


def _add_check(commands):
    parser = commands.add_parser(
        "check",
        help="replay on the emulated device",
        description="Replays a recording on the emulated device. "
        "MPS_EMULATOR_SCHEDULE chooses the order of the threads.",
    )
    parser.add_argument("recording", type=Path)
    add_options(parser)
    parser.set_defaults(run=_check)


def _add_prepare(commands):
    parser = commands.add_parser(
        "prepare",
        help="make a folder whose replay.py replays on an NVIDIA GPU",
        description="Makes a folder that replays a recording on the NVIDIA GPU of "
        "another machine: python FOLDER/replay.py.",
    )
    parser.add_argument("recording", type=Path)
    parser.add_argument("folder", type=Path, help="a new or empty folder")
    parser.add_argument(
        "--gpu",
        default="sm_80",
        metavar="ARCHITECTURE",
        help="the oldest architecture of a GPU that can load the PTX (default: sm_80)",
    )
    parser.add_argument(
        "--libdevice",
        type=Path,
        default=prepare.find_libdevice(),
        metavar="FILE",
        help="CUDA's libdevice.10.bc; default: the installed toolkit's",
    )
    parser.add_argument(
        "--whole-simdgroups",
        action="store_true",
        help="assume that all lanes of a simdgroup call each simdgroup function together",
    )
    parser.add_argument(
        "--times-only",
        nargs="?",
        const=float("inf"),
        type=float,
        metavar="MIB",
        help="make a smaller folder without results, and, if MIB is given, without inputs of more "
        "than MIB mebibytes; its replay.py measures times and compares nothing",
    )
    parser.set_defaults(run=_prepare)


def _check(options):
    recording = Recording(options.recording)
    wrong = replay(recording, Emulated(recording), prepare.describe(recording), options.tolerance)
    return WRONG if wrong else 0


def _prepare(options):
    prepare.prepare(
        Recording(options.recording),
        options.folder,
        options.gpu,
        options.libdevice,
        options.whole_simdgroups,
        None if options.times_only is None else options.times_only * 2**20,
    )
    print(f"python {options.folder}/replay.py")
    return 0


if __name__ == "__main__":
    sys.exit(main())

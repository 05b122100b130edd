"""The command line of the checks."""

import argparse
import sys
import tempfile
from pathlib import Path

from k2_mps_tests import ending
from k2_mps_tests.kernels import prepare, registers, runner, sources, validated

MISSING = 4


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m k2_mps_tests.kernels",
        allow_abbrev=False,  # main() looks for the word --validated
        description="Checks each Metal kernel of the series by itself against "
        "a reference in float64.",
        epilog="Exit status: 0 all kernels are right, 1 a kernel is wrong, 3 there is "
        "no GPU, 4 a check or a file that it needs is missing.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="FILE",
        help="files of kernels to check on mps, without .metal (default: all)",
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=2,
        metavar="COUNT",
        help="launches of each case on mps; all must give the same bits (default: 2)",
    )
    parser.add_argument(
        "--metallib",
        type=Path,
        metavar="FOLDER",
        help="launch the kernels of FILE.metallib in a folder, not those of the texts",
    )
    parser.add_argument(
        "--write-metallibs",
        type=Path,
        metavar="FOLDER",
        help="run no kernel; compile the files on Linux to FILE.metallib, for a Mac",
    )
    parser.add_argument(
        "--validated",
        action="store_true",
        help="turn Metal's validation on: an access outside of memory makes the exit status 1",
    )
    parser.add_argument(
        "--train", action="store_true", help="train a small transducer with one of the kernels"
    )
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="where kernels run.  cpu (default): torch's mps device, which the CPU emulates "
        "on Linux; cuda: an NVIDIA GPU, as PTX",
    )
    parser.add_argument(
        "--prepare",
        type=Path,
        metavar="FOLDER",
        help="run no kernel; make a folder whose run.py checks the kernels on the NVIDIA GPU of "
        "another machine",
    )
    parser.add_argument(
        "--libdevice",
        type=Path,
        metavar="FILE",
        help="CUDA's libdevice.10.bc; default: the installed toolkit's, else PyPI's",
    )
    return parser


def main():
    parser = _parser()
    options = parser.parse_args()
    only_on_mps = options.names or options.validated or options.metallib
    if only_on_mps and (options.prepare or options.device == "cuda"):
        parser.error("FILE, --metallib and --validated are only for checks on mps")
    if options.validated:
        words = [word for word in sys.argv[1:] if word != "--validated"]
        sys.exit(validated.run([sys.executable, "-m", "k2_mps_tests.kernels", *words]))
    try:
        sys.exit(_run(options))
    except LookupError as error:
        print(f"error: {error}")
        sys.exit(MISSING)


def _run(options):
    if options.train:
        from k2_mps_tests.kernels import train

        return train.main([])
    if options.prepare is not None:
        return _prepare(options.prepare, options)
    unknown = set(options.names) - set(sources.names())
    if unknown:
        raise LookupError(f"no file of kernels is called {', '.join(sorted(unknown))}")
    if options.write_metallibs is not None:
        sources.write_metallibs(options.write_metallibs, options.names or sources.names())
        return 0
    if options.device == "cpu":
        from k2_mps_tests.kernels import on_mps

        return on_mps.run(names=options.names, runs=options.runs, metallibs=options.metallib)
    if runner.first_gpu() is None:
        return runner.NO_GPU
    with tempfile.TemporaryDirectory() as folder:
        return _prepare(Path(folder), options) or runner.run(Path(folder))


def _prepare(folder, options):
    from mps_emulator.replay.prepare import find_libdevice  # on Linux only

    libdevice = options.libdevice or find_libdevice() or registers.find_libdevice()
    if libdevice is None or not libdevice.exists():
        raise LookupError(
            "CUDA's libdevice.10.bc is not found; give it with --libdevice: "
            "the wheel nvidia-cuda-nvcc-cu12 and CUDA's toolkit have it"
        )
    count = prepare.prepare(folder, libdevice)
    print(f"{folder}: {count} cases")
    return 0


if __name__ == "__main__":
    ending.run(main)

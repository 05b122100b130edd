"""Records what bench.py's operations ask of the (emulated) device.

    .venv/bin/python -m k2_mps_tests.benchmarks.record FOLDER [OPERATION ...]

Each recording is of a second call, with Metal for all that it can do.  What to
do with it: emulator/mps_emulator/replay/README.md.  k2's kernels are for whole
simdgroups: give `prepare` --whole-simdgroups.
"""

import argparse
import re
from pathlib import Path

import mps_emulator
import torch

from k2_mps_tests.benchmarks import bench


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="one folder in it for each")
    parser.add_argument(
        "operations",
        nargs="*",
        metavar="OPERATION",
        help="what is in the name of those; default: all",
    )
    parser.add_argument(
        "--size",
        type=int,
        nargs=3,
        metavar=("B", "T", "S"),
        default=bench.SIZES["full"][-1],
        help="utterances, frames, symbols; %(default)s",
    )
    options = parser.parse_args()
    with bench.forced("metal"):
        for name, function in bench.operations(options.size, "mps"):
            if options.operations and not any(wanted in name for wanted in options.operations):
                continue
            function()
            folder = options.folder / re.sub(r"\W+", "_", name)
            with mps_emulator.record(folder):
                function()
                torch.mps.synchronize()
            print(f"{name}: {folder}")


if __name__ == "__main__":
    main()

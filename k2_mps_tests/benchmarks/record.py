"""Records the work of bench.py's operations on the emulated device.

    .venv/bin/python -m k2_mps_tests.benchmarks.record FOLDER [OPERATION ...]

Each recording has the second call of an operation, with K2_MPS_FORCE=metal.  See
emulator/mps_emulator/replay/README.md for the replay.  A replay leaves out torch's
operators, so the program prints their number.  Give `prepare` the option
--whole-simdgroups, because all lanes of a simdgroup reach each simdgroup function of
k2's kernels.
"""

import argparse
import re
from pathlib import Path

import mps_emulator
import torch

from k2_mps_tests import ending
from k2_mps_tests.benchmarks import bench


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where to make a folder for each operation")
    parser.add_argument(
        "operations",
        nargs="*",
        metavar="OPERATION",
        help="a part of the operation's name; default: all",
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
            counts = bench.commands(function)
            print(f"  {counts['dispatches']} kernels of k2")
            print(f"  {counts['operators']} operators of torch, which the replay leaves out")


if __name__ == "__main__":
    ending.run(main)

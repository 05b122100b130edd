"""Prints estimates of the times of k2's operations on Macs.

    python -m k2_mps_tests.benchmarks.estimates

Nothing was measured on a Mac: k2_mps_tests/agx/model.py says how the estimates are made.  They are
made from the counts in k2_mps_tests/agx/operations.toml and kernels.toml.  `--write` counts anew
what the operations of bench.py do on emulated mps, and needs a build of k2 and about six minutes.
"""

import argparse
import tempfile
from pathlib import Path

from k2_mps_tests import ending
from k2_mps_tests.agx import counting, model

SIZE = (8, 200, 30)  # utterances, frames, symbols: a size of bench.py


def counted():
    """Returns {name: model.Operation} of the operations that give the GPU work."""
    import k2
    import mps_emulator
    import torch
    from k2.mps.placement import placements

    from k2_mps_tests.benchmarks.bench import forced
    from k2_mps_tests.benchmarks.operations import operations
    from k2_mps_tests.benchmarks.step_cost import Bytes

    found = {}
    with tempfile.TemporaryDirectory() as scratch, forced("metal"):
        for number, (name, function) in enumerate(operations(SIZE, "mps")):
            function()  # makes what k2 keeps with a graph
            torch.mps.synchronize()
            folder = Path(scratch, str(number))
            calls = {placed.operation: placed.num_calls for placed in placements()}
            with mps_emulator.record(folder), k2.mps.counters() as counts, Bytes() as noted:
                function()
                torch.mps.synchronize()
            if not counts.dispatches:
                continue  # an operation of the host
            commands = counts.dispatches + counts.operators
            waits = counts.drains + counts.torch_waits
            steps = {
                placed.operation: int(placed.last_steps)
                for placed in placements()
                if placed.num_calls > calls[placed.operation]
            }
            work = counting.count(folder)
            found[name] = model.Operation(commands, waits, noted.moved, steps, work)
            print(name, flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(
        prog="python -m k2_mps_tests.benchmarks.estimates",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--write", action="store_true", help="write operations.toml anew")
    if parser.parse_args().write:
        model.write(SIZE, counted())
    head, rows = model.table()
    for cells in (head, ["---"] * len(head), *rows):
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    ending.run(main)

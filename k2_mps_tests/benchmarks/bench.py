"""Times k2's operations in each place where they can run.

    python -m k2_mps_tests.benchmarks.bench --output build/bench

The command times each operation on the CPU, on mps in the host's code (mps-host), on mps
in Metal's kernels (mps-metal), and, if k2 has CUDA, on CUDA.  The command prints a table, and
writes a plot (PNG and SVG) and a JSON file to the folder.  With `--compare FILE`, the table
has the changes since an earlier JSON file.

A time is the median of several runs, including the wait for the GPU; beside it are the
least and the largest time.  A second table has the GPU's own times.  If an operation fails,
the other operations still run, and the exit status is 1.

On Linux, mps is emulated.  Emulated times say nothing about a GPU, so each output marks these
times as emulated.  On Linux, a third table compares the emulated device with the CPU.  The
third table has the time that a Mac's host would need, the number of k2's dispatches, the number
of torch's operators, the bytes that these operators move, the number of waits, and the peak of
memory (see shares.py).
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from unittest import mock

import k2
import torch
from k2mps.build.environment import Environment
from k2mps.core import project

from k2_mps_tests import ending, gpu_times
from k2_mps_tests.benchmarks import shares
from k2_mps_tests.benchmarks.operations import COPIED_BYTES, COPY, basics, operations

FOLDER = Path(__file__).parents[2] / "build/bench"
# (utterances, frames of each utterance, symbols of each target)
SIZES = {
    "quick": [(1, 30, 5), (4, 100, 12)],
    "full": [(1, 50, 10), (4, 100, 20), (8, 200, 30), (16, 300, 40), (32, 500, 60)],
}
FORCE = "K2_MPS_FORCE"
# {name: (device, value of K2_MPS_FORCE)}
PLACES = {
    "cpu": ("cpu", "host"),
    "cuda": ("cuda", "host"),
    "mps-host": ("mps", "host"),
    "mps-metal": ("mps", "metal"),
}


def places():
    """Returns the names of the places where this k2 can run operations."""
    has = {
        "cpu": True,
        "cuda": k2.with_cuda and torch.cuda.is_available(),
        "mps": k2.with_mps and torch.backends.mps.is_available(),
    }
    return [name for name, (device, _) in PLACES.items() if has[device]]


def where():
    """Returns facts of this machine.  --compare refuses a file with other facts."""
    mps = "real"
    if "mps-metal" not in places():
        mps = "none"
    elif sys.platform != "darwin":
        mps = "emulated"
    return {
        "mps": mps,
        "machine": platform.machine(),
        "system": platform.system(),
        "cuda": torch.cuda.get_device_name() if "cuda" in places() else "",
    }


def forced(who):
    """Returns a context in which `who` runs each operation that both the host and Metal can run.

    who: "host" or "metal".
    """
    return mock.patch.dict(os.environ, {FORCE: who})


def wait(device):
    """Waits for a device."""
    if device != "cpu":
        getattr(torch, device).synchronize()


def seconds_of_calls(function, device, repeats):
    """Returns the times of `repeats` calls, in seconds, with the wait for the device."""
    times = []
    for _ in range(repeats + 1):  # The first call compiles kernels and fills caches.
        wait(device)
        begin = time.perf_counter()
        function()
        wait(device)
        times.append(time.perf_counter() - begin)
    return times[1:]


def measure(function, device, repeats):
    """Returns the median time of a call, in seconds."""
    return statistics.median(seconds_of_calls(function, device, repeats))


def timings(function, device, repeats):
    """Measures an operation.

    Returns:
      {'seconds': the median time of a call, 'least' and 'most': the other ends of the spread}; on
      mps also {'gpu_milliseconds': the spread of the GPU's own times, or None}, from further calls.
    """
    times = seconds_of_calls(function, device, repeats)
    row = {"seconds": statistics.median(times), "least": min(times), "most": max(times)}
    if device == "mps":
        taken = []
        for _ in range(repeats):
            with gpu_times.measured() as one:
                function()
            taken.append(one.milliseconds)
        row["gpu_milliseconds"] = gpu_times.spread(taken)
    return row


def commands(function):
    """Counts the commands that a call on mps gives to the GPU.

    Returns:
      {'dispatches': the number of k2's kernels, 'operators': the number of torch's operators}
    """
    with k2.mps.counters() as counted:
        function()
    return {"dispatches": counted.dispatches, "operators": counted.operators}


def run(sizes, repeats):
    """Yields a row, a dict, for each measurement.

    A row has the operation, the size, the place, and what timings() returns.  On mps, the row also
    has the result of commands(); on emulated mps, it has the result of shares.profile(), too.
    If the operation fails, the row has only the operation, the size, the place and the error; the
    other operations still run.
    """
    for size in [(), *sizes]:
        for place in places():
            device, who = PLACES[place]
            if not size and place == "mps-host":
                continue  # The basic operations do not depend on the place.
            with forced(who):
                for name, function in operations(size, device) if size else basics(device):
                    row = {"operation": name, "size": list(size), "place": place}
                    try:
                        row.update(_measured(function, device, repeats))
                    except Exception as error:  # An operation may fail in any way.
                        row["error"] = f"{type(error).__name__}: {error}"
                    yield row


def _measured(function, device, repeats):
    row = timings(function, device, repeats)
    if device == "mps":
        row.update(commands(function))
    if where()["mps"] == "emulated" and device != "cuda":
        row.update(shares.profile(function, device))
    return row


def table(rows, before=()):
    """Yields the lines of the table: medians, with the least and the largest time.

    before: the rows of an earlier run.  The table shows the changes since that run.
    """
    names = [place for place in PLACES if any(row["place"] == place for row in rows)]
    old = {_key(row): row["seconds"] for row in before if "seconds" in row}
    yield " ".join([f"{'':<42} {'B, T, S':<14}"] + [f"{name:>30}" for name in names])
    cells = {}
    for row in rows:
        text = "failed"
        if "seconds" in row:
            text = f"{_time(row['seconds'])} ({_time(row['least'])} to {_time(row['most'])})"
            if _key(row) in old:
                text += f" {old[_key(row)] / row['seconds']:.2f}x"
        cells.setdefault((row["operation"], tuple(row["size"])), {})[row["place"]] = text
    for operation, size in sorted(cells, key=lambda cell: (cell[0], cell[1])):
        yield " ".join(
            [f"{operation:<42} {', '.join(map(str, size)):<14}"]
            + [f"{cells[operation, size].get(name, ''):>30}" for name in names]
        )


def _time(seconds):
    return f"{seconds * 1e3:.2f} ms"


def gpu_table(rows, emulated):
    """Yields lines with the GPU's own times, in milliseconds, and the bandwidth of the copy."""
    for row in rows:
        if "gpu_milliseconds" not in row:
            continue
        size = ", ".join(map(str, row["size"]))
        text = gpu_times.text(row["gpu_milliseconds"])
        if row["operation"] == COPY and row["gpu_milliseconds"]:
            # A copy reads and writes each byte.
            rate = 2 * COPIED_BYTES / (row["gpu_milliseconds"]["median"] * 1e6)
            text += f": {rate:.1f} GB/s"
        yield f"{row['operation']}, {size or 'any size'}, {row['place']}{emulated}: {text}"


def _key(row):
    return row["operation"], tuple(row["size"]), row["place"]


def plot(rows, machine, folder):
    """Plots times over sizes, one plot for each operation."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in rows if row["size"] and "seconds" in row]
    names = sorted({row["operation"] for row in rows})
    across = 2
    down = -(-len(names) // across)
    figure, axes = pyplot.subplots(
        down, across, squeeze=False, figsize=(5 * across, 3 * down), layout="constrained"
    )
    for axis in axes.flat[len(names) :]:
        axis.set_axis_off()
    for axis, name in zip(axes.flat, names):
        for place in PLACES:
            mine = [row for row in rows if (row["operation"], row["place"]) == (name, place)]
            if mine:
                label = place
                if place.startswith("mps") and machine["mps"] == "emulated":
                    label += " (emulated)"
                axis.loglog(
                    [row["size"][0] * row["size"][1] for row in mine],
                    [row["seconds"] * 1e3 for row in mine],
                    marker="o",
                    label=label,
                )
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("frames of all utterances")
        axis.set_ylabel("ms")
    figure.legend(
        *axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(PLACES)
    )
    if machine["mps"] == "emulated":
        figure.suptitle("mps is emulated: no times of a GPU", color="red")
    for kind in ("png", "svg"):
        figure.savefig(folder / ("bench." + kind))
    pyplot.close(figure)


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m k2_mps_tests.benchmarks.bench",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--output", type=Path, default=FOLDER, metavar="DIR")
    parser.add_argument(
        "--compare", type=Path, metavar="FILE", help="show changes since a bench.json"
    )
    parser.add_argument("--quick", action="store_true", help="two small sizes only")
    parser.add_argument("--repeats", type=int, default=5)
    return parser


def _earlier_rows(file, machine):
    """Returns the rows of an earlier JSON file; ends the program if another machine wrote it."""
    document = json.loads(file.read_text())
    if document["where"] != machine:
        sys.exit(f"{file} is of another machine: {document['where']}, and this is {machine}")
    return document["rows"]


def _print_tables(rows, before, machine):
    """Prints the times.

    Args:
      before: the rows of an earlier run; may be empty.
    """
    is_emulated = machine["mps"] == "emulated"
    print()
    for line in table(rows, before):
        print(line)
    if before:
        print("the number before x: how many times as fast as before")
    print("\nThe GPU's own times in milliseconds:")
    for line in gpu_table(rows, " (emulated)" if is_emulated else ""):
        print(line)
    if is_emulated:
        print("mps is emulated on this machine: these are no times of a GPU")
        print(
            "\n'host ms' is the time that a Mac's host would take: the time of emulated mps, less "
            "the time\nof k2's kernels and of torch's operators.  'peak' is memory beyond inputs "
            "and gradients.\n"
            "'cpu 1 ms' and 'host ms' are the least times with one thread of torch.  'cpu' above "
            "is the\nmedian time with all threads, which other programs on a small machine make "
            "much longer."
        )
        for line in shares.table(rows):
            print(line)


def main():
    options = _parser().parse_args()
    Environment(project.find()).install_extra("examples")
    machine = where()
    before = _earlier_rows(options.compare, machine) if options.compare else []
    rows = []
    for row in run(SIZES["quick" if options.quick else "full"], options.repeats):
        rows.append(row)
        failed = f": {row['error'].splitlines()[0]}" if "error" in row else ""
        print("{operation} {size} {place}".format(**row) + failed, flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "bench.json").write_text(
        json.dumps({"where": machine, "torch": torch.__version__, "rows": rows}, indent=1) + "\n"
    )
    plot(rows, machine, options.output)
    _print_tables(rows, before, machine)
    print(f"wrote bench.json, bench.png, bench.svg in {options.output}")
    failed = sorted({row["operation"] for row in rows if "error" in row})
    if failed:
        sys.exit(f"error: failed: {'; '.join(failed)}")


if __name__ == "__main__":
    ending.run(main)

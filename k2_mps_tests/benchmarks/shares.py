"""Measures, on emulated mps, how much of an operation's time a Mac's host would take.

The host's time is the wall time, less the time of k2's kernels and of torch's operators, because a
Mac's GPU does this work.  The emulator has a second copy of each buffer, and compares the copies.
The time of these comparisons is also subtracted, because a Mac has one copy.  However fast the GPU
is, an operation cannot take less than the host's time.
"""

import os
import time

import torch
from torch.profiler import ProfilerActivity
from torch.profiler import profile as profiler

# profile() calls a function at least REPEATS times, and for at least SECONDS.
REPEATS, SECONDS = 4, 0.5
MEGABYTE = 1e6

# Without this variable, torch's profiler prints two lines whenever it is used.
os.environ.setdefault("KINETO_LOG_LEVEL", "6")


def profile(function, device):
    """Profiles the calls of a function, with one thread.

    Args:
      function: a function that the caller has called before.
      device: 'cpu', or 'mps' for the emulated device.
    Returns:
      A dict that describes the call in which the host takes the least time:
      'host': the host's time in seconds; on 'cpu', the wall time.
      'peak': the most bytes that tensors on the device take during the call, minus
        the bytes in use before the call.
      On 'mps', the dict also has:
      'dispatches': the number of k2's dispatches.
      'waits': the number of waits that find work in flight.
      'moved': the bytes of the arguments and results of torch's operators.
    """
    look = _on_cpu if device == "cpu" else _on_mps
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rows = []
    end = time.perf_counter() + SECONDS
    try:
        while len(rows) < REPEATS or time.perf_counter() < end:
            rows.append(look(function))
    finally:
        torch.set_num_threads(threads)
    return min(rows, key=lambda row: row["host"])


def _on_cpu(function):
    # The profiler also runs in _on_mps().  So the times of both devices include the profiler's
    # cost.
    with profiler(activities=[ProfilerActivity.CPU]):
        begin = time.perf_counter()
        function()
        wall = time.perf_counter() - begin
    with profiler(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        function()
    changes = sorted(
        (event.start_ns(), event.nbytes())
        for event in profiled.profiler.kineto_results.events()
        if event.name() == "[memory]"
    )
    used = peak = 0
    for _, change in changes:
        used += change
        peak = max(peak, used)
    return {"host": wall, "peak": peak}


def _on_mps(function):
    import mps_emulator

    torch.mps.synchronize()
    before = torch.accelerator.memory_allocated()
    torch.accelerator.reset_peak_memory_stats()
    with mps_emulator.trace() as trace, profiler(activities=[ProfilerActivity.CPU]) as profiled:
        begin = time.perf_counter()
        with mps_emulator.counters() as timed:
            with mps_emulator.counters() as counted:
                function()
            torch.mps.synchronize()
        wall = time.perf_counter() - begin
    # The time of an operator includes the kernels that run during the operator.  So `kernels` has
    # only the kernels that run at other times.
    kernels = sum(d.end - d.begin for d in trace.dispatches if not d.during) / 1e9
    operators = (
        sum(
            event.self_cpu_time_total
            for event in profiled.key_averages()
            if event.key.startswith("aten::")
        )
        / 1e6
    )
    return {
        "host": wall - kernels - operators - timed.upkeep / 1e9,
        "peak": torch.accelerator.max_memory_allocated() - before,
        "dispatches": len(trace.dispatches),
        "waits": counted.waits_with_work,
        "moved": counted.operator_bytes,
    }


COLUMNS = (
    "B, T, S: operation, who does it on mps",
    "cpu 1 ms",
    "host ms",
    "share",
    "dispatches",
    "operators",
    "waits",
    "torch MB",
    "peak MB",
    "cpu peak",
)


def table(rows):
    """Yields the lines of the table, which compares each operation on mps with the CPU."""
    cpu = {_key(row): row for row in rows if row["place"] == "cpu"}
    yield "{:<68} {:>9} {:>9} {:>6} {:>10} {:>9} {:>5} {:>9} {:>9} {:>9}".format(*COLUMNS)
    for row in sorted(rows, key=lambda row: (row["size"], row["operation"], row["place"])):
        if "dispatches" not in row or _key(row) not in cpu:
            continue
        beside = cpu[_key(row)]
        size = ", ".join(map(str, row["size"]))
        what = f"{size}: {row['operation']}, {row['place']}"
        yield (
            f"{what:<68} {beside['host'] * 1e3:9.2f} "
            f"{row['host'] * 1e3:9.2f} {row['host'] / beside['host']:6.0%} "
            f"{row['dispatches']:10d} {row['operators']:9d} {row['waits']:5d} "
            f"{row['moved'] / MEGABYTE:9.2f} {row['peak'] / MEGABYTE:9.2f} "
            f"{beside['peak'] / MEGABYTE:9.2f}"
        )


def _key(row):
    return row["operation"], tuple(row["size"])

"""What a Mac's host would still do of an operation, seen on emulated mps.

The host's time is the wall time, less the time in which the emulator ran k2's
kernels, less that of torch's own operators: a Mac's GPU does both.  Its share
of the same operation's time on the CPU bounds how much faster the operation
gets, however fast the GPU is.
"""
import time

import torch
from torch.profiler import ProfilerActivity
from torch.profiler import profile as profiler

# The fewest calls of a function, and for how many seconds there are more.
REPEATS, SECONDS = 4, 0.5
MEGABYTE = 1e6


def profile(function, device):
    """Looks into the calls of a function, with one thread.

    Args:
      function: has been called before.
      device: 'cpu' or 'mps', which has to be the emulated one.
    Returns:
      {'host': the least of all calls in seconds, on the CPU of the wall
      time; 'peak': the most bytes that are in use at a time beyond those
      before, of tensors on the device} and on mps {'dispatches': those of k2,
      'waits': those that find work, 'moved': bytes of the tensors that
      torch's operators take and make}.
    """
    look = _on_cpu if device == 'cpu' else _on_mps
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rows = []
    end = time.perf_counter() + SECONDS
    try:
        while len(rows) < REPEATS or time.perf_counter() < end:
            rows.append(look(function))
    finally:
        torch.set_num_threads(threads)
    return min(rows, key=lambda row: row['host'])


def _on_cpu(function):
    # With a profiler, as on mps.
    with profiler(activities=[ProfilerActivity.CPU]):
        begin = time.perf_counter()
        function()
        wall = time.perf_counter() - begin
    with profiler(activities=[ProfilerActivity.CPU],
                  profile_memory=True) as profiled:
        function()
    changes = sorted(
        (event.start_ns(), event.nbytes())
        for event in profiled.profiler.kineto_results.events()
        if event.name() == '[memory]')
    used = peak = 0
    for _, change in changes:
        used += change
        peak = max(peak, used)
    return {'host': wall, 'peak': peak}


def _on_mps(function):
    import mps_emulator

    torch.mps.synchronize()
    before = torch.accelerator.memory_allocated()
    torch.accelerator.reset_peak_memory_stats()
    with mps_emulator.trace() as trace, profiler(
            activities=[ProfilerActivity.CPU]) as profiled:
        begin = time.perf_counter()
        with mps_emulator.counters() as counted:
            function()
        torch.mps.synchronize()
        wall = time.perf_counter() - begin
    # Those that an operator had run are in its time.
    kernels = sum(d.end - d.begin for d in trace.dispatches
                  if not d.during) / 1e9
    operators = sum(
        event.self_cpu_time_total for event in profiled.key_averages()
        if event.key.startswith('aten::')) / 1e6
    return {'host': wall - kernels - operators,
            'peak': torch.accelerator.max_memory_allocated() - before,
            'dispatches': len(trace.dispatches),
            'waits': counted.waits_with_work,
            'moved': counted.operator_bytes}


def table(rows):
    """Yields lines: of each operation on mps, beside the CPU's."""
    cpu = {_key(row): row for row in rows if row['place'] == 'cpu'}
    yield '%-68s %9s %9s %6s %10s %5s %9s %9s %9s' % (
        'B, T, S: operation, who does it on mps', 'cpu ms', 'host ms', 'share',
        'dispatches', 'waits', 'torch MB', 'peak MB', 'cpu peak')
    for row in sorted(rows, key=lambda row: (
            row['size'], row['operation'], row['place'])):
        if 'dispatches' not in row or _key(row) not in cpu:
            continue
        beside = cpu[_key(row)]
        yield '%-68s %9.2f %9.2f %5.0f%% %10d %5d %9.2f %9.2f %9.2f' % (
            '%s: %s, %s' % (', '.join(map(str, row['size'])),
                            row['operation'], row['place']),
            beside['host'] * 1e3, row['host'] * 1e3,
            100 * row['host'] / beside['host'], row['dispatches'],
            row['waits'], row['moved'] / MEGABYTE, row['peak'] / MEGABYTE,
            beside['peak'] / MEGABYTE)


def _key(row):
    return row['operation'], tuple(row['size'])

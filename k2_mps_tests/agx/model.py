"""Estimates how long an operation takes on a Mac.

Nothing here was measured on a Mac.  The estimate of a kernel is the largest of three times:

- memory: the bytes of the kernel's buffers, over the GPU's bandwidth;
- issue: the cycles in which a core issues the instructions of all of its threads;
- chain: the time of one thread, which waits for each of its instructions, times the number of
  waves, see `NumWaves()` in k2/csrc/mps/grid.h.

The time of an operation is a sum: the times of its kernels; the bytes of torch's operators, over
the bandwidth; and a fixed time for each command and for each wait.

A thread also waits for the memory, which nothing here counts.  So `issue` and `chain` are the least
times, and SLOWER times these times is the other end of the estimate.
"""

import functools
import math
from pathlib import Path
from typing import NamedTuple

from k2mps.core.pins import tomllib

from k2_mps_tests.agx import kernels
from k2_mps_tests.kernels.registers import SIMD_WIDTH

_FILE = Path(__file__).with_name("operations.toml")


class Gpu(NamedTuple):
    cores: int
    hertz: float
    bandwidth: float  # bytes in a second


# The clocks of the M1 and the M2 Max are from github.com/philipturner/metal-benchmarks, the clock
# of the M4 Max is what its owners report.  The bandwidths are Apple's.
GPUS = {
    "M1": Gpu(8, 1.278e9, 68e9),
    "M2 Max": Gpu(38, 1.398e9, 400e9),
    "M4 Max": Gpu(40, 1.578e9, 546e9),
}
# The simdgroups for which a core issues an instruction in a cycle.
ISSUED = 4
# The cycles after which a simdgroup can use a result: 2 to 6.6, by the same benchmarks.
LATENCY = 5
BARRIER = 50  # cycles
CORE_MEMORY = 60 << 10  # bytes of threadgroup memory
# docs/kernels.md has what others measured for a command and a wait for it.
COMMAND, WAIT = 20e-6, 200e-6  # seconds
# mlx-ctc, a CTC loss for MLX, has kernels whose threads wait for device memory in each frame.  With
# this factor, the model agrees best with what its author measured on an M2 Max; docs/speed.md has
# the numbers.
SLOWER = 3


def cycles_of_load(stride):
    """Returns the cycles of a load of threadgroup memory, as others measured them on an M3 Pro.

    stride: the bytes from what one lane loads to what the next lane loads.
    """
    return max(1.45, math.gcd(stride, 256) / 8)


class Work(NamedTuple):
    """What the dispatches of a kernel do, summed over the dispatches, as counting.py counts it."""

    dispatches: int
    threadgroups: int
    threads: int
    instructions: int  # of AIR, of all threads
    barriers: int  # of all threads
    bytes: int


class Operation(NamedTuple):
    """What a call of an operation does."""

    commands: int  # k2's dispatches and torch's operators
    waits: int  # of the host, for the GPU
    moved: int  # bytes that torch's operators read and write
    steps: dict[str, int]  # that k2 counts to choose host or Metal, for each name in calibration.cc
    work: dict[str, Work]  # for each kernel


@functools.cache
def load():
    """Returns (size, {name: Operation}) of operations.toml."""
    document = tomllib.loads(_FILE.read_text())
    found = {}
    for row in document["operations"]:
        work = {kernel: Work(*numbers) for kernel, numbers in row["work"].items()}
        numbers = (row[key] for key in ("commands", "waits", "moved"))
        found[row["name"]] = Operation(*numbers, row.get("steps", {}), work)
    return tuple(document["size"]), found


def write(size, operations):
    """Writes operations.toml."""
    lines = [
        "# Written by `python -m k2_mps_tests.benchmarks.estimates --write`.",
        f"# work: kernel = [{', '.join(Work._fields)}]",
        f"size = {list(size)} # utterances, frames, symbols",
    ]
    for name, operation in operations.items():
        lines += ["", "[[operations]]", f'name = "{name}"']
        lines += [f"{key} = {getattr(operation, key)}" for key in ("commands", "waits", "moved")]
        if operation.steps:
            lines += ["[operations.steps]"]
            lines += [f"{placed} = {steps}" for placed, steps in operation.steps.items()]
        lines += ["[operations.work]"]
        lines += [f"{kernel} = {list(work)}" for kernel, work in operation.work.items()]
    _FILE.write_text("\n".join(lines) + "\n")


def seconds_of_kernel(gpu, work, row):
    """Returns {"memory", "issue", "chain"} for a kernel, in seconds.

    work: a Work.
    row: the kernel's kernels.Row.
    """
    cycles = work.instructions * row.cycles / row.air
    groups = work.threadgroups / work.dispatches
    threads = work.threads / work.threadgroups
    held = max(1, min(row.threads_of_core // threads, CORE_MEMORY // max(row.memory, 1)))
    waves = math.ceil(groups / (gpu.cores * held)) * work.dispatches
    core_cycles = cycles / groups * math.ceil(groups / gpu.cores)
    thread_cycles = (cycles * LATENCY + work.barriers * BARRIER) / work.threads
    return {
        "memory": work.bytes / gpu.bandwidth,
        "issue": core_cycles / SIMD_WIDTH / ISSUED / gpu.hertz,
        "chain": thread_cycles * waves / gpu.hertz,
    }


def seconds_of_kernels(gpu, operation, rows):
    """Returns (the least time of all kernels, the time with SLOWER), in seconds.

    operation: an Operation.
    rows: {kernel: kernels.Row}.
    """
    least = most = 0
    for kernel, work in operation.work.items():
        memory, *cycles = seconds_of_kernel(gpu, work, rows[kernel]).values()
        least += max(memory, *cycles)
        most += max(memory, SLOWER * max(cycles))
    return least, most


def seconds(gpu, operation, rows):
    """Returns the two times of seconds_of_kernels(), each with the time of commands, waits and
    bytes added."""
    others = operation.commands * COMMAND + operation.waits * WAIT
    others += operation.moved / gpu.bandwidth
    return tuple(others + time for time in seconds_of_kernels(gpu, operation, rows))


class Placed(NamedTuple):
    """How the model gets the costs of one of the operations that k2 places."""

    counted_in: str  # the operation of operations.toml
    waits: int  # of the operation and of its caller
    kernels: tuple[str, ...] = ()  # if only some of the kernels belong to it


# {name in calibration.cc: Placed}
PLACED = {
    "intersect_dense": Placed("intersect_dense", waits=2),
    "ctc_loss": Placed("ctc_loss with gradient, double", waits=1),
    "get_tot_scores": Placed(
        "intersect_dense, total scores, gradient, double",
        waits=1,
        kernels=(
            "place_batches",
            "fill_batches",
            "incoming_arcs",
            "double_scores_log_256",
            "double_totals_backprop",
        ),
    ),
    "intersect_dense_pruned": Placed("intersect_dense_pruned", waits=2),
}


def step(name, gpu):
    """Returns (least, most) of a step of an operation that k2 places, in microseconds.

    name: a key of PLACED.
    gpu: a key of GPUS.
    """
    operation = _placed(name)
    times = seconds_of_kernels(GPUS[gpu], operation, kernels.load())
    return tuple(1e6 * time / operation.steps[name] for time in times)


def call(name):
    """Returns the microseconds of a call of such an operation besides its steps; name: as above."""
    dispatches = sum(work.dispatches for work in _placed(name).work.values())
    return 1e6 * (dispatches * COMMAND + PLACED[name].waits * WAIT)


def _placed(name):
    """Returns the Operation with the kernels that belong to an operation that k2 places."""
    _, operations = load()
    placed = PLACED[name]
    operation = operations[placed.counted_in]
    names = placed.kernels or operation.work
    return operation._replace(work={kernel: operation.work[kernel] for kernel in names})


def table():
    """Returns the head and the rows of the table of estimates, lists of texts."""
    _, operations = load()
    rows = kernels.load()
    head = ["operation", "commands", "waits", "MB", "million instructions", "barriers"]
    lines = []
    for name, operation in operations.items():
        works = operation.work.values()
        moved = operation.moved + sum(work.bytes for work in works)
        executed = sum(work.instructions for work in works)
        barriers = sum(work.barriers * work.dispatches // work.threads for work in works)
        numbers = (operation.commands, operation.waits, moved // 10**6, executed // 10**6, barriers)
        times = (seconds(gpu, operation, rows) for gpu in GPUS.values())
        ranges = (f"{1e3 * least:.1f} to {1e3 * most:.1f}" for least, most in times)
        lines.append([name, *map("{:,}".format, numbers), *ranges])
    return [*head, *(f"{name}, ms" for name in GPUS)], lines

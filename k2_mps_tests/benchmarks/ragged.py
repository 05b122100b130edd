"""Compares k2's ragged functions, which run on the host, with operators of torch on mps.

    .venv/bin/python -m k2_mps_tests.benchmarks.ragged

k2 computes row ids, row splits (counts and their sums) and the shape of an index on the host, in
memory that it shares with mps.  Operators of torch can give these results on mps.  For each
function, the program times the host, and counts these operators.  From the number of operators and
the bytes that they move, the program estimates the GPU's time, without and with a wait.  The host
must wait if its next step reads the result.  The counts need an mps device, which may be emulated.
"""

import sys
import timeit

import k2
import torch

LENGTH = 8  # the mean length of a row
SIZES = [10**3, 10**4, 10**5, 10**6]
REPEATS = 7
# Nine tenths of an M1's bandwidth, in bytes a second.
BANDWIDTH = 60e9
# Seconds.  WAIT is a published time of a small kernel, including the wait for the kernel.  COMMAND
# is a guess for each further command of the same command buffer.
WAIT, COMMAND = 180e-6, 5e-6


def rows_of(num_elements: int, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns row splits, row ids and reversed indexes of rows that have random lengths."""
    rows = num_elements // LENGTH
    row_ids = torch.randint(rows, (num_elements,), dtype=torch.int32).sort()[0]
    row_ids[-1] = rows - 1
    row_splits = torch.searchsorted(row_ids, torch.arange(rows + 1), out_int32=True)
    order = torch.arange(rows, dtype=torch.int32).flip(0)
    return row_splits.to(device), row_ids.to(device), order.to(device)


def ids_by_k2(row_splits, row_ids, order):
    return k2.ragged.create_ragged_shape2(row_splits=row_splits).row_ids(1)


def ids_by_torch(row_splits, row_ids, order):
    # The host needs the number of elements, so it waits for row_splits.
    places = torch.arange(int(row_splits[-1]), dtype=torch.int32, device=row_splits.device)
    return torch.bucketize(places, row_splits[1:], right=True, out_int32=True)


def splits_by_k2(row_splits, row_ids, order):
    return k2.ragged.create_ragged_shape2(row_ids=row_ids).row_splits(1)


def splits_by_torch(row_splits, row_ids, order):
    counts = torch.zeros(len(row_splits), dtype=torch.int32, device=row_ids.device)
    counts.index_add_(0, row_ids + 1, torch.ones_like(row_ids))
    return counts.cumsum(0, dtype=torch.int32)


def index_by_k2(row_splits, row_ids, order):
    shape = k2.ragged.create_ragged_shape2(row_splits=row_splits)
    return shape.index(0, order)[0].row_ids(1)


def index_by_torch(row_splits, row_ids, order):
    sizes = row_splits.diff()[order]
    sums = torch.cat([sizes.new_zeros(1), sizes.cumsum(0, dtype=torch.int32)])
    return ids_by_torch(sums, row_ids, order)


# {name: (k2's function, torch's function, bytes per element that torch's operators read and write)}
OPERATIONS = {
    "row ids of row splits": (ids_by_k2, ids_by_torch, 12),
    "row splits of row ids": (splits_by_k2, splits_by_torch, 20),
    "index of rows, with row ids": (index_by_k2, index_by_torch, 14),
}


def num_operators(function) -> int:
    """Returns how many of torch's operators a call runs on the GPU."""
    inputs = rows_of(SIZES[0], "mps")
    function(*inputs)
    with k2.mps.counters() as counts:
        function(*inputs)
    return counts.operators


def host_seconds(function, num_elements: int) -> float:
    inputs = rows_of(num_elements, "cpu")
    calls = max(1, 10**6 // num_elements)
    return min(timeit.repeat(lambda: function(*inputs), number=calls, repeat=REPEATS)) / calls


def main() -> None:
    torch.set_num_threads(1)
    emulated = "" if sys.platform == "darwin" else " (emulated)"
    for name, (by_k2, by_torch, num_bytes) in OPERATIONS.items():
        inputs = rows_of(SIZES[0], "cpu")
        assert torch.equal(by_k2(*inputs), by_torch(*inputs)), name
        print(name)
        commands = None
        if torch.backends.mps.is_available():
            commands = num_operators(by_torch)
            print(
                f"  operators of torch: {commands}{emulated}; of k2's way: {num_operators(by_k2)}"
            )
        for size in SIZES:
            seconds = host_seconds(by_k2, size)
            line = f"  {size:>8} elements: the host {seconds * 1e6:.1f} us"
            if commands is not None:
                gpu = commands * COMMAND + num_bytes * size / BANDWIDTH
                line += f"; the GPU, estimated, {gpu * 1e6:.0f} us; with one more wait,"
                line += f" {(gpu + WAIT) * 1e6:.0f} us"
            print(line)


if __name__ == "__main__":
    main()

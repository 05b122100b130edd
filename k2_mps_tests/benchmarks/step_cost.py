"""Measures the cost of k2's functions in a training step of a transducer, on mps.

    .venv/bin/python -m k2_mps_tests.benchmarks.step_cost [small] [large]

The step is the class Step of beside_cuda.py.  The program prints a row for each function of k2,
forward or backward:

- commands: k2's kernels, and torch's operators that give work to the GPU
- drains: k2's gates with work queued for the GPU, and torch's operators that wait
- MB: the bytes of the tensors that a command reads or writes, summed over the commands

On Linux, mps is emulated.  The emulation changes none of these numbers.

Two further rows have the peak of memory in a whole step that includes icefall's joiner.  For the
first of these rows, the step calls do_rnnt_pruning, torch.tanh and rnnt_loss_pruned.  For the
second row, the step calls k2.mps.joiner_input and rnnt_loss_pruned_in_place instead.  The peak
counts the bytes of tensors, but neither the inputs of the step nor the memory that an allocator
adds.
"""

import argparse
import contextlib
import tempfile
from pathlib import Path

import k2
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from k2_mps_tests import ending
from k2_mps_tests.benchmarks.beside_cuda import STEPS, WIDTH, Operators, Step, tree_leaves

MEGABYTE = 1e6


def bytes_of_kernels(folder):
    """Returns the bytes of the buffers that the kernels of a recording use."""
    from mps_emulator.replay.recording import Recording, uses

    recording = Recording(folder)
    return sum(
        recording.sizes[buffer]
        for command in recording.commands
        if command["kind"] == "dispatch"
        for buffer in set(uses(command))
    )


class Bytes(Operators):
    """Counts the bytes of the tensors that torch's operators read and write.

    Attributes:
      moved: the number of bytes.  An expanded tensor counts as the bytes that it takes in memory.
    """

    def __init__(self):
        super().__init__()
        self.moved = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        before = len(self.calls)
        result = super().__torch_dispatch__(function, types, args, kwargs)
        if len(self.calls) > before:
            tensors = {id(x): x for x in _tensors((args, result))}
            self.moved += sum(_bytes(x) for x in tensors.values())
        return result


def _bytes(tensor):
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride()):
        elements *= size if stride else 1
    return elements * tensor.element_size()


def rows_of(size):
    """Returns [(function, commands, drains, bytes)] of k2's functions in a step."""
    import mps_emulator

    rows = []

    @contextlib.contextmanager
    def part(name):
        with tempfile.TemporaryDirectory() as folder:
            with k2.mps.counters() as counted, mps_emulator.record(Path(folder) / "recording"):
                with Bytes() as noted:
                    yield
                torch.mps.synchronize()
            moved = noted.moved + bytes_of_kernels(Path(folder) / "recording")
        commands = counted.dispatches + counted.operators
        rows.append((name, commands, counted.drains + counted.torch_waits, moved))

    step = Step(STEPS[size], "mps")
    step.run(lambda name: contextlib.nullcontext())
    step.boundary = step.boundary.clone()  # a boundary that k2 has not read yet
    step.run(part)
    return rows


class Peak(TorchDispatchMode):
    """A context that measures the memory of the mps tensors that are made in the context.

    Attributes:
      most: the peak in bytes.
    """

    def __init__(self):
        super().__init__()
        self.most = 0
        self._living = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        # A result that shares an argument's memory is left out, because this memory is not new.
        old = {x.untyped_storage()._cdata for x in _tensors(args)}
        for tensor in _tensors(result):
            storage = tensor.untyped_storage()
            if tensor.device.type == "mps" and storage._cdata not in old:
                self._living[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self._living = {key: entry for key, entry in self._living.items() if not entry[0].expired()}
        self.most = max(self.most, sum(size for _, size in self._living.values()))
        return result


def _tensors(values):
    return [x for x in tree_leaves(values) if isinstance(x, torch.Tensor)]


def peak_of(size, opt_in):
    """Returns the most bytes that tensors take during a whole step, not counting its inputs.

    opt_in: whether to use k2.mps.joiner_input and rnnt_loss_pruned_in_place.
    """
    step = Step(STEPS[size], "mps")
    del step.logits, step.grads
    weight = torch.randn(STEPS[size].vocabulary, WIDTH).to("mps").requires_grad_(True)
    leaves = [step.am, step.lm, step.am_in, step.lm_in, weight]

    def run():
        simple, grads = step.smoothed()
        ranges = step.ranges(grads)
        if opt_in:
            hidden = k2.mps.joiner_input(step.am_in, step.lm_in, ranges)
            loss = k2.mps.rnnt_loss_pruned_in_place
        else:
            hidden = torch.tanh(torch.add(*k2.do_rnnt_pruning(step.am_in, step.lm_in, ranges)))
            loss = k2.rnnt_loss_pruned
        logits = torch.nn.functional.linear(hidden, weight)
        pruned = loss(logits=logits, ranges=ranges, **step.loss_arguments())
        del hidden, logits
        (0.5 * simple + pruned).backward()

    # The first step makes the gradients of the leaves.  A later step adds to these gradients.
    run()
    with Peak() as peak:
        run()
    assert all(leaf.grad is not None for leaf in leaves)
    return peak.most


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("sizes", nargs="*", help="small, large; default: both")
    for size in parser.parse_args().sizes or STEPS:
        print(f"{size:<22} commands drains        MB")
        rows = rows_of(size)
        for name, commands, drains, moved in rows:
            print(f"  {name:<20} {commands:8} {drains:6} {moved / MEGABYTE:9.1f}")
        commands, drains, moved = (sum(column) for column in list(zip(*rows))[1:])
        print(f"  {'all':<20} {commands:8} {drains:6} {moved / MEGABYTE:9.1f}")
        for opt_in in (False, True):
            how = "joiner_input, in place" if opt_in else "torch's joiner"
            print(f"  peak, {how}: {peak_of(size, opt_in) / MEGABYTE:.1f} MB", flush=True)


if __name__ == "__main__":
    ending.run(main)

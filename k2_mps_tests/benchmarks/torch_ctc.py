"""Compares torch's own ctc_loss on mps with k2's, as a Mac would run both.

    .venv/bin/python -m k2_mps_tests.benchmarks.torch_ctc

From torch 2.14 on, torch has kernels of ctc_loss for mps.  The program runs these kernels as
Apple's compiler compiled them, from the wheel of torch for macOS, in the emulator.  The commands
around the kernels are those of torch's ATen/native/mps/operations/LossOps.mm.  The other side is
torch.nn.functional.ctc_loss after k2_mac.install_ctc_loss().  Both sides get log_probs on mps, and
compute the losses and the gradient.  The program prints a row for each side:

- commands: kernels, and torch's operators that give work to the GPU
- waits: waits of the host that found work in flight
- MB: the bytes of the tensors that a command reads or writes, summed over the commands
- peak MB: the most bytes that tensors take, not counting the inputs
- error: the largest difference of the losses from float64, relative to the loss

The emulation changes none of these numbers but the last, which has the CPU's arithmetic.
"""

import argparse
import tempfile
from pathlib import Path

import k2
import torch
import torch.nn.functional as F
from k2mps.build.environment import Environment
from k2mps.core import errors, project

import k2_mac
from k2_mps_tests import ending
from k2_mps_tests.apple import wheels
from k2_mps_tests.benchmarks.step_cost import MEGABYTE, Bytes, Peak, bytes_of_kernels

FRAMES, SEQUENCES, LABELS, LENGTH = 300, 8, 500, 40
UNREACHABLE = 3
_TORCH = "torch==2.14.1"
_MOST_THREADS = 1024


class Torch:
    """torch's ctc_loss: its kernels, and the commands that torch encodes around them.

    kernels: a library that torch.mps.load_metallib() returned.

    Attributes:
      moved: the bytes of the buffers of the kernels so far.
      launched: the number of kernels so far.
    """

    def __init__(self, kernels):
        self._kernels = kernels
        self.moved = 0
        self.launched = 0

    def loss_and_gradient(self, log_probs, targets, frames, lengths):
        """Returns (losses, gradient of their sum).

        log_probs: (T, N, C) on mps; targets: (N, S) on mps; frames and lengths: lists.
        """
        times, sequences, labels = log_probs.shape
        states = 2 * max(lengths) + 1
        threads = min(_MOST_THREADS, states)
        offsets = [i * targets.stride(0) for i in range(sequences)]
        stride = targets.stride(1)
        sizes = (*log_probs.stride(),)
        alpha = torch.empty(sequences, times, states, device="mps")
        losses = torch.empty(sequences, device="mps")
        rows = [
            torch.tensor(row, dtype=torch.int32, device="mps") for row in (frames, lengths, offsets)
        ]
        numbers = [0, times, max(lengths), sequences, stride, *sizes, *alpha.stride()]
        grid = {"threads": sequences * threads, "group_size": threads}
        self._run("ctc_loss", [losses, alpha, log_probs, targets, *rows], numbers, grid)

        # The backward pass copies the lengths again.
        gradient = torch.full_like(log_probs, -torch.inf)
        rows = [
            torch.tensor(row, dtype=torch.int32, device="mps") for row in (frames, lengths, offsets)
        ]
        beta = torch.empty_like(alpha)
        ones = torch.ones(sequences, device="mps")
        self._run("ctc_loss_backward_log_beta", [beta, log_probs, targets, *rows], numbers, grid)
        numbers = [0, times, max(lengths), labels, stride, *sizes, *alpha.stride(), *sizes, 1, 0]
        tensors = [gradient, ones, alpha, beta, log_probs, targets, *rows[:2], losses, rows[2]]
        grid = {"threads": (times, sequences), "group_size": (min(_MOST_THREADS, times), 1)}
        self._run("ctc_loss_backward_collect", tensors, numbers, grid)
        return losses, gradient

    def _run(self, name, tensors, numbers, grid):
        kernel = getattr(self._kernels, f"{name}_float_long_int32_t")
        kernel(*tensors, numbers, arg_casts="int32", **grid)
        self.launched += 1
        self.moved += sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def ours(log_probs, targets, frames, lengths):
    """Returns (losses, gradient of their sum), computed by k2."""
    leaf = log_probs.detach().requires_grad_(True)
    losses = F.ctc_loss(leaf, targets, frames, lengths, reduction="none")
    losses.sum().backward()
    return losses.detach(), leaf.grad


def inputs():
    """Returns the arguments of F.ctc_loss on the CPU."""
    torch.manual_seed(1)
    log_probs = torch.randn(FRAMES, SEQUENCES, LABELS).log_softmax(-1)
    targets = torch.randint(1, LABELS, (SEQUENCES, LENGTH))
    frames = [FRAMES - 10 * i for i in range(SEQUENCES)]
    lengths = [LENGTH - 2 * i for i in range(SEQUENCES)]
    return log_probs, targets, frames, lengths


def row_of(function, arguments, kernels=None):
    """Returns (commands, waits, bytes, peak in bytes, losses, gradient) of a call.

    kernels: the Torch whose kernels `function` runs; None if k2 runs the kernels.
    """
    import mps_emulator

    function(*arguments)  # compiles the kernels
    torch.mps.synchronize()
    with Peak() as peak:
        function(*arguments)
    torch.mps.synchronize()
    before = (kernels.launched, kernels.moved) if kernels else (0, 0)
    with tempfile.TemporaryDirectory() as folder:
        if kernels:
            with mps_emulator.counters() as counted, Bytes() as noted:
                losses, gradient = function(*arguments)
            launched, moved = kernels.launched - before[0], kernels.moved - before[1]
        else:
            recording = Path(folder) / "recording"
            with mps_emulator.counters() as counted, mps_emulator.record(recording):
                with Bytes() as noted, k2.mps.counters() as k2_counters:
                    losses, gradient = function(*arguments)
                torch.mps.synchronize()
            launched, moved = k2_counters.dispatches, bytes_of_kernels(recording)
    waits = counted.waits_with_work
    return len(noted.calls) + launched, waits, noted.moved + moved, peak.most, losses, gradient


def main():
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    ).parse_args()
    try:
        library = wheels.load(Environment(project.find()))[_TORCH]
    except errors.K2mpsError as error:
        print(error.message, error.why, sep="\n")
        return UNREACHABLE
    log_probs, targets, frames, lengths = inputs()
    leaf = log_probs.double().requires_grad_(True)
    exact = F.ctc_loss(leaf, targets, frames, lengths, reduction="none")
    exact.sum().backward()
    arguments = log_probs.to("mps"), targets.to("mps"), frames, lengths
    kernels = Torch(torch.mps.load_metallib(library.content))
    rows = {"torch's ctc_loss": row_of(kernels.loss_and_gradient, arguments, kernels)}
    k2_mac.install_ctc_loss(force=True)
    rows["k2's ctc_loss"] = row_of(ours, arguments)
    print("| emulated | commands | waits | MB | peak MB | error of loss | error of gradient |")
    print("|---|---|---|---|---|---|---|")
    for name, (commands, waits, moved, most, losses, gradient) in rows.items():
        error = ((losses.cpu() - exact).abs() / exact).max().item()
        gradient_error = (gradient.cpu() - leaf.grad).abs().max().item()
        print(
            f"| {name} | {commands} | {waits} | {moved / MEGABYTE:.1f} | {most / MEGABYTE:.1f} |"
            f" {error:.1e} | {gradient_error:.1e} |"
        )
    return 0


if __name__ == "__main__":
    ending.run(main)

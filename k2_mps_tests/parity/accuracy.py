"""Measures the differences between Metal's and the CPU's results in double precision.

    python -m k2_mps_tests.parity.accuracy --lattices 1000

The program makes random lattices of CTC with intersect_dense on the CPU.  For each lattice, mps and
the CPU compute total scores in double precision, with get_tot_scores and with ctc_loss.  They also
compute the gradients of the total scores.  The program prints the largest differences.

A total score may differ by one unit in the last place of float32, and a gradient by 1e-6 of the
batch's largest gradient.  In the tropical semiring, scores and gradients must be equal.
"""

import argparse
import os
import sys
from dataclasses import dataclass

import k2
import torch

from k2_mps_tests import ending

MAX_ULPS = 1
MAX_GRADIENT = 1e-6
# The number of sequences in one comparison.
BATCH = 8


@dataclass
class Worst:
    """The largest differences so far."""

    ulps: int = 0
    gradient: float = 0.0
    tropical: float = 0.0
    lattices: int = 0
    arcs: int = 0

    def is_right(self):
        return (
            self.lattices > 0
            and self.ulps <= MAX_ULPS
            and self.gradient <= MAX_GRADIENT
            and self.tropical == 0.0
        )

    def __str__(self):
        return (
            f"{self.lattices} lattices of {self.arcs} arcs: total scores within {self.ulps} ulp, "
            f"gradients within {self.gradient:.1e} of the largest; tropical {self.tropical:g}"
        )


def ulps(a, b):
    """Returns the largest difference between two tensors, in units in the last place of float32."""

    def rank(x):
        bits = x.to(torch.float32).cpu().view(torch.int32).long()
        return torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits)

    return int((rank(a) - rank(b)).abs().max()) if a.numel() else 0


def largest_difference(a, b):
    """Returns the largest difference of two tensors; infinity if a difference is NaN.

    Every comparison with NaN is false, so max() could drop a NaN.
    """
    found = (a - b).abs().max().item()
    return found if found >= 0 else float("inf")


def problem(generator, max_frames):
    """Returns (graph, log-probs, segments, beam), on the CPU.

    The problem has at most `max_frames` frames, a beam from 1 to 30, and logits with a standard
    deviation from 0.1 to 20.  max_frames must be more than 20.
    """

    def uniform(low, high):
        return low + (high - low) * torch.rand((), generator=generator).item()

    frames = int(max_frames * 10 ** uniform(-1.3, 0))
    symbols = int(uniform(3, 60))
    scale, beam = 10 ** uniform(-1, 1.31), uniform(1, 30)
    lengths = (frames * (1 - 0.5 * torch.rand(BATCH, generator=generator))).int().clamp(min=1)
    lengths[0] = frames
    lengths = lengths.sort(descending=True).values
    # A CTC path has at least two frames for each symbol if symbols repeat.
    most = max(1, min(60, int(lengths.min()) // 2))
    targets = [
        torch.randint(1, symbols, (int(uniform(1, most + 1)),), generator=generator).tolist()
        for _ in range(BATCH)
    ]
    logits = torch.randn(BATCH, frames, symbols, generator=generator) * scale
    segments = torch.stack([torch.arange(BATCH), torch.zeros(BATCH), lengths], 1).int()
    return k2.ctc_graph(targets), logits.log_softmax(-1), segments, beam


def compare(graph, log_probs, segments, beam, generator, worst):
    """Compares the results of both devices for one problem; updates `worst`."""
    lattice = k2.intersect_dense(graph, k2.DenseFsaVec(log_probs, segments), beam)
    weights = torch.rand(BATCH, generator=generator) + 0.5
    worst.lattices += BATCH
    worst.arcs += lattice.num_arcs

    def scores(device, log_semiring):
        fsas = lattice.to(device)
        fsas.scores = lattice.scores.detach().clone().to(device).requires_grad_(True)
        ans = fsas.get_tot_scores(use_double_scores=True, log_semiring=log_semiring)
        ans.backward(weights.to(ans.device, ans.dtype))
        return ans.detach().float().cpu(), fsas.scores.grad.cpu()

    def ctc(device):
        x = log_probs.clone().to(device).requires_grad_(True)
        ans = k2.ctc_loss(
            graph.to(device),
            k2.DenseFsaVec(x, segments),
            beam,
            reduction="none",
            use_double_scores=True,
        )
        ans.backward(weights.to(ans.device, ans.dtype))
        return ans.detach().float().cpu(), x.grad.cpu()

    for function in (lambda device: scores(device, True), ctc):
        (cpu, cpu_grad), (mps, mps_grad) = function("cpu"), function("mps")
        worst.ulps = max(worst.ulps, ulps(mps, cpu))
        off = largest_difference(mps_grad, cpu_grad) / cpu_grad.abs().max().item()
        worst.gradient = max(worst.gradient, off)
    (cpu, cpu_grad), (mps, mps_grad) = [scores(device, False) for device in ("cpu", "mps")]
    worst.tropical = max(
        worst.tropical, largest_difference(mps, cpu), largest_difference(mps_grad, cpu_grad)
    )


def run(lattices, seed, max_frames, say=lambda text: None):
    """Compares the results for at least `lattices` lattices; returns the largest differences."""
    generator = torch.Generator().manual_seed(seed)
    worst = Worst()
    while worst.lattices < lattices:
        # Every 20th problem is long.
        is_long = worst.lattices // BATCH % 20 == 0
        compare(*problem(generator, max_frames if is_long else max_frames // 10), generator, worst)
        say(str(worst))
    return worst


def main():
    parser = argparse.ArgumentParser(
        prog="python -m k2_mps_tests.parity.accuracy",
        description="Compares double precision by Metal with the CPU's.",
    )
    parser.add_argument("--lattices", type=int, default=1000)
    options = parser.parse_args()
    os.environ["K2_MPS_FORCE"] = "metal"
    worst = run(options.lattices, 1, 2000, lambda text: print(text, flush=True))
    if not worst.is_right():
        print(f"wrong: {worst}")
        sys.exit(1)


if __name__ == "__main__":
    ending.run(main)

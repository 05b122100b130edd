"""What `k2mps build` ends with: k2 at work, as a user would see it.

A CTC-like computation: the network's output of two utterances is intersected
with the graphs of their transcripts, and the total scores are differentiated
with respect to that output.  It runs on the CPU and, where this k2 has it, on
mps; both results are computed here and now, and compared.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import _k2
import k2
import torch

NUM_FRAMES = (6, 4)
TRANSCRIPTS = [[1, 2, 2], [3]]

# The largest difference to the CPU that passes.  Scores in double precision
# are rounded to float32 once on mps (a score of about 10 is then off by up to
# 5e-7); so are the gradients, which are at most 1.
TOLERANCE = 1e-5


class Result(NamedTuple):
    """What one device computed.

    Attributes:
      lattice: the intersection of both utterances.
      scores: shape (2,), the total scores.
      grad: shape (2, 6, 4), the gradient of their sum with respect to the
        log-probabilities that went in.
    """

    lattice: k2.Fsa
    scores: torch.Tensor
    grad: torch.Tensor


def compute(log_probs: torch.Tensor, device: str) -> Result:
    """Intersects and differentiates on one device.

    Args:
      log_probs: shape (2, 6, 4), on the CPU.
      device: where to compute.
    """
    log_probs = log_probs.detach().to(device).requires_grad_(True)
    segments = torch.tensor(
        [[i, 0, frames] for i, frames in enumerate(NUM_FRAMES)], dtype=torch.int32
    )
    lattice = k2.intersect_dense(
        k2.ctc_graph(TRANSCRIPTS, device=device),
        k2.DenseFsaVec(log_probs, segments),
        output_beam=100,
    )
    scores = lattice.get_tot_scores(log_semiring=True, use_double_scores=True)
    scores.sum().backward()
    return Result(lattice, scores.detach(), log_probs.grad)


def report(name: str, result: Result) -> None:
    """Prints one device's result."""
    scores = "  ".join(f"{score:.6f}" for score in result.scores.tolist())
    grad = "  ".join(f"{g:.6f}" for g in result.grad[0, 0].tolist())
    print(f"{name}:")
    print(f"  lattice    {result.lattice.num_arcs} arcs on {result.lattice.device}")
    print(f"  scores     {scores}")
    print(f"  gradient   {grad}   (first frame)")


def mps_name() -> str | None:
    """Returns what to call the mps device, None if this k2 has none."""
    if not getattr(k2, "with_mps", False):
        return None
    if not torch.backends.mps.is_available():
        return None
    return "mps" if sys.platform == "darwin" else "mps (emulated)"


def main() -> int:
    """Prints what both devices compute; returns the exit code."""
    torch.manual_seed(0)
    log_probs = torch.randn(2, max(NUM_FRAMES), 4).log_softmax(-1)

    print(f"k2 {_k2.version.__version__}, torch {torch.__version__}")
    cpu = compute(log_probs, "cpu")
    report("cpu", cpu)

    name = mps_name()
    if name is None:
        print("this k2 has no mps device")
        return 0
    mps = compute(log_probs, "mps")
    report(name, mps)

    score = (mps.scores.cpu() - cpu.scores).abs().max().item()
    grad = (mps.grad.cpu() - cpu.grad).abs().max().item()
    print(f"largest difference to the CPU: scores {score:.1e}, gradient {grad:.1e}")
    # Not ">": a NaN must fail.
    if not max(score, grad) <= TOLERANCE:
        print(f"error: more than {TOLERANCE}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

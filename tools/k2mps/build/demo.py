"""The end of `k2mps build`: k2 at work, as a user would see it.

The demonstration intersects a network's output for two utterances with the graphs of their
transcripts, and differentiates the total scores with respect to the output.  It does so on the CPU
and, where this k2 has it, on mps, and compares the results.
"""

import sys

import _k2
import k2
import torch

NUM_FRAMES = (6, 4)
TRANSCRIPTS = [[1, 2, 2], [3]]

# The largest difference to the CPU that passes.  mps rounds scores in double precision to float32
# once (a score of about 10 is then off by up to 5e-7), and gradients, which are at most 1.
TOLERANCE = 1e-5


def compute(name: str, log_probs: torch.Tensor, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Intersects and differentiates on one device, and prints the result.

    Args:
      log_probs: shape (2, 6, 4), on the CPU.
    Returns:
      The total scores, shape (2,), and the gradient of their sum, shape (2, 6, 4); on the CPU.
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
    print(f"{name}:")
    print(f"  lattice    {lattice.num_arcs} arcs on {lattice.device}")
    print(f"  scores     {_shown(scores)}")
    print(f"  gradient   {_shown(log_probs.grad[0, 0])}   (first frame)")
    return scores.detach().cpu(), log_probs.grad.cpu()


def _shown(values: torch.Tensor) -> str:
    return "  ".join(f"{value:.6f}" for value in values.tolist())


def main() -> int:
    """Prints what both devices compute; returns the exit code."""
    torch.manual_seed(0)
    log_probs = torch.randn(2, max(NUM_FRAMES), 4).log_softmax(-1)
    print(f"k2 {_k2.version.__version__}, torch {torch.__version__}")
    cpu = compute("cpu", log_probs, "cpu")
    if not (getattr(k2, "with_mps", False) and torch.backends.mps.is_available()):
        print("this k2 has no mps device")
        return 0
    name = "mps" if sys.platform == "darwin" else "mps (emulated)"
    mps = compute(name, log_probs, "mps")
    score, grad = ((there - here).abs().max().item() for there, here in zip(mps, cpu))
    print(f"largest difference to the CPU: scores {score:.1e}, gradient {grad:.1e}")
    # Not ">": a NaN must fail.
    if not max(score, grad) <= TOLERANCE:
        print(f"error: more than {TOLERANCE}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What `k2mps build` ends with: k2 at work, as a user would see it."""

from __future__ import annotations

import k2
import torch


def main() -> None:
    """Builds an FSA and prints its total score, computed on the CPU."""
    fsa = k2.Fsa.from_str("0 1 1 0.5\n0 1 2 1.5\n1 2 -1 2.0\n2")
    fsas = k2.create_fsa_vec([fsa])
    scores = fsas.get_tot_scores(log_semiring=True, use_double_scores=False)
    print(f"torch {torch.__version__}")
    print(f"total score on cpu: {scores.item():.6f}")


if __name__ == "__main__":
    main()

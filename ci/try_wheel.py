#!/usr/bin/env python3
"""Tries an installed k2: a CTC loss and its gradient, on the CPU and on mps.

On the CPU, the loss and the gradient must agree with torch's own.  On mps, both must agree with the
CPU's, if torch finds a device that it accepts.  Otherwise the program prints why mps was not tried.

Exit status: 0 all is right, 1 the CPU is wrong, 2 only mps is wrong.
"""

import sys

import k2
import torch

# Each of the 40 steps rounds a score below 128 to float32 twice, with an error of at most 2^-18.
TOLERANCE = 40 * 2 * 2.0**-18
# k2 leaves out paths whose score is this much below the best, here less than 1e-13 of the sum.
BEAM = 30.0
TARGETS = [[1, 2, 3], [4, 5]]
FRAMES = [40, 35]


def make_logits():
    """Returns a leaf on the CPU.

    On each device, the losses are functions of these logits, because torch's CTC loss gives no
    gradient of log-probs: it assumes that log_softmax() made them.
    """
    torch.manual_seed(0)
    return torch.randn(2, 40, 10).requires_grad_(True)


def of_k2(device):
    """Computes k2's CTC loss on a device; returns the losses and the gradient, on the CPU."""
    logits = make_logits()
    log_probs = logits.log_softmax(-1).to(device)
    segments = torch.tensor([[0, 0, FRAMES[0]], [1, 0, FRAMES[1]]], dtype=torch.int32)
    graph = k2.ctc_graph(TARGETS, device=device)
    losses = k2.ctc_loss(graph, k2.DenseFsaVec(log_probs, segments), BEAM, reduction="none")
    losses.sum().backward()
    return losses.detach().cpu(), logits.grad


def of_torch():
    """Returns the same losses and gradient, from torch's CTC loss."""
    logits = make_logits()
    losses = torch.nn.functional.ctc_loss(
        logits.log_softmax(-1).transpose(0, 1),
        torch.tensor(sum(TARGETS, [])),
        torch.tensor(FRAMES),
        torch.tensor([len(target) for target in TARGETS]),
        reduction="none",
    )
    losses.sum().backward()
    return losses.detach(), logits.grad


def difference(found, expected):
    """Returns the largest difference of the tensors of two lists; NaN if a difference is NaN."""
    # Python's max() may drop a NaN.
    return torch.stack([(a - b).abs().max() for a, b in zip(found, expected)]).max().item()


def reason_without_mps():
    """Returns why mps cannot be tried here; None if it can."""
    if reason := k2.mps.unavailable_reason():
        return reason
    try:
        right = (torch.ones(2, device="mps") + 1).tolist() == [2.0, 2.0]
    except RuntimeError as error:  # for example, "MPS backend out of memory"
        return f"torch's own operators fail on this device: {error}"
    return None if right else "torch's own operators give wrong results on this device"


def main():
    of_cpu = of_k2("cpu")
    found = difference(of_cpu, of_torch())
    print(f"cpu: the largest difference from torch's CTC loss and gradient is {found:.1e}")
    if not found <= TOLERANCE:
        print(f"WRONG: more than {TOLERANCE:.1e}")
        return 1
    if reason := reason_without_mps():
        print(f"not tried on mps: {reason}")
        return 0
    emulated = "" if sys.platform == "darwin" else " (emulated)"
    found = difference(of_k2("mps"), of_cpu)
    print(f"mps{emulated}: the largest difference from the CPU is {found:.1e}")
    if not found <= TOLERANCE:
        print(f"WRONG: more than {TOLERANCE:.1e}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

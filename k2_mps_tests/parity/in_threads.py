"""Runs functions in threads.  Two of these functions compute a loss and a lattice on mps."""

import concurrent.futures

import k2
import torch

# The scores of the two sequences in pruned().
LOG_PROBS = torch.randn(2, 90, 6, generator=torch.Generator().manual_seed(1))


def loss_and_grad(seed):
    """Returns a CTC loss on mps and its gradient; the seed gives the input."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 15, 6, generator=generator)
    leaf = logits.to("mps").requires_grad_(True)
    segments = torch.tensor([[0, 0, 15], [1, 0, 11]], dtype=torch.int32)
    dense = k2.DenseFsaVec(leaf.log_softmax(-1), segments)
    loss = k2.ctc_loss(
        k2.ctc_graph([[1, 2], [3]], device="mps"),
        dense,
        target_lengths=torch.tensor([2, 1]),
        reduction="sum",
    )
    loss.backward()
    return loss.item(), leaf.grad.cpu()


def run_in_threads(*targets):
    """Runs each function in its own thread; if a function raises an exception, raises it again."""
    with concurrent.futures.ThreadPoolExecutor(len(targets)) as pool:
        for future in [pool.submit(target) for target in targets]:
            future.result()


def pruned(device):
    """Returns the arcs of a lattice.  k2 makes the lattice in its own thread."""
    segments = torch.tensor([[0, 0, 90], [1, 0, 65]], dtype=torch.int32)
    dense = k2.DenseFsaVec(LOG_PROBS.to(device).log_softmax(-1), segments)
    topo = k2.ctc_topo(5, device=device)
    return k2.intersect_dense_pruned(topo, dense, 8.0, 5.0, 5, 50).arcs.values()

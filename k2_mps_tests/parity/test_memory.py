"""The peak of memory of lattices, for each state and frame and for each arc.

docs/operations.md has these numbers, so a test fails if the peak is higher, and also if it is less
than half as high.
"""

import k2
import pytest
import torch

SEQUENCES, CLASSES = 2, 30
# What does not depend on the frames, with room for torch's rounding of the sizes of tensors.
CONSTANT = 100_000

# Bytes: (for each state of the graphs and each frame, for each arc of the lattice).
DENSE = {"host": (26, 50), "metal": (10, 60)}
PRUNED = {"host": (0, 80), "metal": (0, 80)}
# The host takes blocks of k2, whose sizes are powers of two.
ROUNDING = {"host": 2, "metal": 1}
# For the host, enough frames for arrays that are larger than all blocks (4 MiB, so 12,483 frames of
# 84 states and 4 bytes): blocks that k2 has kept from other tests do not count in the peak.
DENSE_FRAMES = {"host": (15000, 30000), "metal": (300, 600)}
PRUNED_FRAMES = {"host": (1200, 2400), "metal": (150, 300)}


def peak_of(function):
    """Returns the peak of the bytes that tensors take on mps during a call, and what it returns."""
    torch.mps.synchronize()
    torch.accelerator.reset_peak_memory_stats()
    before = torch.mps.current_allocated_memory()
    ans = function()
    torch.mps.synchronize()
    return torch.accelerator.max_memory_allocated() - before, ans


def dense_fsa_vec(frames):
    generator = torch.Generator().manual_seed(1)
    logits = 2 * torch.randn(SEQUENCES, frames, CLASSES, generator=generator)
    segments = torch.tensor([[i, 0, frames] for i in range(SEQUENCES)], dtype=torch.int32)
    return k2.DenseFsaVec(logits.log_softmax(-1).to("mps"), segments)


def check(peak, states, frames, lattice, bytes_of_state_and_arc, rounding):
    state_bytes, arc_bytes = bytes_of_state_and_arc
    expected = state_bytes * states * frames + arc_bytes * lattice.num_arcs
    assert expected / 2 < peak < rounding * expected + CONSTANT, (peak, expected, lattice.num_arcs)


@pytest.mark.parametrize("symbols", [20, 80])
def test_intersect_dense(placement, symbols):
    references = [
        [(7 * i + j) % (CLASSES - 1) + 1 for j in range(symbols)] for i in range(SEQUENCES)
    ]
    graphs = k2.ctc_graph(references, device="mps")
    for frames in DENSE_FRAMES[placement]:
        dense = dense_fsa_vec(frames)
        peak, lattice = peak_of(lambda dense=dense: k2.intersect_dense(graphs, dense, 10.0))
        states = graphs.arcs.shape().tot_size(1)
        check(peak, states, frames, lattice, DENSE[placement], ROUNDING[placement])


def test_intersect_dense_pruned(placement):
    graph = k2.ctc_topo(CLASSES - 1, device="mps")
    for frames in PRUNED_FRAMES[placement]:
        dense = dense_fsa_vec(frames)
        peak, lattice = peak_of(
            lambda dense=dense: k2.intersect_dense_pruned(graph, dense, 20.0, 8.0, 30, 1000)
        )
        check(peak, graph.shape[0], frames, lattice, PRUNED[placement], ROUNDING[placement])

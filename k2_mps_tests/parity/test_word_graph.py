"""With a graph of 20,000 words, Metal and the CPU give bit for bit identical lattices."""

import k2
import pytest
import torch

from k2_mps_tests.parity.helpers import MPS, assert_equal, assert_equal_on_both
from k2_mps_tests.parity.word_graph import word_graph

pytestmark = pytest.mark.usefixtures("metal")

NUM_TOKENS = 60
BEAMS = 14.0, 7.0


@pytest.fixture(scope="module")
def graph():
    return word_graph(20_000, NUM_TOKENS, 5)


def _log_probs(num_streams, num_frames):
    torch.manual_seed(3)
    return (2 * torch.randn(num_streams, num_frames, NUM_TOKENS + 1)).log_softmax(-1)


def test_a_path_ends_where_a_word_ends():
    graph = word_graph(50, 6, 2)
    source, target, label, _ = graph.arcs.values().T.tolist()
    # A word ends in a state with an odd number.  After blanks, the path is in the state before.
    ends = {target[arc] for arc, word in enumerate(graph.aux_labels.tolist()) if word > 0}
    assert len(ends) == 50
    final = {state for state, each in zip(source, label) if each == -1}
    assert final == ends | {state - 1 for state in ends}


@pytest.mark.parametrize("max_active", [500, 10_000])
def test_a_batch(graph, max_active):
    log_probs = _log_probs(2, 24)
    segments = torch.tensor([[0, 0, 24], [1, 0, 21]], dtype=torch.int32)

    def lattice(device):
        dense = k2.DenseFsaVec(log_probs.to(device), segments)
        on_device = graph.to(device)
        return k2.intersect_dense_pruned(on_device, dense, *BEAMS, 30, max_active)

    assert_equal_on_both(lattice)
    assert "intersect_dense_pruned: Metal" in k2.mps.explain()


def test_streams(graph):
    results = []
    for device in ("cpu", MPS):
        intersecter = k2.OnlineDenseIntersecter(graph.to(device), 2, *BEAMS, 30, 2000)
        states, lattices = [None, None], []
        for begin in range(0, 24, 8):
            chunk = _log_probs(2, 24)[:, begin : begin + 8].to(device)
            segments = torch.tensor([[0, 0, 8], [1, 0, 5]], dtype=torch.int32)
            lattice, states = intersecter.decode(k2.DenseFsaVec(chunk, segments), states)
            lattices.append(lattice)
        results.append(lattices)
    cpu, mps = results
    assert_equal(mps, cpu)

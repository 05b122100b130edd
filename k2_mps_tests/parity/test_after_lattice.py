"""The steps of decoding that follow intersect_dense_pruned give the CPU's results on mps.

test_budgets.py counts the waits of these steps.
"""

import k2
import pytest
import torch

from k2_mps_tests.parity.batches import assert_batches
from k2_mps_tests.parity.helpers import MPS, assert_equal, assert_equal_on_both
from k2_mps_tests.parity.problems import KINDS, pick, random_graphs, random_scores

pytestmark = pytest.mark.usefixtures("metal")


def _batch(device):
    """Returns log-probs of 16 utterances, their numbers of frames, and a CTC topology."""
    torch.manual_seed(7)
    log_probs = torch.randn(16, 45, 9).log_softmax(-1).to(device)
    return log_probs, torch.arange(45, 29, -1), k2.ctc_topo(8, device=device)


def test_words_of_a_batch():
    def words(device):
        lattice = k2.get_lattice(*_batch(device))
        return k2.get_aux_labels(k2.one_best_decoding(lattice)), lattice

    assert_equal_on_both(words)


@pytest.mark.parametrize("seed", range(30))
def test_batches_of_a_pruned_lattice(seed):
    torch.manual_seed(seed)
    num_seqs, num_symbols = pick(1, 2, 5), pick(2, 9)
    log_probs, segments = random_scores(num_seqs, pick(1, 20, 65), num_symbols, pick(0.5, 5))
    graphs = random_graphs(pick(*KINDS), num_symbols, pick(1, num_seqs)).to(MPS)
    dense = k2.DenseFsaVec(log_probs.to(MPS), segments)
    lattice = k2.intersect_dense_pruned(
        graphs, dense, pick(3.0, 20.0), pick(1.0, 8.0), 3, 100, allow_partial=pick(False, True)
    )
    assert_batches(lattice)


def test_threads_of_the_host_change_no_lattice(monkeypatch):
    monkeypatch.setenv("K2_MPS_FORCE", "host")
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = k2.get_lattice(*_batch("cpu"))
        torch.set_num_threads(4)
        assert_equal(k2.get_lattice(*_batch(MPS)), expected)
    finally:
        torch.set_num_threads(before)

"""Batches of no utterance, of one frame and of one label give the CPU's results or its error."""

import k2
import pytest
import torch

from k2_mps_tests.parity.helpers import MPS

VOCABULARY = 4


class Batch:
    """Inputs of losses for `num_seqs` sequences.

    am: float32 of shape [num_seqs][frames][VOCABULARY], a leaf; lm: the same with labels + 1 rows.
    """

    def __init__(self, device, num_seqs, frames, labels):
        def leaf(rows):
            x = torch.randn(num_seqs, rows, VOCABULARY).log_softmax(-1)
            return x.to(device).requires_grad_(True)

        torch.manual_seed(1)
        self.device = device
        self.am, self.lm = leaf(frames), leaf(labels + 1)
        self.symbols = torch.randint(1, VOCABULARY, (num_seqs, labels)).to(device)
        self.boundary = torch.zeros(num_seqs, 4, dtype=torch.int64, device=device)
        self.boundary[:, 2], self.boundary[:, 3] = labels, frames
        self.segments = torch.tensor([[i, 0, frames] for i in range(num_seqs)]).reshape(-1, 3)

    def dense(self):
        return k2.DenseFsaVec(self.am, self.segments.int())

    def graph(self):
        return k2.ctc_graph(self.symbols.tolist(), device=self.device)


def _simple(batch):
    return k2.rnnt_loss_simple(batch.lm, batch.am, batch.symbols, 0, batch.boundary)


def _smoothed(batch):
    return k2.rnnt_loss_smoothed(batch.lm, batch.am, batch.symbols, 0, 0.25, 0.1, batch.boundary)


def _full(batch):
    logits = batch.am.unsqueeze(2) + batch.lm.unsqueeze(1)
    return k2.rnnt_loss(logits, batch.symbols, 0, batch.boundary, reduction="sum")


def _pruned(batch):
    args = (batch.lm, batch.am, batch.symbols, 0, 0.25, 0.1, batch.boundary)
    _, (px_grad, py_grad) = k2.rnnt_loss_smoothed(*args, return_grad=True)
    ranges = k2.get_rnnt_prune_ranges(px_grad, py_grad, batch.boundary, 2)
    am, lm = k2.do_rnnt_pruning(batch.am, batch.lm, ranges)
    return k2.rnnt_loss_pruned(am + lm, batch.symbols, ranges, 0, batch.boundary, reduction="sum")


def _lattice(batch):
    lattice = k2.intersect_dense(batch.graph(), batch.dense(), 8.0)
    return lattice.get_tot_scores(True, True).sum()


def _search(batch):
    topology = k2.ctc_topo(VOCABULARY - 1, device=batch.device)
    lattice = k2.intersect_dense_pruned(topology, batch.dense(), 20.0, 8.0, 1, 100)
    return lattice.get_tot_scores(True, True).sum()


OPERATIONS = {
    "ctc_loss": lambda batch: k2.ctc_loss(batch.graph(), batch.dense(), reduction="sum"),
    "intersect_dense": _lattice,
    "intersect_dense_pruned": _search,
    "rnnt_loss_simple": _simple,
    "rnnt_loss_smoothed": _smoothed,
    "rnnt_loss": _full,
    "rnnt_loss_pruned": _pruned,
}


def result(function, *sizes):
    """Returns the loss and the gradients on the CPU, or the type and text of the error."""
    batch = Batch(*sizes)
    try:
        loss = function(batch)
        loss.sum().backward()
    except (AssertionError, RuntimeError, ValueError) as error:
        return type(error), str(error)
    grads = [leaf.grad for leaf in (batch.am, batch.lm) if leaf.grad is not None]
    return [x.detach().cpu().double() for x in (loss, *grads)]


@pytest.mark.parametrize("where", ("host", "metal"))
@pytest.mark.parametrize("sizes", [(0, 5, 3), (2, 1, 1), (3, 4, 1), (2, 3, 0)], ids=str)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_small_batch_is_as_on_the_cpu(monkeypatch, name, sizes, where):
    expected = result(OPERATIONS[name], "cpu", *sizes)
    monkeypatch.setenv("K2_MPS_FORCE", where)
    found = result(OPERATIONS[name], MPS, *sizes)
    if isinstance(expected, tuple):
        assert found == expected
        return
    # The sums have a few dozen terms, so rounding is some units of float32's last place.  The mean
    # of an empty batch is NaN, as torch's mean of an empty tensor.
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6, equal_nan=True)

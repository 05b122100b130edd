"""Cases of the kernels that compute the gradients of rnnt_loss_smoothed.

Tolerances: a gradient is a sum of products.  One factor of each product is a gradient of px or py,
whose magnitude is at most 1.5.  All other factors are probabilities, with the relative error of
exp(), see rnnt_smoothed.py.
"""

import numpy as np

from k2_mps_tests.kernels.case import UNTOUCHED, Buffer, Case
from k2_mps_tests.kernels.checks.rnnt_smoothed import EPS, floats, groups
from k2_mps_tests.kernels.rnnt import PIECE, PROBLEMS, THREADS, Number


def cases():
    for problem in PROBLEMS:
        yield _weights(problem)
        if problem.am_scale:
            yield _parts(problem)
            yield _unigram_grad(problem)
        yield _finish(problem)


def tolerance(problem, terms):
    """Returns the tolerance for a sum of `terms` products of a gradient and a probability."""
    return 1.5 * terms * EPS * (8 + 4 * problem.size)


def _grads(p):
    """Returns the arguments of kernels that read the gradients of px and py."""
    return {
        Number.kSmoothedPxGrad: floats(p.px_grad if p.S else np.zeros(1)),
        Number.kSmoothedPyGrad: floats(p.py_grad),
        Number.kSmoothedBoundary: p.boundary(),
        Number.kSmoothedLossGrad: floats(p.loss_grad()),
        Number.kSmoothedLogSums: floats(_log_sums(p)),
        Number.kSmoothedParams: p.params(),
    }


def _sums(p):
    """Returns what the kernel rnnt_smoothed_weights writes for each position, [B][S + 1][3].

    For each position, the numbers are two sums of gradients, and the bits of an int32.
    """
    _, sums, has_low = p.weights()
    bits = has_low[..., None].astype(np.int32).view(np.float32)
    return np.concatenate([sums.astype(np.float32), bits], 2)


def _log_sums(p):
    return p.log_sums() if p.scale else 0 * p.log_sums()


def _weights(p):
    grads, sums, _ = p.weights()
    sizes = np.concatenate([np.full(sums.shape, 1.5 * p.T * EPS * 4), 0 * sums[..., :1]], 2)
    weights = Buffer.output(grads, np.abs(grads) * EPS * (8 + 60))
    if not p.scale:
        weights = Buffer(np.full(grads.shape, UNTOUCHED, np.float32))
    buffers = {
        **_grads(p),
        Number.kSmoothedWeights: weights,
        Number.kSmoothedSums: Buffer.output(_sums(p), sizes),
    }
    rows = p.B * (p.S + 1)
    return Case(p.name, "rnnt_smoothed_weights", groups(rows), THREADS, buffers)


def _expected_parts(p):
    """Returns the sums of the unigram's gradients over each piece of PIECE frames."""
    x, y = p.scaled_grads()
    total = (x + y).sum(1)[..., None]
    probs = np.exp(p.log_probs()[2][:, 0])
    grads = np.where(total != 0, -p.am_scale * total * probs, 0).reshape(-1, p.C)
    return np.stack([grads[i : i + PIECE].sum(0) for i in range(0, len(grads), PIECE)])


def _parts(p):
    unigram, am_log_sum = p.am_only
    expected = _expected_parts(p)
    buffers = {
        **_grads(p),
        Number.kSmoothedAm: floats(p.am),
        Number.kSmoothedAmMax: floats(p.rows()["am_max"]),
        Number.kSmoothedUnigram: floats(unigram),
        Number.kSmoothedAmLogSum: floats(am_log_sum),
        Number.kSmoothedParts: Buffer.output(expected, tolerance(p, PIECE * (p.S + 1))),
    }
    return Case(p.name, "rnnt_smoothed_am_only_parts", len(expected), THREADS, buffers)


def _unigram_grad(p):
    *_, expected = p.gradients()
    terms = p.B * (p.S + 1) * p.T
    buffers = {
        Number.kSmoothedSymbols: p.some_symbols(),
        Number.kSmoothedSums: Buffer(_sums(p)),
        Number.kSmoothedParts: floats(_expected_parts(p)),
        Number.kSmoothedUnigramGrad: Buffer.output(expected, tolerance(p, terms)),
        Number.kSmoothedParams: p.params(),
    }
    return Case(p.name, "rnnt_smoothed_unigram_grad", -(-p.C // THREADS), THREADS, buffers)


def _finish(p):
    rows = p.rows()
    unigram, am_log_sum = p.am_only
    am_grad, lm_grad, unigram_grad = p.gradients()
    weights, *_ = p.weights()
    products = [
        np.einsum("bst,bsc->btc", weights, rows["lm_exp"]).astype(np.float32),
        np.einsum("bst,btc->bsc", weights, rows["am_exp"]).astype(np.float32),
    ]
    if not p.scale:
        products = [np.full_like(x, np.nan) for x in products]
    buffers = {
        **_grads(p),
        Number.kSmoothedAm: floats(p.am),
        Number.kSmoothedLm: floats(p.lm),
        Number.kSmoothedSymbols: p.some_symbols(),
        Number.kSmoothedAmExp: floats(rows["am_exp"]),
        Number.kSmoothedLmExp: floats(rows["lm_exp"]),
        Number.kSmoothedAmMax: floats(rows["am_max"]),
        Number.kSmoothedLmMax: floats(rows["lm_max"]),
        Number.kSmoothedLmLogSum: floats(rows["lm_log_sum"]),
        Number.kSmoothedNext: Buffer(p.next_places() if p.S else np.zeros(1, np.int32)),
        Number.kSmoothedUnigram: floats(unigram),
        Number.kSmoothedAmLogSum: floats(am_log_sum),
        Number.kSmoothedUnigramGrad: floats(unigram_grad),
        Number.kSmoothedSums: Buffer(_sums(p)),
        Number.kSmoothedAmGrad: Buffer(products[0], am_grad, tolerance(p, p.S + 1)),
        Number.kSmoothedLmGrad: Buffer(products[1], lm_grad, tolerance(p, p.T)),
    }
    count = p.B * (p.T + p.S + 1)
    return Case(p.name, "rnnt_smoothed_finish", groups(count), THREADS, buffers)

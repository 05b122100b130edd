"""Cases of the kernels that compute px and py of rnnt_loss_smoothed.

Tolerances: exp() and log() have errors of some units in the last place.  The kernel rounds a
difference x of logits by up to eps * |x|, so exp(x) has a relative error of eps * (|x| + 4).  If
|x| is large, exp(x) is too small to matter.  So the error of a sum is at most 4 eps.  A log-prob
has three parts, and each part is a sum of three terms with such an error.
"""

import numpy as np

from k2_mps_tests.kernels.case import EPS, UNTOUCHED, Buffer, Case, ints
from k2_mps_tests.kernels.rnnt import PROBLEMS, SIMD, THREADS, TILE, Number

ROWS = THREADS // SIMD


def cases():
    for problem in PROBLEMS:
        yield _rows(problem)
        if problem.am_scale:
            yield _unigram(problem)
            yield _am_only(problem)
        yield _scores(problem, 1)
    yield _scores(PROBLEMS[1], 0)


def log_tolerance(problem):
    """Returns the tolerance for the log of a sum of exp(x), where x are differences of logits."""
    return EPS * (8 + 4 * problem.size)


def score_tolerance(problem):
    largest = np.abs(problem.scores()[1]).max() + 12 * problem.size
    return 4 * log_tolerance(problem) + 8 * EPS * largest


def floats(array):
    return Buffer(array.astype(np.float32))


def groups(rows):
    return -(-rows // ROWS)


def _rows(problem):
    p = problem
    expected = p.rows()
    next_places = p.next_places()
    buffers = {
        Number.kSmoothedAm: floats(p.am),
        Number.kSmoothedLm: floats(p.lm),
        Number.kSmoothedSymbols: p.some_symbols(),
        Number.kSmoothedBoundary: p.boundary(),
        Number.kSmoothedAmExp: Buffer.output(expected["am_exp"], 8 * EPS),
        Number.kSmoothedLmExp: Buffer.output(expected["lm_exp"], 8 * EPS),
        Number.kSmoothedAmMax: Buffer.output(expected["am_max"]),
        Number.kSmoothedLmMax: Buffer.output(expected["lm_max"]),
        Number.kSmoothedLmLogSum: Buffer.output(expected["lm_log_sum"], log_tolerance(p)),
        Number.kSmoothedNext: (Buffer.output(next_places, dtype=np.int32) if p.S else ints([7])),
        Number.kSmoothedParams: p.params(),
    }
    count = p.B * (p.T + p.S + 1)
    return Case(p.name, "rnnt_smoothed_rows", groups(count), THREADS, buffers)


def _unigram(p):
    rows, (unigram, _) = p.rows(), p.am_only
    tolerance = log_tolerance(p) + EPS * np.abs(unigram)
    buffers = {
        Number.kSmoothedLm: floats(p.lm),
        Number.kSmoothedLmMax: floats(rows["lm_max"]),
        Number.kSmoothedLmLogSum: floats(rows["lm_log_sum"]),
        Number.kSmoothedUnigram: Buffer.output(unigram, tolerance),
        Number.kSmoothedParams: p.params(),
    }
    return Case(p.name, "rnnt_smoothed_unigram", -(-p.C // SIMD), THREADS, buffers)


def _am_only(p):
    unigram, sums = p.am_only
    tolerance = log_tolerance(p) + 4 * EPS * np.abs(sums)
    buffers = {
        Number.kSmoothedAm: floats(p.am),
        Number.kSmoothedAmMax: floats(p.rows()["am_max"]),
        Number.kSmoothedUnigram: floats(unigram),
        Number.kSmoothedBoundary: p.boundary(),
        Number.kSmoothedAmLogSum: Buffer.output(sums, tolerance),
        Number.kSmoothedParams: p.params(),
    }
    return Case(p.name, "rnnt_smoothed_am_only", groups(p.B * p.T), THREADS, buffers)


def _outside(expected, inside):
    """Returns a buffer of gradients.

    The kernel writes 0 outside of the boundary, and nothing inside.

    If `expected` is 0, the kernel has no gradients to write, and the buffer has one element.
    """
    if expected == 0:
        return Buffer(np.full(1, UNTOUCHED, np.float32))
    return Buffer.output(np.where(inside, UNTOUCHED, 0))


def _scores(p, has_grads):
    rows = p.rows()
    px, py = p.scores()
    log_sums = p.log_sums()
    *_, x_inside, y_inside = p.inside()
    unigram, am_log_sum = p.am_only
    products = np.einsum("bsc,btc->bst", rows["lm_exp"], rows["am_exp"])
    log_sums = log_sums if p.scale else 0 * log_sums
    tolerance = score_tolerance(p)
    buffers = {
        Number.kSmoothedAm: floats(p.am),
        Number.kSmoothedLm: floats(p.lm),
        Number.kSmoothedSymbols: p.some_symbols(),
        Number.kSmoothedBoundary: p.boundary(),
        Number.kSmoothedAmMax: floats(rows["am_max"]),
        Number.kSmoothedLmMax: floats(rows["lm_max"]),
        Number.kSmoothedLmLogSum: floats(rows["lm_log_sum"]),
        Number.kSmoothedProducts: floats(products),
        Number.kSmoothedUnigram: floats(unigram),
        Number.kSmoothedAmLogSum: floats(am_log_sum),
        Number.kSmoothedPx: Buffer.output(px, tolerance),
        Number.kSmoothedPy: Buffer.output(py, tolerance),
        Number.kSmoothedLogSums: Buffer.output(
            log_sums, log_tolerance(p) + 4 * EPS * np.abs(log_sums)
        ),
        Number.kSmoothedPxGrad: _outside(px.size * has_grads, x_inside),
        Number.kSmoothedPyGrad: _outside(has_grads, y_inside),
        Number.kSmoothedOnes: Buffer.output(np.ones(p.B)) if has_grads else floats(np.zeros(1)),
        Number.kSmoothedParams: p.params(has_grads),
    }
    tiles = p.B * (p.S // TILE + 1) * ((p.px_columns - 1) // TILE + 1)
    return Case(f"{p.name}, {has_grads}", "rnnt_smoothed_scores", tiles, THREADS, buffers)

"""Cases of the kernels that compute px and py of rnnt_loss_smoothed.

Tolerances: exp() and log() have errors of some units in the last place, and a difference of logits
x is rounded by eps * |x|.  So exp() has a relative error of eps * (|x| + 4). Where |x| is large,
exp(x) is too small to matter, and the error of a sum is at most 4 eps.  A log-prob is the sum of
three such terms for each of three parts.
"""

import numpy as np

from k2_mps_tests.kernels.case import UNTOUCHED, Buffer, Case, ints
from k2_mps_tests.kernels.rnnt import PROBLEMS, SIMD, THREADS, TILE

EPS = float(np.finfo(np.float32).eps)
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
    """The tolerance for the log of a sum of exponentials of differences of logits."""
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
    tolerances = {"am_exp": 8 * EPS, "lm_exp": 8 * EPS, "lm_log_sum": log_tolerance(p)}
    next_places = p.next_places()
    buffers = [
        *(floats(p.am), floats(p.lm), p.some_symbols(), p.boundary()),
        *(Buffer.output(x, tolerances.get(name, 0)) for name, x in expected.items()),
        Buffer.output(next_places, dtype=np.int32) if p.S else ints([7]),
        p.params(),
    ]
    count = p.B * (p.T + p.S + 1)
    return Case(p.name, "rnnt_smoothed_rows", groups(count), THREADS, buffers)


def _unigram(p):
    rows, (unigram, _) = p.rows(), p.am_only
    buffers = [floats(p.lm), floats(rows["lm_max"]), floats(rows["lm_log_sum"])]
    buffers += [Buffer.output(unigram, log_tolerance(p) + EPS * np.abs(unigram)), p.params()]
    return Case(p.name, "rnnt_smoothed_unigram", -(-p.C // SIMD), THREADS, buffers)


def _am_only(p):
    unigram, sums = p.am_only
    buffers = [floats(p.am), floats(p.rows()["am_max"]), floats(unigram), p.boundary()]
    tolerance = log_tolerance(p) + 4 * EPS * np.abs(sums)
    buffers += [Buffer.output(sums, tolerance), p.params()]
    return Case(p.name, "rnnt_smoothed_am_only", groups(p.B * p.T), THREADS, buffers)


def _outside(expected, inside):
    """A buffer of gradients, which gets 0 outside of the boundary."""
    if expected == 0:
        return Buffer(np.full(1, UNTOUCHED, np.float32))
    return Buffer.output(np.where(inside, UNTOUCHED, 0))


def _scores(p, has_grads):
    rows = p.rows()
    px, py = p.scores()
    log_sums = p.log_sums()
    *_, x_inside, y_inside = p._inside()
    unigram, am_log_sum = p.am_only
    products = np.einsum("bsc,btc->bst", rows["lm_exp"], rows["am_exp"])
    log_sums = log_sums if p.scale else 0 * log_sums
    tolerance = score_tolerance(p)
    buffers = [
        *(floats(p.am), floats(p.lm), p.some_symbols(), p.boundary()),
        *(floats(rows[name]) for name in ("am_max", "lm_max", "lm_log_sum")),
        *(floats(products), floats(unigram), floats(am_log_sum)),
        *(Buffer.output(px, tolerance), Buffer.output(py, tolerance)),
        Buffer.output(log_sums, log_tolerance(p) + 4 * EPS * np.abs(log_sums)),
        _outside(px.size * has_grads, x_inside),
        _outside(has_grads, y_inside),
        Buffer.output(np.ones(p.B)) if has_grads else floats(np.zeros(1)),
        p.params(has_grads),
    ]
    tiles = p.B * (p.S // TILE + 1) * ((p.px_columns - 1) // TILE + 1)
    return Case(f"{p.name}, {has_grads}", "rnnt_smoothed_scores", tiles, THREADS, buffers)

"""Cases of the kernels of pruning.

These kernels compute ranges, the rows of lm in the ranges, the input of a joiner, and gradients.
The reference follows the definition of get_rnnt_prune_ranges() step by step.  Gradients of px and
py are whole numbers here, so sums of them are exact.

Tolerances: kernels copy rows of lm, and the copies must be equal to the rows.  A gradient is a sum
of T * s_range numbers of at most about 1, and the kernel rounds each addition.  By Metal's
specification, tanh() is off by 5 units in the last place.
"""

import itertools
from typing import NamedTuple

import numpy as np

from k2_mps_tests.kernels.case import UNTOUCHED, Buffer, Case
from k2_mps_tests.kernels.checks.mutual_information import BFLOAT, EPS, FLOAT, HALF
from k2_mps_tests.kernels.runner import values
from k2_mps_tests.kernels.sources import enumeration, enumerators, layout

Number = enumeration("rnnt_pruning.h", "RnntPruningBuffer")
RANGES_PARAMS = layout("rnnt_pruning.h", "RnntRangesParams")
PARAMS = layout("rnnt_pruning.h", "RnntPruningParams")
SIZES = enumerators("rnnt_pruning.h")
SIMD = 32
THREADS, RANGES_THREADS = SIZES["kRnntPruningRowThreads"], SIZES["kRnntPruningRangesThreads"]
BACKWARD_THREADS, FOUND = SIZES["kRnntPruningBackwardThreads"], SIZES["kRnntPruningFound"]


class Shape(NamedTuple):
    """The sizes of the kernels' arguments, with the names of RnntPruningParams."""

    S: int
    T: int
    R: int  # s_range
    D: int


# S, T, s_range
RANGES = [(1, 1, 2), (4, 6, 2), (9, 40, 3), (12, RANGES_THREADS + 9, 5), (6, 20, 7)]
PRUNED = [
    Shape(S=0, T=1, R=1, D=1),
    Shape(S=5, T=7, R=3, D=33),
    Shape(S=40, T=9, R=4, D=64),
    # There are more rows than a threadgroup of the backward kernels examines at once, and more
    # columns than the threadgroup has threads.
    Shape(S=3, T=FOUND // 5 + 1, R=5, D=2 * BACKWARD_THREADS + 3),
]
RISING = [Shape(S=40, T=60, R=4, D=64), Shape(S=257, T=300, R=5, D=33)]


def cases():
    for (S, T, R), regular in itertools.product(RANGES, (True, False)):
        yield _ranges(S, T, R, regular)
    yield _ranges(*RANGES[2], regular=True, nan=0.1)
    for shape, tanh in itertools.product(PRUNED, (False, True)):
        for number in (FLOAT, HALF, BFLOAT):
            yield _prune(shape, tanh, number)
            if shape is PRUNED[1]:
                yield _prune(shape, tanh, number, wrong=True)
            yield _backward(shape, tanh, number, am=True, lm=True)
    for tanh, am in itertools.product((False, True), (False, True)):
        yield _backward(PRUNED[2], tanh, FLOAT, am=am, lm=not am)
    for shape, tanh in itertools.product(RISING, (False, True)):
        yield _backward(shape, tanh, FLOAT, am=True, lm=True, order=_rising)


def _ranges(S, T, R, regular, nan=0.0):
    """Returns a case of rnnt_prune_ranges.

    Args:
      nan: the fraction of the gradients of py that is NaN.
    """
    B, columns = 2, T + regular
    random = np.random.default_rng([S, T, R])
    px_grad = random.integers(0, 9, (B, S, columns))
    py_grad = random.integers(0, 9, (B, S + 1, T)).astype(np.float32)
    py_grad[random.random(py_grad.shape) < nan] = np.nan
    bounds = np.array([[0, 0, S, T], [0, 0, S - S // 3, T - T // 3]])
    step = R - 1 if regular else 1
    expected = np.zeros((B, T, R), np.int64)
    for b in range(B):
        begins = [_best(px_grad[b], py_grad[b], bounds[b], t, R) for t in range(T)]
        begins = [min(begins[t:]) for t in range(T)]
        late = [step * t - begin for t, begin in enumerate(begins)]
        late = [max(min(late[t:]), 0) for t in range(T)]
        expected[b] = [[step * t - late[t] + j for j in range(R)] for t in range(T)]
    return Case(
        f"S {S}, T {T}, s_range {R}, regular {regular}, NaN {nan}",
        "rnnt_prune_ranges",
        B,
        RANGES_THREADS,
        {
            Number.kRnntPruningPxGrad: Buffer(px_grad.astype(np.float32)),
            Number.kRnntPruningPyGrad: Buffer(py_grad),
            Number.kRnntPruningBoundary: Buffer(bounds.astype(np.int64)),
            Number.kRnntPruningRanges: Buffer.output(expected, dtype=np.int64),
            Number.kRnntPruningParams: Buffer.struct(
                RANGES_PARAMS, S=S, T=T, R=R, px_columns=columns, most_step=step
            ),
        },
    )


def _best(px_grad, py_grad, bound, t, R):
    """Returns the position at which the best range of frame t begins.

    If several ranges are equally good, returns the position of the first one.  A NaN counts as the
    best, as for torch.argmax().  From frame t_end - 1
    on, the range ends at position s_end.  If s_end < R - 1, the range begins at position 0 instead.
    """
    _, _, s_end, t_end = bound
    if t >= t_end - 1:
        return max(s_end - R + 1, 0)
    kept = [
        py_grad[s : s + R, t].sum() - (px_grad[s - 1, t] if s else 0)
        for s in range(len(py_grad) + 1 - R)
    ]
    return int(np.argmax(kept))


def _inputs(shape, number, seed):
    """Returns (generator of random numbers, ranges, am, lm).

    Unlike k2's ranges, these random ranges need not rise from frame to frame.  am and lm have the
    kernel's type.
    """
    S, T, R, D = shape
    random = np.random.default_rng([*shape, seed])
    ranges = random.integers(0, S + 1, (2, T, R))
    am, lm = (
        number.encode(random.standard_normal((2, rows, D)).astype(np.float32))
        for rows in (T, S + 1)
    )
    return random, ranges, am, lm


def _rising(ranges, S):
    """Returns ranges that rise from frame to frame up to S.

    get_rnnt_prune_ranges() returns such ranges.
    """
    _, T, R = ranges.shape
    begins = np.linspace(0, max(S + 1 - R, 0), T).astype(np.int64)
    return np.tile(begins[:, None] + np.arange(R), (2, 1, 1))


def _rounding(expected, number):
    return number.eps / 2 * np.abs(expected) + number.smallest / 2


def _prune(shape, tanh, number, wrong=False):
    """Returns a case of rnnt_prune or rnnt_joiner_input.

    Args:
      wrong: whether two elements of the ranges are no rows of lm.
    """
    S, T, R, D = shape
    _, ranges, am, lm = _inputs(shape, number, 0)
    rows = np.stack([values(lm)[b][ranges[b]] for b in range(2)]).astype(np.float64)
    if wrong:
        for index, position in (((0, 0, 0), -1 - (1 << 40)), ((1, T - 1, R - 1), S + 1)):
            ranges[index], rows[index] = position, np.nan
    expected, tolerance = rows, 0.0
    if tanh:
        expected = np.tanh(rows + values(am)[:, :, None])
        tolerance = 8 * EPS + _rounding(np.nan_to_num(expected), number)
    kernel = ("rnnt_joiner_input" if tanh else "rnnt_prune") + number.suffix
    return Case(
        f"{tuple(shape)}" + (", wrong ranges" if wrong else ""),
        kernel,
        -(-2 * T * R // (THREADS // SIMD)),
        THREADS,
        {
            Number.kRnntPruningAm: Buffer(am),
            Number.kRnntPruningLm: Buffer(lm),
            Number.kRnntPruningRanges: Buffer(ranges.astype(np.int64)),
            Number.kRnntPruningOut: _output(expected, tolerance, number),
            Number.kRnntPruningParams: Buffer.struct(
                PARAMS, B=2, S=S, T=T, R=R, D=D, has_am_grad=0, has_lm_grad=0
            ),
        },
    )


def _output(expected, tolerance, number):
    content = number.encode(np.full(expected.shape, UNTOUCHED, np.float32))
    return Buffer(content, expected.astype(np.float32), tolerance)


def _backward(shape, tanh, number, am, lm, order=None):
    S, T, R, D = shape
    random, ranges, _, _ = _inputs(shape, number, 1)
    if order is not None:
        ranges = order(ranges, S)
    grad, out = (
        number.encode(random.uniform(-1, 1, (2, T, R, D)).astype(np.float32)) for _ in range(2)
    )
    terms = values(grad).astype(np.float64)
    if tanh:
        terms = terms * (1 - values(out).astype(np.float64) ** 2)
    am_grad, lm_grad = terms.sum(2), np.zeros((2, S + 1, D))
    for b, t, j in np.ndindex(2, T, R):
        lm_grad[b, ranges[b, t, j]] += terms[b, t, j]

    def gradient(expected, needed):
        if not needed:
            return Buffer(number.encode(np.full(1, UNTOUCHED, np.float32)))
        return _output(expected, T * R * 2 * EPS + _rounding(expected, number), number)

    name = f", {order.__name__[1:]}" if order else ""
    groups = 2 * (S + 1) * lm + -(-2 * T // (BACKWARD_THREADS // SIMD)) * am
    kernel = ("rnnt_joiner_input" if tanh else "rnnt_prune") + "_backward" + number.suffix
    return Case(
        f"{tuple(shape)}, gradient of am {am}, of lm {lm}{name}",
        kernel,
        groups,
        BACKWARD_THREADS,
        {
            Number.kRnntPruningOutGrad: Buffer(grad),
            Number.kRnntPruningOut: Buffer(out),
            Number.kRnntPruningRanges: Buffer(ranges.astype(np.int64)),
            Number.kRnntPruningAmGrad: gradient(am_grad, am),
            Number.kRnntPruningLmGrad: gradient(lm_grad, lm),
            Number.kRnntPruningParams: Buffer.struct(
                PARAMS, B=2, S=S, T=T, R=R, D=D, has_am_grad=am, has_lm_grad=lm
            ),
        },
    )

"""Cases of rnnt_pruned_forward, rnnt_pruned_rows, rnnt_pruned_backward and rnnt_reduce.

The reference computes one row of logits after another in float64, by the formulas in
rnnt_pruned.metal.

Tolerances: fast::exp(x) is off by 3 + 2 |x| units in the last place.  So for x <= 0, the error of
fast::exp(x) is below 4 eps.  z is the logarithm of a sum of such terms.  The largest term is 1, so
the relative error of the sum is below 4 eps.  A log-prob is the difference of a logit and z.  The
kernel rounds z and the difference, which are less than SIZE.  A gradient is a product of numbers
below 1.  The kernel rounds this product to the gradient's type.
"""

import itertools

import numpy as np

from k2_mps_tests.kernels.case import UNTOUCHED, Buffer, Case
from k2_mps_tests.kernels.checks.mutual_information import BFLOAT, EPS, FLOAT, HALF
from k2_mps_tests.kernels.runner import values
from k2_mps_tests.kernels.sources import enumeration, enumerators, layout

Number = enumeration("rnnt_pruned.h", "RnntPrunedBuffer")
PARAMS = layout("rnnt_pruned.h", "RnntPrunedParams")
REDUCE_PARAMS = layout("rnnt_pruned.h", "RnntReduceParams")
SIZES = enumerators("rnnt_pruned.h")
FRAMES, ROWS, THREADS = (SIZES[name] for name in ("kRpFrames", "kRpRows", "kRpThreads"))
SIZE = 12.0  # more than the sum of log(C) and a logit drawn from N(0, 2^2)
LOG = 8 * EPS + 4 * EPS * SIZE

# (S, T, C, R).  The first shape has the smallest sizes.  The sizes of all other shapes are near one
# of three limits: the frames of a threadgroup, the columns that a simdgroup loads at once, and the
# rows in threadgroup memory.
SHAPES = [
    (0, 1, 1, 1),
    (3, FRAMES, 5, 2),
    (6, FRAMES + 1, 128, 3),
    (9, 2 * FRAMES - 1, 131, 10),
    (ROWS + 5, 3, 33, ROWS + 1),
]
REGULAR, MODIFIED, CONSTRAINED = range(3)


def cases():
    for shape, kind in itertools.product(SHAPES, (REGULAR, MODIFIED, CONSTRAINED)):
        yield from _both(shape, kind)
    shape = SHAPES[2]
    yield from _both(shape, REGULAR, hat=True)
    yield from _both(shape, CONSTRAINED, hat=True, bounded=True)
    yield from _both(shape, REGULAR, bounded=True)
    yield from _both(SHAPES[3], CONSTRAINED, with_ranges=False, bounded=True, delay=0.25)
    for number in (HALF, BFLOAT):
        yield from _both(shape, REGULAR, bounded=True, number=number)
    for B, sums, divisor in ((1, 0, 1), (40, 0, 1), (40, 1, 1), (33, 1, 33)):
        yield _reduce(B, sums, divisor)


def _both(shape, kind, hat=False, with_ranges=True, bounded=False, delay=0.0, number=FLOAT):
    S, T, C, R = shape
    B = 2
    random = np.random.default_rng([S, T, C, R, kind])
    bits = number.encode((2 * random.standard_normal((B, T, R, C))).astype(np.float32))
    logits = values(bits).astype(np.float64)
    symbols = random.integers(0, C, (B, S))
    begin = random.integers(0, S + 2 - R, (B, T, 1)) if with_ranges else np.zeros((B, T, 1), int)
    ranges = begin + np.arange(R)
    bounds = np.array([[0, 0, S, T]] * B)
    if bounded:
        bounds[1] = [1, 2, S - 1, T - 2]
    blank = 0 if hat else C - 1
    columns = T + (kind == REGULAR)

    z, px, py = _log_probs(logits, symbols, ranges, bounds, blank, hat)
    offset = 0.5 * (bounds[:, 3] - 1)[:, None, None] - np.arange(T)
    px += delay * offset
    if kind == CONSTRAINED:
        px += py[:, 1:]
    px = np.concatenate([px, np.full((B, S, columns - T), -np.inf)], 2)

    def params(scale=0.0):
        return Buffer.struct(
            PARAMS,
            B=B,
            S=S,
            T=T,
            C=C,
            R=R,
            blank=blank,
            px_columns=columns,
            has_ranges=with_ranges,
            has_boundary=bounded,
            constrained=kind == CONSTRAINED,
            hat=hat,
            delay_penalty=delay,
            loss_scale=scale,
            loss_stride=1,
        )

    problem = {
        Number.kRpSymbols: _longs(symbols),
        Number.kRpRanges: _longs(ranges if with_ranges else []),
        Number.kRpBoundary: _longs(bounds if bounded else []),
    }
    inside = ~np.isnan(z)
    lse = np.where(inside, z, UNTOUCHED)
    name = f"{shape}, kind {kind}, hat {hat}, bounded {bounded}"
    yield Case(
        name,
        "rnnt_pruned_forward" + number.suffix,
        B * -(-T // FRAMES),
        THREADS,
        {
            **problem,
            Number.kRpLogits: Buffer(bits),
            Number.kRpLse: Buffer.output(lse, np.where(inside, LOG, 0)),
            Number.kRpPx: Buffer.output(px, 2 * LOG),
            Number.kRpPy: Buffer.output(py, LOG),
            Number.kRpOnes: Buffer.output(np.ones(B)),
            Number.kRpParams: params(),
        },
    )
    px_grad = random.random((B, S, columns)).astype(np.float32)
    py_grad = random.random((B, S + 1, T)).astype(np.float32)
    weight = random.random(B).astype(np.float32)
    row_grads = _row_gradients(ranges, bounds, kind == CONSTRAINED, px_grad, py_grad)
    inputs = {**problem, Number.kRpParams: params()}
    yield _rows_case(name, inputs, px_grad, py_grad, row_grads)
    grad = _gradient(
        logits, symbols, ranges, bounds, blank, hat, -row_grads * weight[:, None, None, None]
    )
    tolerance = 8 * EPS * SIZE
    rounding = number.eps / 2 * (np.abs(grad) + tolerance) + number.smallest / 2
    yield Case(
        name,
        "rnnt_pruned_backward" + number.suffix,
        -(-B * T * R // (THREADS // 32)),
        THREADS,
        {
            **problem,
            Number.kRpLogits: Buffer(bits),
            Number.kRpLse: Buffer(lse.astype(np.float32)),
            Number.kRpRowGrads: Buffer(row_grads),
            Number.kRpLossGrad: Buffer(weight),
            Number.kRpGrad: Buffer(
                number.encode(np.full(grad.shape, UNTOUCHED, np.float32)),
                grad.astype(np.float32),
                tolerance + rounding,
            ),
            Number.kRpParams: params(scale=-1.0),
        },
    )


def _longs(array):
    """Returns a buffer of numpy.int64.

    For an empty array, the buffer has one element.  A kernel that uses this element gives a wrong
    result.
    """
    array = np.array(array, np.int64)
    return Buffer(array if array.size else np.full(1, 1 << 40))


def _rows(ranges, bounds):
    """Yields the index (b, t, j) and the position of each row inside of the boundaries."""
    for index in np.ndindex(*ranges.shape):
        b, t, j = index
        s_begin, t_begin, s_end, t_end = bounds[b]
        s = ranges[b, t, 0] + j
        if t_begin <= t < t_end and s_begin <= s <= s_end:
            yield index, s


def _log_probs(logits, symbols, ranges, bounds, blank, hat):
    """Returns (z, px, py).

    z is the log of the sum of exp(logit) over a row; with `hat`, the sum leaves out blank.  Outside
    of the boundaries, z is NaN, and px and py are -inf.
    """
    B, T, _, C = logits.shape
    S = symbols.shape[1]
    z = np.full(ranges.shape, np.nan)
    px, py = np.full((B, S, T), -np.inf), np.full((B, S + 1, T), -np.inf)
    for (b, t, j), s in _rows(ranges, bounds):
        row = logits[b, t, j]
        z[b, t, j] = np.log(np.exp(row[np.arange(C) != blank] if hat else row).sum())
        py[b, s, t] = -np.log1p(np.exp(-row[blank])) if hat else row[blank] - z[b, t, j]
        if s < S:
            shift = -np.log1p(np.exp(row[blank])) if hat else 0
            px[b, s, t] = row[symbols[b, s]] - z[b, t, j] + shift
    return z, px, py


def _row_gradients(ranges, bounds, constrained, px_grad, py_grad):
    """Returns the gradients of px and of py of each row, [B][T][R][2], 0 outside of boundaries."""
    grads = np.zeros((*ranges.shape, 2), np.float32)
    for (b, t, j), s in _rows(ranges, bounds):
        s_begin, _, s_end, _ = bounds[b]
        x = px_grad[b, s, t] if s < s_end else np.float32(0)
        y = py_grad[b, s, t]
        if constrained and s > s_begin:
            y += px_grad[b, s - 1, t]
        grads[b, t, j] = x, y
    return grads


def _rows_case(name, inputs, px_grad, py_grad, row_grads):
    """Returns a case of rnnt_pruned_rows.  The kernel also computes the sum of the scores."""
    B, S = px_grad.shape[:2]
    scores = np.random.default_rng(S).standard_normal(B).astype(np.float32)
    return Case(
        name,
        "rnnt_pruned_rows",
        -(-row_grads[..., 0].size // THREADS),
        THREADS,
        {
            **inputs,
            Number.kRpPxGrad: Buffer(px_grad if S else np.zeros(1, np.float32)),
            Number.kRpPyGrad: Buffer(py_grad),
            Number.kRpRowGrads: Buffer.output(row_grads),
            Number.kRpScores: Buffer(scores),
            Number.kRpLoss: Buffer.output([-scores.astype(np.float64).sum()], B * EPS * SIZE),
            Number.kRpReduce: Buffer.struct(REDUCE_PARAMS, B=B, sums=1, divisor=1),
        },
    )


def _gradient(logits, symbols, ranges, bounds, blank, hat, row_grads):
    """Returns the gradient of the logits.

    row_grads: the gradients of px and of py of each row.
    """
    S, C = symbols.shape[1], logits.shape[3]
    grad = np.zeros(logits.shape)
    for (b, t, j), s in _rows(ranges, bounds):
        row = logits[b, t, j]
        x, y = row_grads[b, t, j]
        terms = np.exp(row)
        if hat:
            terms[blank] = 0
        normalized = x if hat else x + y
        if C > int(hat):
            grad[b, t, j] = -normalized * terms / terms.sum()
        if s < S:
            grad[b, t, j, symbols[b, s]] += x
        share = 1 / (1 + np.exp(-row[blank]))
        grad[b, t, j, blank] += y * (1 - share) - x * share if hat else y
    return grad


def _reduce(B, sums, divisor):
    scores = np.random.default_rng(B).standard_normal(B).astype(np.float32)
    expected = [-scores.astype(np.float64).sum() / divisor] if sums else -scores
    return Case(
        f"{B} sequences, sum {sums} / {divisor}",
        "rnnt_reduce",
        1,
        32,
        {
            Number.kRpScores: Buffer(scores),
            Number.kRpLoss: Buffer.output(expected, B * EPS * SIZE * sums),
            Number.kRpReduce: Buffer.struct(REDUCE_PARAMS, B=B, sums=sums, divisor=divisor),
        },
    )

"""Cases of mutual_information_forward and mutual_information_backward.

The reference computes this recursion in float64, one cell after another:

  score[s][t] = log(exp(score[s-1][t+o] + px[s-1][t+o]) +
                    exp(score[s][t-1] + py[s][t-1]))

Here, o is t_offset.  The reference also computes the derivative of the recursion.  The reference
and the kernels share only this formula, see k2/csrc/mps/mutual_information.h.

The tolerance of scores: the kernel computes a score in S + T steps.  Each step computes a sum and
rounds the sum to float32.  The rounding error is at most eps / 2 of the sum's size.  One term of
the sum is log(1 + exp(x)), which is at most 0.7.  Metal allows precise::exp() and precise::log() an
error of 4 units in the last place each.  These two errors add up to at most 2^-21.

The tolerance of gradients: the share of a cell is the fraction of exp(score) that comes from row
s - 1.  A kernel computes a share from differences of scores.  A kernel computes a gradient in S + T
steps.  In each step, the kernel multiplies gradients by shares, which are at most 1, and adds the
products.  The kernel rounds the products and the sum.

_in_order() gives the order of shares in memory.
"""

import dataclasses
import math

import numpy as np

from k2_mps_tests.kernels.case import EPS, UNTOUCHED, Buffer, Case
from k2_mps_tests.kernels.runner import values
from k2_mps_tests.kernels.sources import enumeration, enumerators, layout

Number = enumeration("mutual_information.h", "MutualInformationBuffer")
PARAMS = layout("mutual_information.h", "MutualInformationParams")
NEVER = -math.inf

SIMD = 32
SIZES = enumerators("mutual_information.h")
MOST = SIZES["kMiMaxRows"]
FEW = SIZES["kMiFewRows"]
COLUMNS = SIZES["kMiColumns"]

# (S, T).  Some shapes have the smallest sizes, and some shapes have several bands.  All other sizes
# are near the number of rows of a simdgroup or of the largest threadgroup, or near the number of
# columns that a thread loads at once.
SHAPES = [
    (0, 0),
    (0, 1),
    (1, 0),
    (1, 1),
    (2, 5),
    (SIMD // 2, 3 * COLUMNS),
    (SIMD - 2, COLUMNS - 1),
    (SIMD - 1, COLUMNS),
    (SIMD, COLUMNS + 1),
    (SIMD + 1, 5 * COLUMNS),
    (FEW - 1, 37),
    (FEW, 9),
    (MOST - 1, 5),
    (MOST, 9),
]


@dataclasses.dataclass(frozen=True)
class Kind:
    """A type of px and py, and of their gradients."""

    suffix: str  # the end of the kernels' names
    # eps is the distance from 1 to the next larger number of the type, and `smallest` the smallest
    # positive number.  Both are 0 for float32, because the kernels compute gradients in float32.
    eps: float
    smallest: float

    def encode(self, array):
        """Rounds numbers of float32 to the type; returns an array that case.Buffer takes."""
        if self is HALF:
            return array.astype(np.float16)
        if self is FLOAT:
            return array
        # Rounds to the nearest number.  If two numbers are equally near, rounds to the even one.
        bits = array.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


FLOAT = Kind("", 0.0, 0.0)
HALF = Kind("_half", 2.0**-10, 2.0**-24)
BFLOAT = Kind("_bfloat", 2.0**-7, 2.0**-133)


def cases():
    for S, T in SHAPES:
        yield from _both(f"S {S}, T {T}", _make(2, S, T))
        # In the modified recursion, each symbol takes a frame, so there is no path if S > T.
        T = max(S, T, 1)
        yield from _both(f"S {S}, T {T}, modified", _make(2, S, T, modified=True))
    yield from _both("modified, without a path", _make(1, 5, 3, modified=True))
    S, T = SIMD + 8, 12
    boundary = np.array(
        [
            [0, 0, S, T],
            [0, 0, 3, 7],
            [2, 3, SIMD + 4, 9],
            [4, 5, 4, 5],
            [1, 2, 1, 9],
            [1, 4, 6, 4],
            [0, 0, 0, 0],
        ]
    )
    for modified in (False, True):
        yield from _both(
            "boundary, " + ("modified" if modified else "regular"),
            _make(len(boundary), S, T, modified),
            boundary,
        )
    # The rows of the second band are all beyond the end of the first sequence.
    boundary = np.array([[0, 0, 3, 2], [0, 0, MOST + 8, 2]])
    yield from _both("a band without rows", _make(2, MOST + 8, 2), boundary)
    for S, T in ((40, 50), (4 * SIMD + 10, 60)):
        yield from _both(f"S {S}, T {T}, pruned", _pruned(2, S, T))
    yield from _both("large scores", _make(1, 50, 40, scale=300.0))
    S, T = SIMD + 9, 40
    boundary = np.array([[0, 0, S, T], [2, 3, SIMD + 4, 29], [1, 2, 1, 9]])
    for kind in (HALF, BFLOAT):
        for modified in (False, True):
            yield from _both(
                "boundary, " + ("modified" if modified else "regular"),
                _make(len(boundary), S, T, modified),
                boundary,
                kind=kind,
            )
        yield from _both("pruned", _pruned(2, S, T), kind=kind)
        yield from _both("many rows", _make(2, FEW, 9), kind=kind)
        yield from _both("without a path", _make(1, 5, 3, modified=True), kind=kind)


def _make(B, S, T, modified=False, scale=1.0):
    """Returns (px, py, modified).

    px and py are random float32 numbers, mostly negative like logs of probabilities.
    """
    random = np.random.default_rng([B, S, T, modified])
    px = random.standard_normal((B, S, T + 1 - modified)) * scale - 1
    py = random.standard_normal((B, S + 1, T)) * scale - 1
    return px.astype(np.float32), py.astype(np.float32), modified


def _pruned(B, S, T):
    """Returns (px, py, modified), where px is -inf far from the diagonal."""
    px, py, modified = _make(B, S, T)
    s, t = np.arange(S)[:, None], np.arange(T + 1)[None, :]
    px[:, np.abs(s - t * S / T) > S / 4] = NEVER
    return px, py, modified


def _both(name, inputs, boundary=None, kind=FLOAT):
    """Yields a case of each of the two kernels for the same sequences.

    Args:
      inputs: (px, py, modified).
      boundary: [B][4], or None.
      kind: the type of px and py in the kernels.
    """
    px, py, modified = inputs
    # What the kernels read: px and py, rounded to their type.
    px_bits, py_bits = kind.encode(px), kind.encode(py)
    px, py = values(px_bits).astype(np.float32), values(py_bits).astype(np.float32)
    offset = -int(modified)
    B, S, T = px.shape[0], px.shape[1], py.shape[2]
    bounds = np.tile([0, 0, S, T], (B, 1)) if boundary is None else boundary
    results = [_scores_and_shares(px[b], py[b], offset, bounds[b]) for b in range(B)]
    scores, shares = map(np.stack, zip(*results))
    ans = np.array([scores[b, bounds[b, 2], bounds[b, 3]] for b in range(B)])
    size = 1 + np.abs(ans[np.isfinite(ans)]).max(initial=0)
    allowed = (S + T + 1) * (EPS / 2 * size + 2.0**-21)
    # A cell that no path reaches may have any value, because no gradient flows into the cell.
    tolerance = np.where(np.isfinite(scores), allowed, np.inf)

    def case(kernel, buffers):
        return _case(name, kernel + kind.suffix, px, py, offset, boundary, buffers)

    yield case(
        "mutual_information_forward",
        {
            Number.kMiPx: Buffer(_some(px_bits, shares.shape)),
            Number.kMiPy: Buffer(_some(py_bits, shares.shape)),
            Number.kMiBoundary: _boundary(boundary),
            Number.kMiP: Buffer.output(
                _in_order(np.nan_to_num(shares), offset, bounds, UNTOUCHED),
                _in_order(tolerance, offset, bounds, 0),
            ),
            Number.kMiAns: Buffer.output(ans, allowed),
        },
    )
    weight = np.arange(1, B + 1, dtype=np.float32)
    p = shares.astype(np.float32)
    grads = [
        _gradients(p[b], px[b].shape, py[b].shape, offset, bounds[b], weight[b]) for b in range(B)
    ]
    px_grad, py_grad = (
        _output(np.stack(grad), (S + T + 1) * 2 * EPS * B, kind) for grad in zip(*grads)
    )
    yield case(
        "mutual_information_backward",
        {
            Number.kMiBoundary: _boundary(boundary),
            Number.kMiP: Buffer(_in_order(p, offset, bounds, UNTOUCHED)),
            Number.kMiAnsGrad: Buffer(weight),
            Number.kMiPxGrad: px_grad,
            Number.kMiPyGrad: py_grad,
        },
    )


def _case(name, kernel, px, py, offset, boundary, buffers):
    """Returns a case of a kernel.  The case has one launch for each band of MOST rows.

    Args:
      buffers: the arguments, except the parameters and the edges of bands.  This function adds
        these two buffers.
    """
    B, S, T = px.shape[0], px.shape[1], py.shape[2]
    threads = min(MOST, -(-(S + 1) // SIMD) * SIMD)
    if threads > FEW:
        kernel += "_tall"
    first, *more = (
        Buffer.struct(
            PARAMS, S=S, T=T, t_offset=offset, has_boundary=boundary is not None, band=band
        )
        for band in range(-(-(S + 1) // threads))
    )
    edges = Buffer.scratch(np.full((B, 2, T + 1), UNTOUCHED, np.float32))
    buffers = {**buffers, Number.kMiEdges: edges, Number.kMiParams: first}
    more = [(B, {Number.kMiParams: params}) for params in more]
    return Case(name, kernel, B, threads, buffers, more)


def _some(array, p_shape):
    """Returns the array, or an array of zeros with the shape of p if the array is empty.

    Metal does not bind an empty buffer.  So mutual_information.cu binds p in place of an empty
    tensor.  The kernel then reads elements of p, and does not use them.
    """
    return array if array.size else np.zeros(p_shape, array.dtype)


def _boundary(boundary):
    """Returns the buffer of the boundary.

    Without a boundary, the buffer has a number that no kernel may use.
    """
    if boundary is None:
        return Buffer(np.full(1, 1 << 40, np.int64))
    return Buffer(boundary.astype(np.int64))


def _output(expected, tolerance, kind):
    """Returns a buffer of gradients.  Where `expected` is NaN, the kernel must not write.

    `tolerance` does not include the rounding to the type of `kind`.  This rounding changes a
    gradient by up to eps / 2 of its size, or by up to half the smallest number of the type.
    """

    def untouched_buffer(shape):
        return kind.encode(np.full(shape, UNTOUCHED, np.float32))

    if expected.size == 0:
        return Buffer(untouched_buffer(1))
    untouched = np.isnan(expected)
    rounding = kind.eps / 2 * (np.abs(expected) + tolerance) + kind.smallest / 2
    return Buffer(
        untouched_buffer(expected.shape),
        np.where(untouched, UNTOUCHED, expected).astype(np.float32),
        np.where(untouched, 0, tolerance + rounding),
    )


def _in_order(cells, offset, bounds, rest):
    """Returns cells, [B][S + 1][T + 1], in the order of p, [B][T + 1][S + 1].

    A row of p has the cells that the kernels compute in one step.  If no cell inside of the bounds
    belongs to an element of p, this element is `rest`.
    """
    B, rows, columns = cells.shape
    found = np.full((B, columns, rows), rest, np.float32)
    for b, (s_begin, t_begin, s_end, t_end) in enumerate(bounds):
        s, t = np.mgrid[: s_end + 1 - s_begin, : t_end + 1 - t_begin]
        found[b, (t + (1 + offset) * s) % columns, s] = cells[b, s_begin + s, t_begin + t]
    return found


def _log_add(a, b):
    low, high = min(a, b), max(a, b)
    return high if low == NEVER else high + math.log1p(math.exp(low - high))


def _scores_and_shares(px, py, offset, bound):
    """Returns (scores, shares), each [S + 1][T + 1] in float64.

    Scores and shares are NaN outside of the boundary.  A share is also NaN if no path reaches the
    cell.
    """
    s_begin, t_begin, s_end, t_end = bound
    scores = np.full((py.shape[0], py.shape[1] + 1), np.nan)
    shares = scores.copy()
    for s in range(s_begin, s_end + 1):
        for t in range(t_begin, t_end + 1):
            above = left = NEVER
            if s > s_begin and t + offset >= t_begin:
                above = scores[s - 1, t + offset] + float(px[s - 1, t + offset])
            if t > t_begin:
                left = scores[s, t - 1] + float(py[s, t - 1])
            first = s == s_begin and t == t_begin
            scores[s, t] = 0.0 if first else _log_add(above, left)
            if t == t_begin or s == s_begin:
                shares[s, t] = t == t_begin
            elif scores[s, t] != NEVER:
                shares[s, t] = math.exp(above - scores[s, t])
    return scores, shares


def _gradients(shares, px_shape, py_shape, offset, bound, weight):
    """Returns the gradients of px and py in float64, with NaN outside of the boundary."""
    s_begin, t_begin, s_end, t_end = bound
    px_grad, py_grad = np.full(px_shape, np.nan), np.full(py_shape, np.nan)
    grad = np.zeros(shares.shape)
    grad[s_end, t_end] = weight
    # A row of px has only the columns from which a path can go to the next row.  In the modified
    # recursion, no path goes from the last column to the next row.
    px_grad[s_begin:s_end, t_begin : max(t_end + 1 + offset, t_begin)] = 0
    py_grad[s_begin : s_end + 1, t_begin:t_end] = 0
    for s in range(s_end, s_begin - 1, -1):
        for t in range(t_end, t_begin - 1, -1):
            share = float(shares[s, t])
            if not math.isfinite(share) or grad[s, t] == 0:
                continue
            if s > s_begin and t + offset >= t_begin:
                flow = grad[s, t] * share
                px_grad[s - 1, t + offset] = flow
                grad[s - 1, t + offset] += flow
            if t > t_begin:
                flow = grad[s, t] * (1 - share)
                py_grad[s, t - 1] = flow
                grad[s, t - 1] += flow
    return px_grad, py_grad

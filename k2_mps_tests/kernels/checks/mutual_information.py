"""Cases of mutual_information_forward and mutual_information_backward.

The reference is the recursion in float64, one cell after another:

  score[s][t] = log(exp(score[s-1][t+o] + px[s-1][t+o]) +
                    exp(score[s][t-1] + py[s][t-1]))

with o = t_offset, and the derivative of the recursion.  The reference and the kernels have only the
formula in common (see k2/csrc/mps/mutual_information.h).

Tolerances.  A score is the last of S + T sums.  Each sum is rounded to float32, by eps / 2 of its
size.  Each sum also adds log(1 + exp(x)), at most 0.7.  Metal allows precise::exp() and
precise::log() 4 units in the last place each, 2^-21 in all.  The share of a cell is the part of
exp(score) that came from s - 1; a kernel computes a share from differences of scores.  Shares are
at most 1.  A gradient is a product of S + T shares and of as many sums, each rounded.  _in_order()
gives the order of shares in memory.
"""

import dataclasses
import math

import numpy as np

from k2_mps_tests.kernels.case import UNTOUCHED, Buffer, Case, ints
from k2_mps_tests.kernels.runner import values
from k2_mps_tests.kernels.sources import enumeration, enumerators

Number = enumeration("mutual_information.h", "MutualInformationBuffer")
EPS = float(np.finfo(np.float32).eps)
NEVER = -math.inf

SIMD = 32
SIZES = enumerators("mutual_information.h")
MOST = SIZES["kMiMaxRows"]
FEW = SIZES["kMiFewRows"]
COLUMNS = SIZES["kMiColumns"]

# S and T: the smallest sizes; sizes about the rows of a simdgroup and of the largest threadgroup,
# and about the columns that a thread loads at once; and sizes of several bands.
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


@dataclasses.dataclass
class Kind:
    """A type of px and py, and of their gradients."""

    suffix: str  # the end of the kernels' names
    # The distances from 1 and from 0 to the next number of the type.  Both are 0 if the kernels
    # compute gradients in the type itself, so that no gradient is rounded.
    eps: float
    smallest: float

    def encode(self, array):
        """Rounds numbers of float32 to the type; returns an array that case.Buffer takes."""
        if self is HALF:
            return array.astype(np.float16)
        if self is FLOAT:
            return array
        # Rounds to the nearest number; of two equally near numbers, to the even number.
        bits = array.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


FLOAT = Kind("", 0.0, 0.0)
HALF = Kind("_half", 2.0**-10, 2.0**-24)
BFLOAT = Kind("_bfloat", 2.0**-7, 2.0**-133)


def cases():
    for S, T in SHAPES:
        yield from _both(f"S {S}, T {T}", _make(2, S, T))
        # Each symbol of x takes a frame, so there is no path if S > T.
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
    # The second band begins far below the first sequence.
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
    """Returns px and py in float32, like logs of probabilities."""
    random = np.random.default_rng([B, S, T, modified])
    px = random.standard_normal((B, S, T + 1 - modified)) * scale - 1
    py = random.standard_normal((B, S + 1, T)) * scale - 1
    return px.astype(np.float32), py.astype(np.float32), modified


def _pruned(B, S, T):
    """px and py that are -inf outside of a band around the diagonal."""
    px, py, modified = _make(B, S, T)
    s, t = np.arange(S)[:, None], np.arange(T + 1)[None, :]
    px[:, np.abs(s - t * S / T) > S / 4] = NEVER
    return px, py, modified


def _both(name, inputs, boundary=None, kind=FLOAT):
    """Cases of the two kernels for the same sequences; `kind` is the type of px and py."""
    px, py, modified = inputs
    px_bits, py_bits = kind.encode(px), kind.encode(py)
    px, py = values(px_bits).astype(np.float32), values(py_bits).astype(np.float32)
    offset = -int(modified)
    B, S, T = px.shape[0], px.shape[1], py.shape[2]
    bounds = boundary
    if bounds is None:
        bounds = np.tile([0, 0, S, T], (B, 1))
    both = [_scores_and_shares(px[b], py[b], offset, bounds[b]) for b in range(B)]
    scores, shares = map(np.stack, zip(*both))
    ans = np.array([scores[b, bounds[b, 2], bounds[b, 3]] for b in range(B)])
    size = 1 + np.abs(ans[np.isfinite(ans)]).max(initial=0)
    allowed = (S + T + 1) * (EPS / 2 * size + 2.0**-21)
    # A cell that no path reaches may have any value: no gradient flows into the cell.
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
    """A case of a kernel with a dispatch for each band of MOST rows.

    buffers: the arguments, without the edges of bands and the parameters.
    """
    B, S, T = px.shape[0], px.shape[1], py.shape[2]
    threads = min(MOST, -(-(S + 1) // SIMD) * SIMD)
    if threads > FEW:
        kernel += "_tall"
    first, *more = (
        ints([S, T, offset, int(boundary is not None), band])
        for band in range(-(-(S + 1) // threads))
    )
    edges = Buffer.scratch(np.full((B, 2, T + 1), UNTOUCHED, np.float32))
    buffers = {**buffers, Number.kMiEdges: edges, Number.kMiParams: first}
    more = [(B, {Number.kMiParams: params}) for params in more]
    return Case(name, kernel, B, threads, buffers, more)


def _some(array, p_shape):
    """A buffer in place of an array, which may be empty.

    Metal binds no empty buffer, so mutual_information.cu binds p in its place.  The kernel then
    reads elements of p, and does not use them.
    """
    return array if array.size else np.zeros(p_shape, array.dtype)


def _boundary(boundary):
    """The buffer of the boundary, which the kernel does not read if there is no boundary."""
    if boundary is None:
        return Buffer(np.full(1, 1 << 40, np.int64))
    return Buffer(boundary.astype(np.int64))


def _output(expected, tolerance, kind):
    """A buffer of gradients, which the kernel does not write where `expected` is NaN.

    Rounding to the type changes a gradient by up to eps / 2 of its size, or by up to half the
    smallest number of the type.
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
    """Puts cells [B][S + 1][T + 1] into the order of p, [B][T + 1][S + 1].

    A row of p has the cells that the kernels compute in one step.  Outside of the bounds, p gets
    the number `rest`.
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
    """The scores and the shares, each [S + 1][T + 1] in float64.

    Both are NaN outside of the boundary.  A share is also NaN if no path reaches its cell.
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
    """The gradients of px and py in float64; NaN outside of the boundary."""
    s_begin, t_begin, s_end, t_end = bound
    px_grad, py_grad = np.full(px_shape, np.nan), np.full(py_shape, np.nan)
    grad = np.zeros(shares.shape)
    grad[s_end, t_end] = weight
    # A row of px has the columns from which a path can go on.  In the modified recursion, a path
    # cannot go on from the last column.
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

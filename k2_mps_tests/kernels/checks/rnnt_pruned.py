"""Cases of rnnt_pruned_forward, rnnt_pruned_rows, rnnt_pruned_backward and rnnt_reduce.

The reference computes one row of logits after another in float64, by the formulas in
rnnt_pruned.metal.

Tolerances: fast::exp(x) is off by 3 + 2 |x| units in the last place.  So for x <= 0, the error of
fast::exp(x) is below 4 eps.  z is the logarithm of a sum of such terms.  The largest term is 1, so
the relative error of the sum is below 4 eps.  A log-prob is the difference of a logit and z.  The
kernel rounds z and the difference, which are less than SIZE.  A gradient is a product of numbers
below 1.  The kernel rounds this product to the gradient's type.
"""

import dataclasses
import itertools
from typing import NamedTuple

import numpy as np

from k2_mps_tests.kernels.case import UNTOUCHED, Buffer, Case
from k2_mps_tests.kernels.checks.mutual_information import BFLOAT, EPS, FLOAT, HALF, Kind
from k2_mps_tests.kernels.runner import values
from k2_mps_tests.kernels.sources import enumeration, enumerators, layout

Number = enumeration("rnnt_pruned.h", "RnntPrunedBuffer")
PARAMS = layout("rnnt_pruned.h", "RnntPrunedParams")
REDUCE_PARAMS = layout("rnnt_pruned.h", "RnntReduceParams")
SIZES = enumerators("rnnt_pruned.h")
FRAMES, ROWS, THREADS = (SIZES[name] for name in ("kRpFrames", "kRpRows", "kRpThreads"))
SIZE = 12.0  # more than the sum of log(C) and a logit drawn from N(0, 2^2)
LOG = 8 * EPS + 4 * EPS * SIZE


class Shape(NamedTuple):
    """The sizes of a problem, with the names of RnntPrunedParams."""

    S: int
    T: int
    C: int
    R: int


# The first shape has the smallest sizes.  The sizes of all other shapes are near one
# of three limits: the frames of a threadgroup, the columns that a simdgroup loads at once, and the
# rows in threadgroup memory.
SHAPES = [
    Shape(S=0, T=1, C=1, R=1),
    Shape(S=3, T=FRAMES, C=5, R=2),
    Shape(S=6, T=FRAMES + 1, C=128, R=3),
    Shape(S=9, T=2 * FRAMES - 1, C=131, R=10),
    Shape(S=ROWS + 5, T=3, C=33, R=ROWS + 1),
]
REGULAR, MODIFIED, CONSTRAINED = range(3)
B = 2  # sequences


def cases():
    problems = [
        Problem(shape, kind)
        for shape, kind in itertools.product(SHAPES, (REGULAR, MODIFIED, CONSTRAINED))
    ]
    shape = SHAPES[2]
    problems += [
        Problem(shape, REGULAR, hat=True),
        Problem(shape, CONSTRAINED, hat=True, bounded=True),
        Problem(shape, REGULAR, bounded=True),
        Problem(SHAPES[3], CONSTRAINED, with_ranges=False, bounded=True, delay=0.25),
        Problem(shape, REGULAR, bounded=True, number=HALF),
        Problem(shape, REGULAR, bounded=True, number=BFLOAT),
        Problem(shape, REGULAR, bounded=True, wrong="symbol"),
        Problem(shape, CONSTRAINED, hat=True, wrong="range"),
    ]
    for problem in problems:
        yield problem.forward_case()
        yield problem.rows_case()
        yield problem.backward_case()
    for num_sequences, sums, divisor in ((1, 0, 1), (40, 0, 1), (40, 1, 1), (33, 1, 33)):
        yield _reduce(num_sequences, sums, divisor)


@dataclasses.dataclass
class Problem:
    """Inputs of rnnt_loss_pruned, and the cases of the kernels that get these inputs."""

    shape: Shape
    kind: int  # REGULAR, MODIFIED or CONSTRAINED
    hat: bool = False
    with_ranges: bool = True
    bounded: bool = False  # whether there is a boundary
    delay: float = 0.0
    number: Kind = FLOAT  # the type of the logits
    wrong: str = ""  # "symbol" or "range": what is wrong in the last sequence

    def __post_init__(self):
        S, T, C, R = self.shape
        random = np.random.default_rng([S, T, C, R, self.kind])
        logits = 2 * random.standard_normal((B, T, R, C))
        self.bits = self.number.encode(logits.astype(np.float32))
        self.logits = values(self.bits).astype(np.float64)
        self.symbols = random.integers(0, C, (B, S))
        begin = np.zeros((B, T, 1), int)
        if self.with_ranges:
            begin = random.integers(0, S + 2 - R, (B, T, 1))
        self.ranges = begin + np.arange(R)
        self.bounds = np.array([[0, 0, S, T]] * B)
        if self.bounded:
            self.bounds[1] = [1, 2, S - 1, T - 2]
        self.blank = 0 if self.hat else C - 1
        self.valid = np.where(np.arange(B) == (B - 1 if self.wrong else B), np.nan, 1)
        if self.wrong == "symbol":
            self.symbols[-1, -2:] = self.blank  # which the kernel reads in their place
        self.px_columns = T + (self.kind == REGULAR)
        self.px_grad = random.random((B, S, self.px_columns)).astype(np.float32)
        self.py_grad = random.random((B, S + 1, T)).astype(np.float32)
        self.loss_grad = random.random(B).astype(np.float32)
        self.name = f"{tuple(self.shape)}, kind {self.kind}, hat {self.hat}, bounded {self.bounded}"
        self.name += self.wrong and f", a wrong {self.wrong}"

    def _params(self, scale=0.0):
        S, T, C, R = self.shape
        return Buffer.struct(
            PARAMS,
            B=B,
            S=S,
            T=T,
            C=C,
            R=R,
            blank=self.blank,
            px_columns=self.px_columns,
            has_ranges=self.with_ranges,
            has_boundary=self.bounded,
            constrained=self.kind == CONSTRAINED,
            hat=self.hat,
            delay_penalty=self.delay,
            loss_scale=scale,
            loss_stride=1,
        )

    def _inputs(self):
        """Returns the arguments that all kernels but rnnt_reduce have, except the parameters."""
        symbols, ranges = self.symbols.copy(), self.ranges.copy()
        if self.wrong == "symbol":
            # Elements with these indexes are outside of the memory of the logits.
            symbols[-1, -2:] = -self.logits.size, self.logits.size
        if self.wrong == "range":
            ranges[-1, -1, -1] -= 1
        return {
            Number.kRpSymbols: _longs(symbols),
            Number.kRpRanges: _longs(ranges if self.with_ranges else []),
            Number.kRpBoundary: _longs(self.bounds if self.bounded else []),
        }

    def _scores(self):
        """Returns (z, px, py); see _log_probs() for z."""
        z, px, py = _log_probs(
            self.logits, self.symbols, self.ranges, self.bounds, self.blank, self.hat
        )
        T = self.shape.T
        px += self.delay * (0.5 * (self.bounds[:, 3] - 1)[:, None, None] - np.arange(T))
        if self.kind == CONSTRAINED:
            px += py[:, 1:]
        if self.wrong:
            # The threadgroup of the first frame in the boundary finds the mistake.
            first = self.bounds[-1, 1] // FRAMES * FRAMES
            px[-1, :, first : first + FRAMES] = py[-1, :, first : first + FRAMES] = np.nan
        padding = np.full((*px.shape[:2], self.px_columns - T), -np.inf)
        return z, np.concatenate([px, padding], 2), py

    def _row_grads(self):
        constrained = self.kind == CONSTRAINED
        grads = _row_gradients(self.ranges, self.bounds, constrained, self.px_grad, self.py_grad)
        return (grads * self.valid[:, None, None, None]).astype(np.float32)

    def forward_case(self):
        z, px, py = self._scores()
        inside = ~np.isnan(z)
        buffers = {
            **self._inputs(),
            Number.kRpLogits: Buffer(self.bits),
            Number.kRpLse: Buffer.output(np.where(inside, z, UNTOUCHED), np.where(inside, LOG, 0)),
            Number.kRpPx: Buffer.output(px, 2 * LOG),
            Number.kRpPy: Buffer.output(py, LOG),
            Number.kRpOnes: Buffer.output(self.valid),
            Number.kRpParams: self._params(),
        }
        groups = B * -(-self.shape.T // FRAMES)
        kernel = "rnnt_pruned_forward" + self.number.suffix
        return Case(self.name, kernel, groups, THREADS, buffers)

    def rows_case(self):
        """Returns a case of rnnt_pruned_rows.  The kernel also computes the sum of the scores."""
        S = self.shape.S
        row_grads = self._row_grads()
        scores = np.random.default_rng(S).standard_normal(B).astype(np.float32)
        buffers = {
            **self._inputs(),
            Number.kRpPxGrad: Buffer(self.px_grad if S else np.zeros(1, np.float32)),
            Number.kRpPyGrad: Buffer(self.py_grad),
            Number.kRpOnes: Buffer(self.valid.astype(np.float32)),
            Number.kRpRowGrads: Buffer.output(row_grads),
            Number.kRpScores: Buffer(scores),
            Number.kRpLoss: Buffer.output([-scores.astype(np.float64).sum()], B * EPS * SIZE),
            Number.kRpParams: self._params(),
            Number.kRpReduce: Buffer.struct(REDUCE_PARAMS, B=B, sums=1, divisor=1),
        }
        groups = -(-row_grads[..., 0].size // THREADS)
        return Case(self.name, "rnnt_pruned_rows", groups, THREADS, buffers)

    def backward_case(self):
        # The forward pass writes nothing for a row outside of the boundary, where `lse` is NaN.
        lse, _, _ = self._scores()
        row_grads = self._row_grads()
        grad = _gradient(
            self.logits,
            self.symbols,
            self.ranges,
            self.bounds,
            self.blank,
            self.hat,
            -row_grads * self.loss_grad[:, None, None, None],
        )
        grad *= self.valid[:, None, None, None]
        tolerance = 8 * EPS * SIZE
        largest = np.where(np.isnan(grad), 0, np.abs(grad)) + tolerance
        rounding = self.number.eps / 2 * largest + self.number.smallest / 2
        begin = self.number.encode(np.full(grad.shape, UNTOUCHED, np.float32))
        buffers = {
            **self._inputs(),
            Number.kRpLogits: Buffer(self.bits),
            Number.kRpLse: Buffer(lse.astype(np.float32)),
            Number.kRpRowGrads: Buffer(row_grads),
            Number.kRpLossGrad: Buffer(self.loss_grad),
            Number.kRpGrad: Buffer(begin, grad.astype(np.float32), tolerance + rounding),
            Number.kRpParams: self._params(scale=-1.0),
        }
        groups = -(-self.ranges.size // (THREADS // 32))
        kernel = "rnnt_pruned_backward" + self.number.suffix
        return Case(self.name, kernel, groups, THREADS, buffers)


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


def _gradient(logits, symbols, ranges, bounds, blank, hat, row_grads):
    """Returns the gradient of the logits.

    Args:
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


def _reduce(num_sequences, sums, divisor):
    scores = np.random.default_rng(num_sequences).standard_normal(num_sequences).astype(np.float32)
    expected = [-scores.astype(np.float64).sum() / divisor] if sums else -scores
    buffers = {
        Number.kRpScores: Buffer(scores),
        Number.kRpLoss: Buffer.output(expected, num_sequences * EPS * SIZE * sums),
        Number.kRpReduce: Buffer.struct(REDUCE_PARAMS, B=num_sequences, sums=sums, divisor=divisor),
    }
    name = f"{num_sequences} sequences, sum {sums} / {divisor}"
    return Case(name, "rnnt_reduce", 1, 32, buffers)

"""Inputs of rnnt_loss_smoothed for the checks of kernels, and the results in float64.

This reference computes the probabilities of all symbols at all positions and frames.  The kernels
use matrix products instead.  The reference and the kernels share only the formulas at the top of
k2/csrc/mps/kernels/rnnt_smoothed.metal.
"""

import dataclasses
import functools

import numpy as np

from k2_mps_tests.kernels.case import Buffer
from k2_mps_tests.kernels.sources import enumeration, enumerators, layout

Number = enumeration("rnnt_smoothed.h", "RnntSmoothedBuffer")
PARAMS = layout("rnnt_smoothed.h", "RnntSmoothedParams")
SIZES = enumerators("rnnt_smoothed.h")
THREADS = SIZES["kSmoothedThreads"]
TILE = SIZES["kSmoothedTile"]
PIECE = SIZES["kSmoothedFramesOfPiece"]
SIMD = 32
BLANK = 1

# If the log of a sum is below LOW, the kernels compute the sum again in another way.
LOW = np.log(1e-25)


def log_sum(x, axis):
    """log(sum(exp(x)))."""
    largest = x.max(axis, keepdims=True)
    return np.log(np.exp(x - largest).sum(axis)) + np.squeeze(largest, axis)


@dataclasses.dataclass
class Problem:
    """Inputs of the loss for a batch, in float32, and methods that compute results in float64."""

    name: str
    B: int
    S: int
    T: int
    C: int
    rnnt_type: str = "regular"
    lm_scale: float = 0.25
    am_scale: float = 0.0
    delay: float = 0.0
    bounds: list = None  # the boundary, [B][4]; None if there is no boundary
    size: float = 2.0  # the standard deviation of the logits
    skips_padding: bool = True
    grad_mode: int = SIZES["kSmoothedModeNone"]

    def __post_init__(self):
        random = np.random.default_rng([self.B, self.S, self.T, self.C])

        def normal(*shape):
            return (random.standard_normal(shape) * self.size).astype(np.float32)

        self.lm, self.am = normal(self.B, self.S + 1, self.C), normal(self.B, self.T, self.C)
        # There are at most 5 different symbols, so that symbols repeat.  Some symbols are blank.
        self.symbols = random.integers(0, min(self.C, 5), (self.B, self.S))
        self.px_grad = random.random((self.B, self.S, self.px_columns)).astype(np.float32)
        self.py_grad = random.random((self.B, self.S + 1, self.T)).astype(np.float32)
        if self.skips_padding:
            s, t, _, x_inside, y_inside = self.inside()
            self.px_grad *= x_inside
            self.py_grad *= y_inside
            self.lm[~s] = self.am[~t] = np.nan

    @property
    def regular(self):
        return self.rnnt_type == "regular"

    @property
    def px_columns(self):
        return self.T + self.regular

    @property
    def scale(self):
        return 1 - self.lm_scale - self.am_scale

    @functools.cached_property
    def all_bounds(self):
        return np.array(self.bounds or [[0, 0, self.S, self.T]] * self.B)

    def inside(self):
        """Returns five masks.

        The first three masks select the positions, the frames and the cells that kernels read.  The
        other two masks select the elements of px_grad and of py_grad that can differ from 0.
        """
        s_begin, t_begin, s_end, t_end = (x[:, None] for x in self.all_bounds.T)
        s, t, u = np.arange(self.S + 1), np.arange(self.T), np.arange(self.px_columns)
        rows, frames = (s >= s_begin) & (s <= s_end), (t >= t_begin) & (t < t_end)
        x_rows = (s[:-1] >= s_begin) & (s[:-1] < s_end)
        x_frames = (u >= t_begin) & (u < t_end + self.regular)
        y_inside = rows[:, :, None] & frames[:, None]
        x_inside = x_rows[:, :, None] & x_frames[:, None]
        if not self.skips_padding:
            rows[:] = frames[:] = True
        if self.am_scale:
            rows = np.ones_like(rows)
        return rows, frames, rows[:, :, None] & frames[:, None], x_inside, y_inside

    def params(self, has_grads=0):
        return Buffer.struct(
            PARAMS,
            B=self.B,
            S=self.S,
            T=self.T,
            C=self.C,
            blank=BLANK,
            px_columns=self.px_columns,
            constrained=self.rnnt_type == "constrained",
            has_boundary=self.bounds is not None,
            skips_padding=self.skips_padding,
            grad_mode=self.grad_mode,
            has_grads=has_grads,
            combined_scale=self.scale,
            lm_scale=self.lm_scale,
            am_scale=self.am_scale,
            delay_penalty=self.delay,
        )

    def boundary(self):
        """Returns the buffer of the boundary.

        If the problem has no boundary, the buffer has a large number, which no kernel may use.
        """
        bounds = self.all_bounds if self.bounds else np.full(1, 1 << 40)
        return Buffer(bounds.astype(np.int64))

    def some_symbols(self):
        return Buffer(self.symbols if self.S else np.zeros(1, np.int64))

    def rows(self):
        """Returns what the kernel rnnt_smoothed_rows writes, {name of the argument: array}."""
        read_s, read_t, *_ = self.inside()
        lm, am = (np.where(r[..., None], x, 0.0) for r, x in ((read_s, self.lm), (read_t, self.am)))
        am_max, lm_max = am.max(2), lm.max(2)
        return {
            "am_exp": np.exp(am - am_max[..., None]) * read_t[..., None],
            "lm_exp": np.exp(lm - lm_max[..., None]) * read_s[..., None],
            "am_max": am_max,
            "lm_max": lm_max,
            "lm_log_sum": np.where(read_s, log_sum(lm - lm_max[..., None], 2), 0),
        }

    def next_places(self):
        """Returns the next place of each symbol, see NextPlace() in rnnt_smoothed.metal."""
        found = np.ones((self.B, self.S), np.int32)
        for b, (symbols, bounds) in enumerate(zip(self.symbols, self.all_bounds)):
            end = bounds[2] if self.skips_padding else self.S
            for i in range(end):
                after = [k for k in range(i + 1, end) if symbols[k] == symbols[i]]
                found[b, i] = (2 * (after[0] + 1) if after else 0) + (symbols[i] in symbols[:i])
        return found

    @functools.cached_property
    def am_only(self):
        """(log-probs of the unigram, logs of the sums that normalize the probabilities of am).

        The unigram is the average of the distributions that lm gives at all positions.
        """
        if not self.am_scale:
            return np.zeros(1), np.zeros(1)
        lm = self.lm.astype(np.float64)
        unigram = log_sum((lm - log_sum(lm, 2)[..., None]).reshape(-1, self.C), 0) - np.log(
            self.B * (self.S + 1)
        )
        am = self.am - self.rows()["am_max"][..., None]
        read = self.inside()[1]
        return unigram, np.where(read, log_sum(am.astype(np.float64) + unigram, 2), 0)

    def log_probs(self):
        """Returns three arrays of log-probs of all symbols, each [B][S + 1][T][C].

        They are the log-probs of lm and am together, of lm alone, and of am alone.
        """
        lm, am = self.lm.astype(np.float64)[:, :, None], self.am.astype(np.float64)[:, None]
        unigram, _ = self.am_only
        both, alone = lm + am, am + unigram if self.am_scale else am * 0
        return [x - log_sum(x, 3)[..., None] for x in (both, lm + 0 * am, alone + 0 * lm)]

    def log_sums(self):
        """Returns the logs of the matrix products, [B][S + 1][T]."""
        rows = self.rows()
        lm, am = self.lm.astype(np.float64)[:, :, None], self.am.astype(np.float64)[:, None]
        found = log_sum(lm + am, 3) - rows["lm_max"][..., None] - rows["am_max"][:, None]
        return np.where(self.inside()[2], found, 0)

    def scores(self):
        """Returns px and py, with 0 in the cells that kernels do not read."""
        both, lm_only, am_only = self.log_probs()
        all_scores = self.scale * both + self.lm_scale * lm_only + self.am_scale * am_only
        read = self.inside()[2]
        py = np.where(read, all_scores[..., BLANK], 0)
        index = np.broadcast_to(self.symbols[:, :, None, None], (self.B, self.S, self.T, 1))
        px = np.take_along_axis(all_scores[:, :-1], index, 3)[..., 0]
        if self.rnnt_type == "constrained":
            px = px + py[:, 1:]
        px = px + self.delay * ((self.all_bounds[:, 3, None, None] - 1) / 2 - np.arange(self.T))
        px = np.where(read[:, :-1], px, 0)
        if self.regular:
            px = np.concatenate([px, np.zeros((self.B, self.S, 1))], 2)
            px[:, :, -1] = -np.inf
            for b, bounds in enumerate(self.all_bounds):
                px[b, :, bounds[3]] = -np.inf
        return px, py

    def scaled_grads(self):
        """Returns the gradients of the log-probs of symbols and of blank, [B][S + 1][T] each.

        These gradients are px_grad and py_grad, times the factors of grad_scales().
        """
        x = np.zeros((self.B, self.S + 1, self.T))
        x[:, :-1] = self.px_grad[:, :, : self.T]
        if self.regular:
            for b, bounds in enumerate(self.all_bounds):
                x[b, :, bounds[3] :][:, :1] = 0
        y = self.py_grad.astype(np.float64)
        if self.rnnt_type == "constrained":
            y[:, 1:] += x[:, :-1]
        scale = self.grad_scales()[:, None, None]
        return x * scale, y * scale

    def loss_grad(self):
        return np.linspace(0.5, 1.5, self.B).astype(np.float32)

    def grad_scales(self):
        grad = self.loss_grad().astype(np.float64)
        return {
            SIZES["kSmoothedModeNone"]: -grad,
            SIZES["kSmoothedModeSum"]: np.full(self.B, -grad[0]),
            SIZES["kSmoothedModeMean"]: np.full(self.B, -grad[0] / self.B),
            SIZES["kSmoothedModeOne"]: np.ones(self.B),
        }[self.grad_mode]

    def weights(self):
        """Computes what the kernel rnnt_smoothed_weights writes.

        Returns:
          The gradient of the matrix product, [B][S + 1][T]; the sums of scaled_grads() over all
          frames, [B][S + 1][2]; and for each position, whether the log of a sum is below LOW in a
          cell with a gradient, [B][S + 1].
        """
        x, y = self.scaled_grads()
        sums = self.log_sums()
        grads = np.where(sums < LOW, 0, -self.scale * (x + y) * np.exp(-sums))
        has_low = ((sums < LOW) & (x + y != 0)).any(2)
        return grads, np.stack([x.sum(2), y.sum(2)], 2), has_low

    def gradients(self):
        """Returns the gradients of am, of lm, and of the unigram's log-probs."""
        x, y = self.scaled_grads()
        chosen = np.zeros((self.B, self.S + 1, self.T, self.C))
        symbols = np.arange(self.C)
        for s in range(self.S):
            chosen[:, s] += x[:, s, :, None] * (symbols == self.symbols[:, s, None, None])
        chosen[..., BLANK] += y
        total = (x + y)[..., None]
        grads = []
        for log_probs in self.log_probs():
            # The gradient of a logit that no kernel reads is 0.
            probs = np.where(total != 0, np.exp(log_probs), 0)
            grads.append(chosen - total * probs)
        both, lm_only, am_only = grads
        am = (self.scale * both + self.am_scale * am_only).sum(1)
        lm = (self.scale * both + self.lm_scale * lm_only).sum(2)
        unigram, _ = self.am_only
        unigram_grad = self.am_scale * am_only.sum((0, 1, 2))
        if self.am_scale:
            logits = self.lm.astype(np.float64)
            probs = np.exp(logits - log_sum(logits, 2)[..., None])
            shares = unigram_grad * probs / np.exp(unigram) / (self.B * (self.S + 1))
            lm = lm + shares - probs * shares.sum(2, keepdims=True)
        return am, lm, unigram_grad


PROBLEMS = [
    Problem("the smallest", 1, 0, 1, 2),
    Problem("regular", 2, 6, 11, 9),
    Problem("modified, am", 2, 5, 9, 40, "modified", 0.25, 0.1, delay=0.3),
    Problem("constrained, am", 2, 5, 9, 7, "constrained", 0.0, 0.25),
    Problem("sum", 2, 3, 5, 4, grad_mode=SIZES["kSmoothedModeSum"]),
    Problem("mean", 2, 3, 5, 4, grad_mode=SIZES["kSmoothedModeMean"]),
    Problem("several tiles", 2, TILE + 3, 2 * TILE + 2, 6, "constrained", 0.25, 0.1),
    Problem("a full tile", 1, TILE - 1, TILE, 3),
    Problem("no combined part", 2, 4, 6, 5, "regular", 0.5, 0.5),
    *(
        Problem(
            f"boundary, {rnnt_type}, am {am_scale}, {'loss' if skips else 'logprobs'}",
            *(3, 6, 10, 35, rnnt_type, 0.25, am_scale, 0.3),
            bounds=[[0, 0, 6, 10], [1, 2, 4, 8], [0, 1, 0, 5]],
            skips_padding=skips,
            grad_mode=SIZES["kSmoothedModeNone" if skips else "kSmoothedModeOne"],
        )
        for rnnt_type in ("regular", "modified", "constrained")
        for am_scale in (0.0, 0.1)
        for skips in (True, False)
    ),
    Problem("low", 2, 5, 33, 34, "regular", 0.25, 0.0, size=40.0),
    Problem("low, constrained, am", 2, 5, 9, 34, "constrained", 0.25, 0.1, size=40.0),
]

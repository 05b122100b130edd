"""Cases of ctc_sums, ctc_gradient, ctc_block_gradient and ctc_arc_gradient.

This file also makes the cases of ctc_best.metal, for ctc_best.py.

The reference finds best paths, and the arcs to keep, by k2's rules.  For best paths, the reference
adds in float32 and in k2's order.  So best scores, best paths and the bits of kept arcs must be
equal.  For sums over paths, the reference adds in float64.
"""

import itertools
from typing import NamedTuple

import numpy as np

from k2_mps_tests.kernels.case import EPS, UNTOUCHED, Buffer, Case, fit_instance, ints
from k2_mps_tests.kernels.checks.intersect_dense import COLUMNS, SYMBOLS, pass_of
from k2_mps_tests.kernels.checks.two_float import path_sums_of
from k2_mps_tests.kernels.graphs import Graphs, random_arcs, with_padding
from k2_mps_tests.kernels.sources import enumeration, enumerators, layout

Number = enumeration("ctc.h", "CtcBuffer")
PARAMS = layout("ctc.h", "CtcParams")
SIZES = enumerators("ctc.h")
CACHED = SIZES["kCtcMaxCachedStates"]
THREADS = SIZES["kCtcThreads"]
# The rows of a block of sums, or of a block of best scores.  A kernel takes both numbers but uses
# only one of them.  In a case, the number that the kernel must not use is UNUSED_ROWS.
ROWS_OF_BLOCK = (1, 4)
UNUSED_ROWS = 2
# {precision: the number of floats of a stored sum}
KINDS = {"float": 2, "double": 3}
BEAM, NO_BEAM = 4.0, 1e-7


class Shape(NamedTuple):
    """The sizes of a batch of graphs and sequences."""

    states: list  # the number of states of each FSA
    arcs: int  # the number of arcs that leave each state
    rows: list  # the number of rows (frames) of each sequence
    width: int  # the number of lanes that compute a state together


# The sizes are near the limits of threadgroup memory, of a threadgroup, and of a word that has the
# bits of kept arcs.  In some shapes, threadgroup memory has room for the sums of only a few rows.
SHAPES = [
    Shape(states=[2], arcs=1, rows=[1], width=1),
    Shape(states=[2, 3], arcs=2, rows=[3, 1], width=1),
    Shape(states=[40, 7, 33], arcs=3, rows=[9, 8, 12], width=1),
    Shape(states=[CACHED], arcs=2, rows=[4], width=1),
    Shape(states=[330, 100], arcs=2, rows=[11, 8], width=1),
    # A path is longer than the rows for which threadgroup memory has room.
    Shape(states=[450, 390], arcs=3, rows=[12, 9], width=1),
    Shape(states=[1100, 1300], arcs=2, rows=[9, 6], width=1),
    Shape(states=[CACHED + 1, 5], arcs=2, rows=[4, 6], width=1),
    Shape(states=[60, 50], arcs=8, rows=[6, 5], width=2),
    Shape(states=[70, 2], arcs=40, rows=[4, 1], width=8),
    Shape(states=[35, 31], arcs=130, rows=[4, 3], width=32),
    Shape(states=[600, 5, 5, 5], arcs=2, rows=[3, 4, 2, 1], width=1),
]


def batches():
    """Yields names and Batch objects."""
    for shape in SHAPES:
        name = "{} states, {} arcs, {} rows, {} lanes".format(*shape)
        for beam, penalty in ((BEAM, 0.0), (BEAM, -0.25), (NO_BEAM, 0.0)):
            suffix = (
                ", penalties" if penalty else ", the best path alone" if beam == NO_BEAM else ""
            )
            yield name + suffix, Batch(shape, beam, penalty)


def cases():
    for name, batch in batches():
        for rows in ROWS_OF_BLOCK:
            for kind in KINDS:
                blocks = f"{name}, {rows} rows a block"
                yield batch.sums_case(blocks, kind, rows)
                if rows > 1:
                    yield batch.block_gradient_case(blocks, kind, rows)
        yield batch.gradient_case(name)
        yield batch.arc_gradient_case(name)


class Batch(Graphs):
    """Random graphs and sequences, and the kernels' expected results.

    The shapes of the attributes have these sizes: `fsas`, the number of FSAs and of sequences;
    `arcs`, the number of arcs of all FSAs; `rows`, the number of rows of all sequences; and
    `most_rows`, the number of rows of the longest sequence.  Each sequence has its own FSA.

    Attributes of the inputs, in addition to those of `Graphs`:
      rows: the number of rows of each sequence, a list.
      most_rows, num_states, num_words, width, beam, penalty: see CtcParams of ctc.h; `most_rows` is
        num_rows there.
      penalized: [arcs], 1 if the penalty applies to the arc, else 0.
      b_begins: [fsas + 1], the index of each sequence's first row among all rows, then the number
        of all rows.
      b_scores: [rows][COLUMNS and padding], the scores of the labels, -1 first.
      score_grads: [fsas], the gradient of each total score.

    Attributes of the expected results:
      best: for each FSA (backward, forward), the scores of the best paths from each state to the
        end, and from the start to each state.  Both are [its rows + 1][its states].
      best_totals: [fsas][2], the score of the whole best path by the two passes.
      best_arcs: [fsas][most_rows], the arcs of the best path if rounding errors could prune it;
        all other elements are -1.
      kept: [most_rows][num_words], a bit for each arc, 1 if k2 keeps the arc in this row.
      sums: as `best`, but log-sums over all kept paths, in float64.
      scores: [fsas], the log-sum over all kept paths, in float64.
      totals: [fsas][2], the same as PathSums in single precision.
      b_grad, a_grad: [rows][COLUMNS] and [arcs], the gradients of b_scores and of the arcs' scores.
      b_sizes, a_sizes: the sizes of the gradients.  A gradient is a sum; its size is the sum of the
        absolute values of the terms.
    """

    def __init__(self, shape, beam, penalty):
        states, num_arcs, rows, width = shape
        random = np.random.default_rng([sum(states), num_arcs, sum(rows)])
        self.rows, self.width = rows, width
        self.beam, self.penalty = np.float32(beam), np.float32(penalty)
        super().__init__(states, *random_arcs(random, states, num_arcs, SYMBOLS))
        self.penalized = (random.random(len(self.arcs)) < 0.5).astype(np.uint8)
        self.b_begins = np.cumsum([0, *rows])
        scores = random.standard_normal((self.b_begins[-1], COLUMNS)).astype(np.float32)
        self.b_scores = with_padding(scores)
        self.score_grads = random.standard_normal(len(states)).astype(np.float32)
        self.most_rows, self.num_states = max(rows), int(self.state_begins[-1])
        self.num_words = len(self.arcs) // 32 + len(states)
        self._reference()

    def _reference(self):
        """Computes the expected results."""
        self.best_totals = np.empty((len(self.states), 2), np.float32)
        self.best_arcs = np.full((len(self.states), self.most_rows), -1)
        self.kept = np.full((self.most_rows, self.num_words), UNTOUCHED, np.uint32)
        self.best, self.sums = [], []
        self.totals = np.empty((len(self.states), 2), np.float32)
        self.scores = np.empty(len(self.states))
        self.b_grad = np.zeros((len(self.b_scores), COLUMNS))
        self.a_grad = np.zeros(len(self.arcs))
        self.b_sizes, self.a_sizes = self.b_grad.copy(), self.a_grad.copy()
        for fsa in range(len(self.states)):
            arcs_of_fsa = np.flatnonzero(self.fsa_of_arc == fsa)
            kept, scores = self._keep_arcs(fsa, arcs_of_fsa)
            self._add_paths(fsa, arcs_of_fsa, kept, scores)

    def _keep_arcs(self, fsa, arcs_of_fsa):
        """Finds the best path of an FSA and the arcs that k2 keeps.

        Args:
          arcs_of_fsa: the indexes of the FSA's arcs.
        Returns:
          Two lists with an array for each row: whether each arc is kept, and the score of each arc.
        """
        first, rows = int(self.b_begins[fsa]), self.rows[fsa]
        arcs = self.arcs[arcs_of_fsa]
        backward, forward = [
            list(pass_of(arcs, self.states[fsa], self.b_scores, first, rows, is_forward))
            for is_forward in (False, True)
        ]
        self.best.append((np.array(backward[::-1]), np.array(forward)))
        src, dest = arcs["src"], arcs["dest"]
        start, end = backward[rows][0], forward[rows][-1]
        self.best_totals[fsa] = start, end
        cutoff = min(start, end) - self.beam
        states = [f + b > cutoff for f, b in zip(forward, backward[::-1])]
        path = self._path(arcs, backward, first, rows, start, end)
        for t, arc in enumerate(path):
            self.best_arcs[fsa, t] = arcs_of_fsa[arc]
            states[t][src[arc]] = states[t + 1][dest[arc]] = True

        kept, scores = [], []
        for t in range(rows):
            score = arcs["score"] + self.b_scores[first + t, arcs["label"] + 1]
            kept.append(
                states[t][src]
                & states[t + 1][dest]
                & (forward[t][src] + score + backward[rows - t - 1][dest] > cutoff)
            )
            if t < len(path):
                kept[t][path[t]] = True
            if self.penalty:
                late = np.float32(t - (rows - 1) // 2) * self.penalty
                score = np.where(self.penalized[arcs_of_fsa], score + late, score)
            scores.append(score.astype(np.float64))
            words = _words_of(kept[t])
            at = arcs_of_fsa[0] // 32 + fsa
            self.kept[t, at : at + len(words)] = words
        return kept, scores

    def _add_paths(self, fsa, arcs_of_fsa, kept, scores):
        """Computes the sums over the paths of an FSA, and adds the posteriors to the gradients.

        Args:
          arcs_of_fsa, kept, scores: see `_keep_arcs`.
        """
        first, rows = int(self.b_begins[fsa]), self.rows[fsa]
        arcs = self.arcs[arcs_of_fsa]
        src, dest = arcs["src"], arcs["dest"]
        # The log-sums over the paths from the start to each state, and from each state to the end.
        alpha = np.full((rows + 1, self.states[fsa]), -np.inf)
        beta = alpha.copy()
        alpha[0, 0] = beta[rows, -1] = 0
        with np.errstate(invalid="ignore"):
            for t in range(rows):
                k = kept[t]
                np.logaddexp.at(alpha[t + 1], dest[k], alpha[t, src[k]] + scores[t][k])
            for t in reversed(range(rows)):
                k = kept[t]
                np.logaddexp.at(beta[t], src[k], beta[t + 1, dest[k]] + scores[t][k])
            total = beta[0, 0]
            self.sums.append((beta, alpha))
            self.scores[fsa] = total
            self.totals[fsa] = _path_sums(np.array([total]))[0]
            if total == -np.inf:
                return
            for t in range(rows):
                posteriors = np.where(
                    kept[t], np.exp(alpha[t, src] + scores[t] + beta[t + 1, dest] - total), 0
                )
                grads = posteriors * self.score_grads[fsa]
                cells = first + t, arcs["label"] + 1
                np.add.at(self.b_grad, cells, grads)
                np.add.at(self.b_sizes, cells, abs(grads))
                self.a_grad[arcs_of_fsa] += grads
                self.a_sizes[arcs_of_fsa] += abs(grads)

    def _path(self, arcs, backward, first, rows, start, end):
        """Returns the arcs of the best path if rounding errors could prune it, else no arcs.

        Args:
          arcs: the FSA's arcs.
          backward: [rows + 1][states], the scores of the best paths from each state to the end;
            row i is for the last i rows of the sequence.
          first, rows: the first row of the sequence in `b_scores`, and its number of rows.
          start, end: the score of the whole best path, by the backward and by the forward pass.
        """
        path, state = [], 0
        if not np.isfinite([start, end]).all():
            return path
        rounding = abs(end - start) + np.float32(rows + 1) * np.float32(EPS) * max(
            abs(start), abs(end)
        )
        while self.beam <= rounding and len(path) < rows:
            t = len(path)
            scores = (
                backward[rows - t - 1][arcs["dest"]]
                + arcs["score"]
                + self.b_scores[first + t, arcs["label"] + 1]
            )
            found = np.flatnonzero((arcs["src"] == state) & (scores == backward[rows - t][state]))
            path.append(found[0])
            state = arcs["dest"][found[0]]
        return path

    def _checkpoints(self, rows_of_block, passes, untouched=UNTOUCHED):
        """Returns every `rows_of_block`-th row of states, in the kernels' order.

        Each sequence has memory for the rows of the longest sequence.  After the rows of a shorter
        sequence, the elements of this memory are `untouched`.

        Args:
          passes: for each FSA (backward, forward), as `best` and `sums`.
        """
        pieces = []
        for rows in itertools.chain.from_iterable(passes):
            memory = np.full((self.most_rows // rows_of_block + 1, rows.shape[1]), untouched)
            kept = rows[::rows_of_block]
            memory[: len(kept)] = kept
            pieces.append(memory.ravel())
        return np.concatenate(pieces)

    def _best(self, rows_of_block):
        """Returns the results of the kernel ctc_best_scores."""
        return self._checkpoints(rows_of_block, self.best).astype(np.float32)

    def _sums(self, kind, rows_of_block):
        """Returns the results of the kernel ctc_sums."""
        return _path_sums(self._checkpoints(rows_of_block, self.sums), kind)

    def _params(self, rows_of_block, rows_of_best_block):
        return Buffer.struct(
            PARAMS,
            num_fsas=len(self.states),
            num_states=self.num_states,
            num_arcs=len(self.arcs),
            num_rows=self.most_rows,
            num_words=self.num_words,
            stride=self.b_scores.shape[1],
            num_columns=COLUMNS,
            width=self.width,
            rows_of_best_block=rows_of_best_block,
            rows_of_block=rows_of_block,
            has_penalties=bool(self.penalty),
            penalty=self.penalty,
            beam=self.beam,
        )

    def _inputs(self, rows_of_block=UNUSED_ROWS, rows_of_best_block=UNUSED_ROWS):
        """Returns the arguments that all kernels of this file have."""
        return {
            Number.kCtcArcs: Buffer(self.arcs.view(np.int32)),
            Number.kCtcStateBegins: ints(self.state_begins),
            Number.kCtcLeavingBegins: ints(self.leaving_begins),
            Number.kCtcIncomingBegins: ints(self.incoming_begins),
            Number.kCtcIncoming: ints(self.incoming),
            Number.kCtcBScores: Buffer(self.b_scores),
            Number.kCtcBBegins: ints(self.b_begins),
            Number.kCtcPenalized: Buffer(self.penalized),
            Number.kCtcParams: self._params(rows_of_block, rows_of_best_block),
        }

    def _instance(self, kernel):
        """Returns the name and the number of threads of the instance that k2 would choose.

        Only kernels that pass through all rows have several instances.
        """
        wanted = -(-self.num_states * 3 // 2 // len(self.states)) * self.width
        return fit_instance(kernel, wanted)

    def _best_scratch(self):
        size = self.num_states * (SIZES["kCtcScratchRows"] + 4)
        return Buffer.scratch(np.zeros(size, np.float32))

    def best_scores_case(self, name, rows_of_block):
        buffers = {
            **self._inputs(rows_of_best_block=rows_of_block),
            Number.kCtcBest: Buffer.output(self._best(rows_of_block)),
            Number.kCtcBestTotals: Buffer(np.zeros_like(self.best_totals), self.best_totals),
            Number.kCtcScratch: self._best_scratch(),
        }
        kernel, threads = self._instance("ctc_best_scores")
        return Case(name, kernel, 2 * len(self.states), threads, buffers)

    def best_path_case(self, name, rows_of_block):
        best_arcs = Buffer.output(self.best_arcs.astype(np.int32), dtype=np.int32)
        buffers = {
            **self._inputs(rows_of_best_block=rows_of_block),
            Number.kCtcBest: Buffer(self._best(rows_of_block)),
            Number.kCtcBestTotals: Buffer(self.best_totals),
            Number.kCtcBestArcs: best_arcs,
            Number.kCtcScratch: self._best_scratch(),
        }
        return Case(name, "ctc_best_path", len(self.states), THREADS, buffers)

    def keep_case(self, name, rows_of_block):
        groups = len(self.states) * -(-self.most_rows // rows_of_block)
        buffers = {
            **self._inputs(rows_of_best_block=rows_of_block),
            Number.kCtcBest: Buffer(self._best(rows_of_block)),
            Number.kCtcBestTotals: Buffer(self.best_totals),
            Number.kCtcBestArcs: ints(self.best_arcs),
            Number.kCtcKept: Buffer.output(self.kept.view(np.int32), dtype=np.int32),
            Number.kCtcScratch: self._best_scratch(),
        }
        return Case(name, "ctc_keep", groups, THREADS, buffers)

    def sums_case(self, name, kind, rows_of_block):
        count = len(self.states)
        # A path has a step for each row.  In single precision, the kernel rounds exp() and products
        # in each step.  With pairs of floats, exp() has an error of 2^-46.  A sum or a product
        # has an error of about 2^-44.
        steps_error = self.most_rows * (8 * EPS if kind == "float" else 2.0**-43)
        error = EPS * np.abs(self.scores) + (steps_error if kind == "float" else 0)
        # If a block has one row, the kernel rounds each sum once more, to a single float.
        sums_error = steps_error + (EPS if rows_of_block == 1 else 0)
        floats = KINDS[kind] if rows_of_block > 1 else KINDS["float"]
        sums = self._checkpoints(rows_of_block, self.sums, untouched=np.nan)
        scratch = np.zeros((4 * self.num_states, KINDS[kind]), np.float32)
        buffers = {
            **self._inputs(rows_of_block),
            Number.kCtcKept: Buffer(self.kept.view(np.int32)),
            Number.kCtcLabels: ints(self.labels),
            Number.kCtcSums: Buffer.path_sums(sums, sums_error, floats),
            # log() rounds the total once more.
            Number.kCtcTotals: Buffer.path_sums(self.scores, steps_error + EPS, KINDS["float"]),
            Number.kCtcScores: Buffer.output(
                self.scores.astype(np.float32), np.where(np.isfinite(error), error, 0)
            ),
            Number.kCtcScratch: Buffer.scratch(scratch),
        }
        kernel, threads = self._instance("ctc_sums_" + kind)
        return Case(name, kernel, 2 * count, threads, buffers)

    def _gradient_inputs(self, kind="float", rows=1):
        """Returns the arguments that all kernels of gradients have."""
        return {
            **self._inputs(rows),
            Number.kCtcKept: Buffer(self.kept.view(np.int32)),
            Number.kCtcSums: Buffer(self._sums(kind, rows)),
            Number.kCtcTotals: Buffer(self.totals),
            Number.kCtcScoreGrads: Buffer(self.score_grads),
        }

    def _for_b_scores(self):
        """Returns the further arguments of kernels that compute the gradient of b_scores."""
        return {
            Number.kCtcByLabel: ints(self.by_label),
            Number.kCtcBGrad: _gradient(self.b_grad, self.b_sizes),
        }

    def gradient_case(self, name):
        buffers = {**self._gradient_inputs(), **self._for_b_scores()}
        groups = len(self.states) * self.most_rows
        return Case(name, "ctc_gradient", groups, THREADS, buffers)

    def block_gradient_case(self, name, kind, rows):
        pairs_of_state = SIZES["kCtcScratchRows"] + 4 * KINDS[kind] // 2
        scratch = np.zeros((self.num_states * pairs_of_state, 2), np.float32)
        buffers = {
            **self._gradient_inputs(kind, rows),
            **self._for_b_scores(),
            Number.kCtcScratch: Buffer.scratch(scratch),
        }
        groups = len(self.states) * -(-self.most_rows // rows)
        return Case(name, "ctc_block_gradient_" + kind, groups, THREADS, buffers)

    def arc_gradient_case(self, name):
        buffers = {
            **self._gradient_inputs(),
            Number.kCtcFsaOfArc: ints(self.fsa_of_arc),
            Number.kCtcAGrad: _gradient(self.a_grad, self.a_sizes),
        }
        groups = -(-len(self.arcs) // THREADS)
        return Case(name, "ctc_arc_gradient", groups, THREADS, buffers)


def _words_of(kept):
    """Returns an array of bools as the bits of 32-bit words; unused bits are 0."""
    bits = np.zeros(-(-len(kept) // 32) * 32, np.uint32)
    bits[: len(kept)] = kept
    return np.bitwise_or.reduce(bits.reshape(-1, 32) << np.arange(32, dtype=np.uint32), axis=1)


def _gradient(expected, sizes):
    """Returns a buffer of gradients.

    Args:
      sizes: for each gradient, the sum of its terms' magnitudes.
    """
    # The errors of a term come from sums of scores, from two exponentials, and from products.  The
    # sum of the terms adds further errors.
    return Buffer.output(expected.astype(np.float32), 16 * EPS * sizes)


def _path_sums(sums, kind="float"):
    """Returns sums in the format of the CTC kernels.

    A sum has an exponent of one float.  Its significand has one float, or two floats for "double".
    """
    parts = [0, 2] if kind == "float" else [0, 2, 3]
    return np.take(path_sums_of(sums), parts, axis=-1)

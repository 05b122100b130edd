"""Makes the lattices of intersect_dense with plain loops, as the reference of checks."""

from typing import NamedTuple

import numpy as np

from k2_mps_tests.kernels.case import UNTOUCHED, Buffer
from k2_mps_tests.kernels.checks.intersect_dense import COLUMNS, SYMBOLS
from k2_mps_tests.kernels.graphs import Graphs, forward_or_backward, with_padding
from k2_mps_tests.kernels.sources import enumerators

SIZES = enumerators("lattice.h")
LANES = enumerators("simd_width.h")["kSimdWidth"]
MAX_THREADS = SIZES["kLtMaxThreads"]


class Shape(NamedTuple):
    """The sizes of a lattice's inputs, and its beam."""

    states: list  # the number of states of each FSA
    arcs: int  # the number of arcs that leave each state
    frames: list  # the number of frames of each sequence
    a_to_b: list  # the sequence of each FSA
    beam: float


SHAPES = [
    Shape(states=[3], arcs=2, frames=[1], a_to_b=[0], beam=5.0),
    Shape(states=[5, 9, 4], arcs=3, frames=[7, 4], a_to_b=[0, 1, 1], beam=3.0),
    Shape(states=[40, 33, 7], arcs=4, frames=[9, 8, 2], a_to_b=[0, 1, 2], beam=2.0),
    Shape(states=[70], arcs=9, frames=[5], a_to_b=[0], beam=1.0),
    Shape(states=[40, 33, 7], arcs=4, frames=[9, 8, 2], a_to_b=[0, 0, 2], beam=1000.0),
]


class Lattice:
    """The inputs of intersect_dense, and its lattice.

    Attributes:
      counts: for each frame of each FSA, the number of kept states, the number of kept arcs, and
        the number of the graph's arcs that leave the kept states.
      kept_states: [(fsa, time, state)].
      out: the arcs of the lattice.
      map_a, map_b: for each of these arcs, the index of the graph's arc, and the index in `scores`.
      cells: for each of these arcs, the index in a matrix of scores without padding.
      best_arcs, paths: the results of the kernel find_best_paths.
      Other attributes have the names of the kernels' arguments.
    """

    def __init__(self, shape):
        states, num_arcs, frames, a_to_b, beam = shape
        random = np.random.default_rng([sum(states), num_arcs, sum(frames)])
        self.states, self.frames, self.a_to_b = states, frames, a_to_b
        self.beam = np.float32(beam)
        graphs = Graphs.random(random, states, num_arcs, SYMBOLS + 2)
        self.arcs, self.incoming = graphs.arcs, graphs.incoming
        self.state_begins, self.leaving_begins = graphs.state_begins, graphs.leaving_begins
        self.incoming_begins = graphs.incoming_begins
        self.row_begins = np.cumsum([0, *frames])
        scores = random.standard_normal((self.row_begins[-1], COLUMNS)).astype(np.float32)
        self.scores = with_padding(scores)
        self.stride = self.scores.shape[1]
        total = int(self.state_begins[-1])
        self.arc_begins = graphs.leaving_begins[self.state_begins]
        self.num_steps = max(frames) + 1
        self.num_words = total // LANES + len(states)
        self.state_scores = np.zeros((self.num_steps, 2 * total), np.float32)
        passes = []
        for fsa, b in enumerate(a_to_b):
            arcs = graphs.arcs[graphs.arcs_of(fsa)]
            rows = self.rows(fsa)
            both = []
            for forward in (True, False):
                frames = (_scores(arcs, row, alone=True) for row in rows[:: 1 if forward else -1])
                steps = list(forward_or_backward(arcs, states[fsa], frames, forward))
                at = 2 * self.state_begins[fsa] + forward * states[fsa]
                for t, values in enumerate(steps):
                    self.state_scores[t, at : at + states[fsa]] = values
                both.append(steps if forward else steps[::-1])
            passes.append(both)
        self._prune(passes)

    def rows(self, fsa):
        b = self.a_to_b[fsa]
        return self.scores[self.row_begins[b] : self.row_begins[b + 1]]

    def _prune(self, passes):
        self.counts, self.kept_states = [], []
        self.words = np.full((self.num_steps, self.num_words, 2), UNTOUCHED, np.int32)
        self.map_a, self.map_b, self.cells, out = [], [], [], []
        self.best_arcs, self.paths = [], []
        self.row_ids2 = []
        for fsa, (forward, backward) in enumerate(passes):
            first = self.arc_begins[fsa]
            mine = self.arcs[first : self.arc_begins[fsa + 1]]
            rows = self.rows(fsa)
            num_arcs = np.bincount(mine["src"], minlength=self.states[fsa])
            cutoff = min(backward[0][0], forward[-1][-1]) - self.beam
            kept = [f + b > cutoff for f, b in zip(forward, backward)]
            rank = np.cumsum(np.concatenate([[0], *kept])).astype(int)
            before = len(self.kept_states)
            width = self.states[fsa]
            for t, keep in enumerate(kept):
                for state in np.flatnonzero(keep):
                    self.kept_states.append((fsa, t, int(state)))
                self._set_words(fsa, t, keep)
                taken = []
                if t < len(rows):
                    score = _scores(mine, rows[t])
                    sums = (forward[t][mine["src"]] + score) + backward[t + 1][mine["dest"]]
                    taken = np.flatnonzero(
                        (sums > cutoff) & keep[mine["src"]] & kept[t + 1][mine["dest"]]
                    )
                for i in taken:
                    src = rank[t * width + mine["src"][i]]
                    self.row_ids2.append(before + src)
                    out.append(
                        (src, rank[(t + 1) * width + mine["dest"][i]], mine["label"][i], score[i])
                    )
                    self.map_a.append(first + i)
                    row, column = self.row_begins[self.a_to_b[fsa]] + t, mine["label"][i] + 1
                    self.map_b.append(row * self.stride + column)
                    self.cells.append(row * COLUMNS + column)
                self.counts.append((int(keep.sum()), len(taken), int(num_arcs[keep].sum())))
            self._follow(mine, first, rows, backward, num_arcs)
            # The frames after the end of the sequence have no states and no arcs.
            for _ in range(self.num_steps - len(kept)):
                self.counts.append((0, 0, 0))
        self.counts = np.array(self.counts, np.int32)
        self.out = np.array(out, self.arcs.dtype)
        self.frame_states, self.frame_arcs = [np.cumsum([0, *self.counts[:, i]]) for i in (0, 1)]
        self.row_splits2 = np.searchsorted(self.row_ids2, np.arange(len(self.kept_states) + 1))

    def words_of(self, fsa, t):
        """Returns a view of an FSA's words in a frame.

        A word has the bits of kept states, and the number of kept states before these states.
        """
        begin = self.state_begins[fsa] // LANES + fsa
        return self.words[t, begin : begin - (-self.states[fsa] // LANES)]

    def _set_words(self, fsa, t, keep):
        before = 0
        for word, begin in zip(self.words_of(fsa, t), range(0, len(keep), LANES)):
            part = keep[begin : begin + LANES]
            bits = sum(1 << int(i) for i in np.flatnonzero(part))
            word[:] = np.uint32(bits).view(np.int32), before
            before += int(part.sum())

    def _follow(self, arcs, first, rows, backward, num_arcs):
        state, found = 0, backward[0][0] > -np.inf
        states = leaving = 0
        for t in range(self.num_steps):
            best = -1
            if found and t < len(rows):
                row = rows[t]
                states += 1
                leaving += int(num_arcs[state])
                score = (backward[t + 1][arcs["dest"]] + arcs["score"]) + _scores(
                    arcs, row, alone=True
                )
                tight = np.flatnonzero((arcs["src"] == state) & (score == backward[t][state]))
                found = len(tight) > 0
                if found:
                    best = first + int(tight[0])
                    state = arcs["dest"][tight[0]]
            self.best_arcs.append(best)
        self.paths.append((states + 1, leaving, state) if found else (0, 0, -1))


def _scores(arcs, row, alone=False):
    """Returns the scores of arcs in a frame.

    Args:
      alone: whether to leave out the scores that the arcs have in the graph.
    """
    column = arcs["label"] + 1
    frame = np.where(column < COLUMNS, row[np.minimum(column, COLUMNS - 1)], np.float32(-np.inf))
    return frame if alone else arcs["score"] + frame


def lattices():
    """Yields (name, Lattice)."""
    for shape in SHAPES:
        yield "{} states, {} arcs, {} frames of {}, beam {:g}".format(*shape), Lattice(shape)


def written(expected, tolerance=0.0):
    """Returns an output buffer of numpy.int32.  The kernel writes all elements."""
    return Buffer.output(np.array(expected, np.int32), tolerance, np.int32)

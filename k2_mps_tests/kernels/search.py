"""Inputs, memory and results of a pruned search, for the checks of pruned and pruned_stream.

decoding.py computes the expected lattices.
"""

from typing import NamedTuple

import numpy as np

from k2_mps_tests.kernels import decoding
from k2_mps_tests.kernels.case import UNTOUCHED, Buffer, ints
from k2_mps_tests.kernels.decoding import Options
from k2_mps_tests.kernels.graphs import ARC, Graphs, with_padding
from k2_mps_tests.kernels.sources import enumeration, enumerators, layout

Number = enumeration("pruned.h", "PrunedBuffer")
PARAMS = layout("pruned.h", "PrunedParams")
STEP = layout("pruned.h", "PrunedStep")
SIZES = enumerators("pruned.h")
LANES = enumerators("simd_width.h")["kSimdWidth"]
NUM_INFOS = SIZES["kPrNumInfos"]
NONE, MINUS_INFINITY = 0x7FFFFFFF, np.int32(-0x7F800001)
SYMBOLS = 5
COLUMNS = SYMBOLS + 1
SORTED, DETERMINISTIC, EPSILON_FREE = 0x10, 0x20, 0x40
# The limits of a sequence's memory: the most states and arcs that the search can have, then the
# most states and arcs that the lattice can have.
MAX_STATES, MAX_ARCS, MAX_OUT_STATES, MAX_OUT_ARCS = 3000, 9000, 2000, 5000


def rings_layout(num_rows):
    """Returns the type of the rings of a sequence; see RingsOf() in pruned_memory.h."""
    words = MAX_ARCS // LANES + 1
    fields = [
        ("active", np.int32, (MAX_STATES, 4)),
        ("frames", np.int32, (num_rows + 2, 4)),
        ("counts", np.int32, 4 * SIZES["kPrMaxSimdgroups"]),
        ("endings", np.int32, (MAX_ARCS, 2)),
        ("backward", np.int32, MAX_STATES),
        ("num_kept", np.int32, MAX_STATES),
        ("numbers", np.int32, MAX_STATES),
        ("next_states", np.int32, MAX_ARCS),
        ("over_cutoff", np.uint32, words),
        ("is_first", np.uint32, words),
    ]
    return _aligned(fields)


def lattice_layout(number=np.int32):
    """Returns the type of a sequence's lattice; see GetSequence() in pruned_memory.h."""
    fields = [
        ("out", number, (MAX_OUT_ARCS, 4)),
        ("out_begins", number, MAX_OUT_STATES),
        ("entered", number, MAX_OUT_STATES),
    ]
    return _aligned(fields)


def _aligned(fields):
    """Returns the type of a struct of arrays whose size is a multiple of 16 bytes."""
    size = np.dtype(fields).itemsize
    return np.dtype([*fields, ("unused", fields[0][1], -size % 16 // 4)])


class Shape(NamedTuple):
    """The sizes of a batch of graphs and sequences, and the options of the search."""

    states: list  # the number of states of each graph; if there is one, all sequences use it
    arcs: int  # the number of arcs that leave each state
    rows: list  # the number of rows (frames) of each sequence
    options: Options
    symbols: int = SYMBOLS  # labels are less than this, except that of the final arcs


class Batch:
    """The inputs of intersect_dense_pruned, and the expected lattices.

    Most attributes have the names of the kernels' arguments.
    """

    def __init__(self, shape):
        states, num_arcs, rows, self.options, symbols = shape
        random = np.random.default_rng([sum(states), num_arcs, sum(rows)])
        self.rows, self.shared = rows, len(states) == 1
        graphs = random_graphs(random, states, num_arcs, symbols)
        self.arcs, self.state_begins = graphs.arcs, graphs.state_begins
        if self.options.allow_partial:
            # A sequence may then end with a label that has no scores.
            self.arcs["label"][self.arcs["label"] == 1] = 9 * COLUMNS
        self.leaving_begins = graphs.leaving_begins
        self.b_begins = np.cumsum([0, *rows])
        scores = random.standard_normal((self.b_begins[-1], COLUMNS)).astype(np.float32)
        # Only the last row of a sequence has a score for label -1.
        scores[:, 0] = -np.inf
        scores[self.b_begins[1:] - 1] = -np.inf
        scores[self.b_begins[1:] - 1, 0] = 0
        self.scores = with_padding(scores)
        self.lattices, self.times = [], []
        for i in range(len(rows)):
            arc_begins, out, times = self._lattice(i)
            self.lattices.append((arc_begins, out))
            self.times.append(times)

    def graph_of(self, index):
        """Returns the index of the graph that a sequence uses."""
        return 0 if self.shared else index

    def _lattice(self, index):
        first, last = self.state_begins[self.graph_of(index) :][:2]
        begins = self.leaving_begins[first : last + 1]
        scores = self.scores[slice(*self.b_begins[index : index + 2])]
        arc_begins, out, times = decoding.decode(
            self.arcs[begins[0] : begins[-1]],
            begins - begins[0],
            scores,
            max(self.rows),
            self.options,
        )
        out = [(src, dest, arc + begins[0], t) for src, dest, arc, t in out]
        return arc_begins, out, times

    def infos(self, described):
        """Returns the numbers that the search passes to the next kernel, [sequences][kPrNumInfos].

        Args:
          described: whether to include the numbers that describe_pruned adds.
        """
        ans = np.zeros((len(self.rows), NUM_INFOS), np.int32)
        for index, (arc_begins, out) in enumerate(self.lattices):
            info = ans[index]
            info[SIZES["kPrStates"]], info[SIZES["kPrArcs"]] = len(arc_begins), len(out)
            is_reached = any(t == self.rows[index] - 1 for *_, t in out)
            info[SIZES["kPrExtraStates"]] = not is_reached
            info[SIZES["kPrHasFinal"]] = self.options.allow_partial and self.has_final(index)
            if described:
                info[SIZES["kPrNotProperties"]] = self._lacks(index)
                info[SIZES["kPrEntered"]] = len({dest for _, dest, _, _ in out})
                info[SIZES["kPrLeft"]] = len({src for src, *_ in out})
        return ans

    def entered(self, described):
        """Returns twice the frame of each state, plus 1 for some states.

        Args:
          described: whether to add this 1, as describe_pruned does for each state that arcs enter.
        """
        ans = np.zeros((len(self.rows), MAX_OUT_STATES), np.int32)
        for index, times in enumerate(self.times):
            # For states after the last frame of the longest sequence, the kernel writes no frame.
            ans[index, : len(times)] = [2 * t if t < max(self.rows) else 0 for t in times]
            if described:
                ans[index, sorted({dest for _, dest, _, _ in self.lattices[index][1]})] += 1
        return ans

    def has_final(self, index):
        """Returns whether an arc of a sequence's lattice has label -1 in the graph."""
        return any(self.arcs["label"][arc] == -1 for *_, arc, _ in self.lattices[index][1])

    def label(self, index, arc, t):
        """Returns the label that the lattice has for an arc of the graph in frame t."""
        return -1 if t == self.rows[index] - 1 else self.arcs["label"][arc]

    def _lacks(self, index):
        lacks, before = 0, None
        for src, dest, arc, t in self.lattices[index][1]:
            label = int(self.label(index, arc, t)) & 0xFFFFFFFF
            lacks |= EPSILON_FREE if label == 0 else 0
            if before and before[0] == src:
                lacks |= DETERMINISTIC if label <= before[1] else 0
                lacks |= SORTED if (label, dest) < before[1:] else 0
            before = src, label, dest
        return lacks


def random_graphs(random, states, num_arcs, symbols=SYMBOLS):
    """Returns random graphs.  States 0, 2, 4, ... have an arc with label -1 to the last state."""
    parts, fsas = [], []
    for fsa, n in enumerate(states):
        arcs = np.zeros((n - 1) * (num_arcs + 1), ARC)
        arcs["src"] = np.repeat(np.arange(n - 1), num_arcs + 1)
        arcs["dest"] = random.integers(n - 1, size=len(arcs))
        arcs["label"] = random.integers(symbols, size=len(arcs))
        final = (np.arange(len(arcs)) % (2 * num_arcs + 2)) == num_arcs
        arcs["dest"][final], arcs["label"][final] = n - 1, -1
        arcs["score"] = random.standard_normal(len(arcs)) / 4
        parts.append(arcs)
        fsas += [fsa] * len(arcs)
    return Graphs(states, np.concatenate(parts), fsas)


def bits_of(value):
    """Returns the bits of a float as an int32."""
    return np.float32(value).view(np.int32)


def params_of(batch, streaming=0):
    """Returns the buffer of PrunedParams.

    Args:
      batch: a Batch, or a chunk of streams.
      streaming: 1 for a chunk.
    """
    options = batch.options
    return Buffer.struct(
        PARAMS,
        num_seqs=len(batch.rows),
        at_once=_at_once(batch),
        num_rows=max(batch.rows),
        shared_graph=batch.shared,
        num_states=batch.state_begins[-1],
        stride=batch.scores.shape[1],
        num_columns=COLUMNS,
        min_active=options.min_active,
        max_active=options.max_active,
        allow_partial=options.allow_partial,
        search_beam=options.search_beam,
        output_beam=options.output_beam,
        max_states=MAX_STATES,
        max_arcs=MAX_ARCS,
        max_out_states=MAX_OUT_STATES,
        max_out_arcs=MAX_OUT_ARCS,
        streaming=streaming,
    )


def _at_once(batch):
    """Returns how many sequences have memory: one more than there are, so the numbers differ."""
    return len(batch.rows) + 1


def inputs_of(batch):
    """Returns the arguments that all kernels but start_pruned have."""
    return {
        Number.kPrunedArcs: Buffer(batch.arcs.view(np.int32)),
        Number.kPrunedStateBegins: ints(batch.state_begins),
        Number.kPrunedLeavingBegins: ints(batch.leaving_begins),
        Number.kPrunedBScores: Buffer(batch.scores),
        Number.kPrunedBBegins: ints(batch.b_begins),
        Number.kPrunedParams: params_of(batch),
    }


def rings_of(batch):
    """Returns the rings of all sequences, an array of rings_layout()."""
    return np.zeros(_at_once(batch), rings_layout(max(batch.rows)))


def table_of(batch):
    """Returns the buffer with the tables of the graphs' states."""
    pairs = 2 * batch.state_begins[-1] * (_at_once(batch) if batch.shared else 1)
    return Buffer.scratch(np.array([[NONE, MINUS_INFINITY]] * pairs, np.int32))


def scratch_of(rings):
    """Returns the buffer of an array of rings.  The contents after a launch do not matter."""
    return Buffer.scratch(rings.view(np.int32))


def lattices_of(batch, entered):
    """Returns the lattices that a search writes, an array of lattice_layout().

    Args:
      entered: the member `entered` of all sequences.
    """
    ans = np.zeros(len(batch.rows), lattice_layout())
    ans["out"], ans["out_begins"], ans["unused"] = (int(UNTOUCHED),) * 3
    ans["entered"] = entered
    for lattice, (arc_begins, arcs) in zip(ans, batch.lattices):
        lattice["out"][: len(arcs)] = np.array(arcs, np.int32).reshape(-1, 4)
        lattice["out_begins"][: len(arc_begins)] = arc_begins
    return ans


def searched_lattices(batch, entered, tolerance=0.0):
    """Returns the buffer of lattices before and after a search.

    Args:
      entered: the member `entered` after the search; zeros before it.
      tolerance: as for Buffer.
    """
    before = np.zeros(len(batch.rows), lattice_layout())
    before["out"], before["out_begins"], before["unused"] = (int(UNTOUCHED),) * 3
    return Buffer(before.view(np.int32), lattices_of(batch, entered).view(np.int32), tolerance)

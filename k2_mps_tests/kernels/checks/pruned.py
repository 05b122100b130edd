"""Cases of start_pruned, search_pruned, step_pruned, describe_pruned and emit_pruned.

decoding.py computes the expected lattices.  A score is a sum of two floats, or a maximum.  So all
results must be equal.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from k2_mps_tests.kernels import decoding
from k2_mps_tests.kernels.case import UNTOUCHED, Buffer, Case, ints
from k2_mps_tests.kernels.decoding import Options
from k2_mps_tests.kernels.graphs import ARC, Graphs, with_padding
from k2_mps_tests.kernels.sources import enumeration, enumerators, layout

Number = enumeration("pruned.h", "PrunedBuffer")
PARAMS = layout("pruned.h", "PrunedParams")
START_PARAMS = layout("pruned.h", "PrunedStartParams")
PART = layout("pruned.h", "PrunedPart")
STEP = layout("pruned.h", "PrunedStep")
EMIT_PARAMS = layout("pruned.h", "PrunedEmitParams")
SIZES = enumerators("pruned.h")
LANES = enumerators("simd_width.h")["kSimdWidth"]
NUM_INFOS = SIZES["kPrNumInfos"]
NONE, MINUS_INFINITY = 0x7FFFFFFF, np.int32(-0x7F800001)
SYMBOLS = 5
COLUMNS = SYMBOLS + 1
ALL, SORTED, DETERMINISTIC, EPSILON_FREE = 0x1FF, 0x10, 0x20, 0x40
# The limits of a sequence's memory: the most states and arcs that the search can have, then the
# most states and arcs that the lattice can have.
MAX_STATES, MAX_ARCS, MAX_OUT_STATES, MAX_OUT_ARCS = 3000, 9000, 2000, 5000
MAX_WORDS = MAX_ARCS // LANES + 1  # words with a bit for each of these arcs


class Shape(NamedTuple):
    """The sizes of a batch of graphs and sequences, and the options of the search."""

    states: list  # the number of states of each graph; if there is one, all sequences use it
    arcs: int  # the number of arcs that leave each state
    rows: list  # the number of rows (frames) of each sequence
    options: Options


SHAPES = [
    Shape(states=[2], arcs=1, rows=[1], options=Options(8, 4, 0, 10)),
    Shape(states=[5], arcs=2, rows=[9, 4, 1], options=Options(8, 4, 2, 10)),
    Shape(states=[40, 7, 33], arcs=3, rows=[21, 20, 2], options=Options(6, 3, 2, 9)),
    Shape(states=[30], arcs=4, rows=[65, 22], options=Options(5, 2.5, 3, 12)),
    Shape(states=[9, 12], arcs=3, rows=[41, 40], options=Options(20, 8, 30, 100)),
    Shape(states=[12, 5], arcs=2, rows=[33, 30], options=Options(9, 4, 2, 10, allow_partial=True)),
    Shape(states=[4], arcs=1, rows=[7, 3], options=Options(9, 4, 2, 10, allow_partial=True)),
]


class Batch:
    """The inputs of intersect_dense_pruned, and the expected lattices.

    Most attributes have the names of the kernels' arguments.
    """

    def __init__(self, shape):
        states, num_arcs, rows, self.options = shape
        random = np.random.default_rng([sum(states), num_arcs, sum(rows)])
        self.rows, self.shared = rows, len(states) == 1
        graphs = random_graphs(random, states, num_arcs)
        self.arcs, self.state_begins = graphs.arcs, graphs.state_begins
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


def random_graphs(random, states, num_arcs):
    """Returns random graphs.  States 0, 2, 4, ... have an arc with label -1 to the last state."""
    parts, fsas = [], []
    for fsa, n in enumerate(states):
        arcs = np.zeros((n - 1) * (num_arcs + 1), ARC)
        arcs["src"] = np.repeat(np.arange(n - 1), num_arcs + 1)
        arcs["dest"] = random.integers(n - 1, size=len(arcs))
        arcs["label"] = random.integers(SYMBOLS, size=len(arcs))
        final = (np.arange(len(arcs)) % (2 * num_arcs + 2)) == num_arcs
        arcs["dest"][final], arcs["label"][final] = n - 1, -1
        arcs["score"] = random.standard_normal(len(arcs)) / 4
        parts.append(arcs)
        fsas += [fsa] * len(arcs)
    return Graphs(states, np.concatenate(parts), fsas)


def cases():
    yield _start()
    for shape in SHAPES:
        batch = Batch(shape)
        name = f"{shape.states} states, {shape.rows} rows"
        for threads, parts in ((LANES, 1), (3 * LANES, 2), (SIZES["kPrMostThreads"], 1)):
            yield _search(f"{name}, {threads} threads, {parts} parts", batch, threads, parts)
        for threads, groups in ((LANES, 2), (2 * LANES, 3)):
            yield _step(f"{name}, {groups} groups of {threads} threads", batch, threads, groups)
        yield _describe(name, batch)
        yield _emit(name, batch)


def _start():
    table = np.array([[NONE, MINUS_INFINITY]] * 700)
    buffers = {
        Number.kPrunedTable: Buffer.output(table, dtype=np.int32),
        Number.kPrunedInfos: Buffer.output(np.zeros(2 * NUM_INFOS), dtype=np.int32),
        Number.kPrunedDispatch: Buffer.struct(
            START_PARAMS, num_pairs=len(table), num_infos=2 * NUM_INFOS
        ),
    }
    return Case("700 states", "start_pruned", 2, SIZES["kPrWideThreads"], buffers)


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
        max_words=MAX_WORDS,
        max_out_states=MAX_OUT_STATES,
        max_out_arcs=MAX_OUT_ARCS,
        streaming=streaming,
    )


def _at_once(batch):
    """Returns how many sequences have memory: one more than there are, so the numbers differ."""
    return len(batch.rows) + 1


def _scratch(size, dtype=np.int32):
    return Buffer.scratch(np.zeros(size, dtype))


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


def memory_of(batch):
    """Returns the memory of a search: the tables of states, and the rings of states and of arcs."""
    n = _at_once(batch)
    pairs = 2 * batch.state_begins[-1] * (n if batch.shared else 1)
    table = np.array([[NONE, MINUS_INFINITY]] * pairs, np.int32)
    return {
        Number.kPrunedTable: Buffer.scratch(table),
        Number.kPrunedActive: _scratch(4 * n * MAX_STATES),
        Number.kPrunedBackward: _scratch(n * MAX_STATES),
        Number.kPrunedNumKept: _scratch(n * MAX_STATES),
        Number.kPrunedNumbers: _scratch(n * MAX_STATES),
        Number.kPrunedDests: _scratch(n * MAX_ARCS),
        Number.kPrunedEndScores: _scratch(n * MAX_ARCS, np.float32),
        Number.kPrunedOverCutoff: _scratch(n * MAX_WORDS, np.uint32),
        Number.kPrunedIsFirst: _scratch(n * MAX_WORDS, np.uint32),
        Number.kPrunedCounts: _scratch(4 * n * SIZES["kPrMaxSimdgroups"]),
        Number.kPrunedFrames: _scratch(4 * n * (max(batch.rows) + 2)),
    }


def out_and_begins(batch):
    """Returns the arcs of the lattices, and the indexes at which the arcs of each state begin."""
    out = np.full((len(batch.rows), MAX_OUT_ARCS, 4), int(UNTOUCHED), np.int32)
    begins = np.full((len(batch.rows), MAX_OUT_STATES), int(UNTOUCHED), np.int32)
    for index, (arc_begins, arcs) in enumerate(batch.lattices):
        out[index, : len(arcs)] = np.array(arcs, np.int32).reshape(-1, 4)
        begins[index, : len(arc_begins)] = arc_begins
    return out, begins


def _searched(batch):
    """Returns the arguments of a search, except kPrunedDispatch."""
    out, begins = out_and_begins(batch)
    # For the last state of the longest sequence, the kernel does not write where arcs begin.
    tolerance = np.zeros(begins.shape, np.float32)
    for index, (arc_begins, arcs) in enumerate(batch.lattices):
        if arcs and arcs[-1][3] == max(batch.rows) - 1:
            tolerance[index, len(arc_begins) - 1] = np.inf
    # The reference computes only the numbers that the loop below names.  All other numbers may have
    # any value.
    infos, allowed = batch.infos(described=False), np.full(NUM_INFOS, np.inf)
    for info in ("kPrHasFinal", "kPrError", "kPrStates", "kPrArcs", "kPrExtraStates"):
        allowed[SIZES[info]] = 0
    entered = batch.entered(False)
    return {
        **inputs_of(batch),
        **memory_of(batch),
        Number.kPrunedInfos: Buffer(np.zeros_like(infos), infos, allowed),
        Number.kPrunedOut: Buffer.output(out, dtype=np.int32),
        Number.kPrunedOutBegins: Buffer.output(begins, tolerance, dtype=np.int32),
        Number.kPrunedEntered: Buffer(np.zeros_like(entered), entered),
    }


def _search(name, batch, threads, num_parts):
    num_windows = (max(batch.rows) - 1) // decoding.SHIFT + 1
    num_parts = min(num_parts, num_windows)
    ends = [num_windows * i // num_parts for i in range(num_parts + 1)]
    part, *more = [
        Buffer.struct(PART, first_seq=0, first_window=first, last_window=last)
        for first, last in pairwise(ends)
    ]
    buffers = {**_searched(batch), Number.kPrunedDispatch: part}
    groups = len(batch.rows)
    more = [(groups, {Number.kPrunedDispatch: other}) for other in more]
    return Case(name, "search_pruned", groups, threads, buffers, more)


def _step(name, batch, threads, groups):
    (first, step), *more = _steps(max(batch.rows), len(batch.rows), groups)
    buffers = {**_searched(batch), Number.kPrunedDispatch: step}
    more = [(count, {Number.kPrunedDispatch: step}) for count, step in more]
    return Case(name, "step_pruned", first, threads, buffers, more)


def _steps(num_rows, num_seqs, groups):
    """Returns the launches of step_pruned, [(threadgroups, step)].

    The order is that of class Steps in intersect_dense_pruned.cu.  A launch does a step of the
    search in one frame.  The launch can also do a step of pruning in the last complete window.  In
    the phase kPrExpand, a launch also resolves the arcs of the previous frame.
    """
    launches = []
    following, pending, window_step = 0, -1, 0

    def begin(window):
        return max(decoding.SHIFT * (window + 1) - decoding.WINDOW, 0)

    def end(window):
        return min(decoding.SHIFT * (window + 1), num_rows)

    def launch(phase, t):
        nonlocal pending, window_step
        live = begin(pending if pending >= 0 else following)
        beside = t > 0 and phase == "kPrExpand"
        teams = (phase != "kPrNoPhase") + beside + (pending >= 0)
        step = Buffer.struct(
            STEP,
            first_seq=0,
            groups=groups,
            num_teams=teams,
            phase=SIZES[phase],
            t=t,
            first_live=live,
            window=pending,
            window_step=window_step,
        )
        launches.append((num_seqs * groups * teams, step))
        window_step += 1
        if pending >= 0 and window_step == 5 + end(pending) - begin(pending):
            pending = -1

    launch("kPrStart", 0)
    for t in range(num_rows):
        for phase in ("kPrExpand", "kPrInsert", "kPrFindFirsts", "kPrMakeStates"):
            launch(phase, t)
        if t + 1 == end(following):
            while pending >= 0:
                launch("kPrNoPhase", t)
            following, pending, window_step = following + 1, following, 0
    launch("kPrResolve", num_rows)
    while pending >= 0:
        launch("kPrNoPhase", num_rows)
    return launches


def _found(batch, described):
    """Returns the arguments of the kernels that run after search_pruned.

    The arguments include search_pruned's results.

    Args:
      described: whether to include the results of describe_pruned.
    """
    out, begins = out_and_begins(batch)
    return {
        **inputs_of(batch),
        **memory_of(batch),
        Number.kPrunedInfos: ints(batch.infos(described)),
        Number.kPrunedOut: ints(out),
        Number.kPrunedOutBegins: ints(begins),
        Number.kPrunedEntered: Buffer(batch.entered(described)),
    }


def _describe(name, batch):
    buffers = {
        **_found(batch, False),
        Number.kPrunedInfos: Buffer(batch.infos(False), batch.infos(True)),
        Number.kPrunedEntered: Buffer(batch.entered(False), batch.entered(True)),
    }
    groups = len(batch.rows) * SIZES["kPrWideGroups"]
    return Case(name, "describe_pruned", groups, SIZES["kPrWideThreads"], buffers)


def _emit(name, batch):
    splits1, splits2, ids2, arcs, map_a, map_b = [0], [], [], [], [], []
    frames = []  # For each state, the index of its frame among the frames of all sequences.
    for index, (arc_begins, out) in enumerate(batch.lattices):
        first_arc, extra = len(arcs), int(batch.infos(True)[index, SIZES["kPrExtraStates"]])
        is_partial = batch.options.allow_partial and not batch.has_final(index)
        splits2 += [first_arc + i for i in arc_begins] + [first_arc + len(out)] * extra
        times = batch.times[index] + [batch.rows[index]] * extra
        frames += [index * (max(batch.rows) + 1) + t for t in times]
        for src, dest, arc, t in out:
            label = batch.arcs["label"][arc]
            row = batch.b_begins[index] + t
            is_last = t == batch.rows[index] - 1
            acoustic = np.float32(0) if is_last and is_partial else batch.scores[row, label + 1]
            score = acoustic + batch.arcs["score"][arc]
            arcs.append((src, dest, batch.label(index, arc, t), score))
            ids2.append(splits1[-1] + src)
            map_a.append(-1 if is_last and label != -1 else arc)
            map_b.append(row * COLUMNS + label + 1)
        splits1.append(splits1[-1] + len(arc_begins) + extra)
    splits2.append(len(arcs))
    ids1 = np.repeat(np.arange(len(batch.rows)), np.diff(splits1))
    arc_splits = np.cumsum([0, *(len(out) for _, out in batch.lattices)])
    num_frames = len(batch.rows) * (max(batch.rows) + 1)
    frame_states = np.searchsorted(frames, np.arange(num_frames + 1))
    frame_arcs = np.take(splits2, frame_states)
    arcs = np.array(arcs, ARC).view(np.int32)
    buffers = {
        **_found(batch, True),
        Number.kPrunedBegins: ints([*splits1, *arc_splits]),
        Number.kPrunedRowSplits2: Buffer.output(splits2, dtype=np.int32),
        Number.kPrunedRowIds1: Buffer.output(ids1, dtype=np.int32),
        Number.kPrunedRowIds2: Buffer.output(ids2, dtype=np.int32),
        Number.kPrunedOutArcs: Buffer.output(arcs, dtype=np.int32),
        Number.kPrunedArcMapA: Buffer.output(map_a, dtype=np.int32),
        Number.kPrunedArcMapB: Buffer.output(map_b, dtype=np.int32),
        Number.kPrunedFrameStates: Buffer.output(frame_states, dtype=np.int32),
        Number.kPrunedFrameArcs: Buffer.output(frame_arcs, dtype=np.int32),
        Number.kPrunedDispatch: Buffer.struct(
            EMIT_PARAMS, num_seqs=len(batch.rows), num_states=splits1[-1], num_arcs=len(map_a)
        ),
    }
    threads = SIZES["kPrWideThreads"]
    groups = -(-max(splits1[-1] + 1, len(map_a)) // threads)
    return Case(name, "emit_pruned", groups, threads, buffers)

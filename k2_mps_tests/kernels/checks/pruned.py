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
    yield _lattice_that_does_not_fit()


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


def _searched(batch):
    """Returns the arguments of a search, except kPrunedDispatch."""
    # For the last state of the longest sequence, the kernel does not write where arcs begin.
    tolerance = np.zeros(len(batch.rows), lattice_layout(np.float32))
    for index, (arc_begins, arcs) in enumerate(batch.lattices):
        if arcs and arcs[-1][3] == max(batch.rows) - 1:
            tolerance["out_begins"][index, len(arc_begins) - 1] = np.inf
    # The reference computes only the numbers that the loop below names.  All other numbers may have
    # any value.
    infos, allowed = batch.infos(described=False), np.full(NUM_INFOS, np.inf)
    for info in ("kPrHasFinal", "kPrError", "kPrStates", "kPrArcs", "kPrExtraStates"):
        allowed[SIZES[info]] = 0
    return {
        **inputs_of(batch),
        Number.kPrunedTable: table_of(batch),
        Number.kPrunedRings: scratch_of(rings_of(batch)),
        Number.kPrunedLattice: searched_lattices(
            batch, batch.entered(False), tolerance.view(np.float32)
        ),
        Number.kPrunedInfos: Buffer(np.zeros_like(infos), infos, allowed),
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


def _lattice_that_does_not_fit():
    """Returns a case of search_pruned that writes no arc, and nothing behind the lattice."""
    batch = Batch(Shape(states=[30], arcs=4, rows=[45], options=Options(5, 2.5, 3, 12)))
    case = _search("a lattice that does not fit", batch, LANES, 1)
    params = case.buffers[Number.kPrunedParams].content
    params["max_out_states"] = params["max_out_arcs"] = limit = 20
    assert all(min(len(begins), len(arcs)) > limit for begins, arcs in batch.lattices)
    lattice = np.full(6 * MAX_OUT_ARCS, int(UNTOUCHED), np.int32)
    allowed = np.where(np.arange(lattice.size) < 6 * limit, np.inf, 0)  # `entered` may change
    case.buffers[Number.kPrunedLattice] = Buffer(lattice, lattice, allowed)
    infos = case.buffers[Number.kPrunedInfos]
    infos.expected[:, SIZES["kPrError"]] = SIZES["kPrSmallOutput"]
    allowed = np.where(np.arange(NUM_INFOS) == SIZES["kPrError"], 0, np.inf)
    case.buffers[Number.kPrunedInfos] = infos._replace(tolerance=allowed)
    return case


def _step(name, batch, threads, groups):
    (first, step), *more = _steps(max(batch.rows), len(batch.rows), groups)
    buffers = {**_searched(batch), Number.kPrunedDispatch: step}
    more = [(count, {Number.kPrunedDispatch: step}) for count, step in more]
    return Case(name, "step_pruned", first, threads, buffers, more)


def _steps(num_rows, num_seqs, groups):
    """Returns the launches of step_pruned, [(threadgroups, step)].

    The order is that of class Steps in intersect_dense_pruned.cu.  A launch does a step of the
    search in one frame, and perhaps a step of pruning in the last complete window.  In the phase
    kPrExpand, a launch resolves the arcs of the previous frame, too.
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
    return {
        **inputs_of(batch),
        Number.kPrunedTable: table_of(batch),
        Number.kPrunedRings: scratch_of(rings_of(batch)),
        Number.kPrunedLattice: Buffer(lattices_of(batch, batch.entered(described)).view(np.int32)),
        Number.kPrunedInfos: ints(batch.infos(described)),
    }


def _describe(name, batch):
    before, after = (lattices_of(batch, batch.entered(x)).view(np.int32) for x in (False, True))
    buffers = {
        **_found(batch, False),
        Number.kPrunedInfos: Buffer(batch.infos(False), batch.infos(True)),
        Number.kPrunedLattice: Buffer(before, after),
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
            # A label without scores has the element of label -1.
            map_b.append(row * COLUMNS + (label + 1 if label + 1 < COLUMNS else 0))
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

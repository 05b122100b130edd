"""Cases of start_pruned, search_pruned, step_pruned, describe_pruned and emit_pruned.

search.py has the inputs and the expected lattices.  A score is a sum of two floats, or a
maximum.  So all results must be equal.
"""

from itertools import pairwise

import numpy as np

from k2_mps_tests.kernels import decoding
from k2_mps_tests.kernels.case import UNTOUCHED, Buffer, Case, ints
from k2_mps_tests.kernels.decoding import Options
from k2_mps_tests.kernels.graphs import ARC
from k2_mps_tests.kernels.search import (
    COLUMNS,
    LANES,
    MAX_OUT_ARCS,
    MINUS_INFINITY,
    NONE,
    NUM_INFOS,
    SIZES,
    STEP,
    Batch,
    Number,
    Shape,
    inputs_of,
    lattice_layout,
    lattices_of,
    rings_of,
    scratch_of,
    searched_lattices,
    table_of,
)
from k2_mps_tests.kernels.sources import layout

START_PARAMS = layout("pruned.h", "PrunedStartParams")
PART = layout("pruned.h", "PrunedPart")
EMIT_PARAMS = layout("pruned.h", "PrunedEmitParams")

SHAPES = [
    Shape(states=[2], arcs=1, rows=[1], options=Options(8, 4, 0, 10)),
    Shape(states=[5], arcs=2, rows=[9, 4, 1], options=Options(8, 4, 2, 10)),
    Shape(states=[40, 7, 33], arcs=3, rows=[21, 20, 2], options=Options(6, 3, 2, 9)),
    Shape(states=[30], arcs=4, rows=[65, 22], options=Options(5, 2.5, 3, 12)),
    Shape(states=[9, 12], arcs=3, rows=[41, 40], options=Options(20, 8, 30, 100)),
    Shape(states=[12, 5], arcs=2, rows=[33, 30], options=Options(9, 4, 2, 10, allow_partial=True)),
    Shape(states=[4], arcs=1, rows=[7, 3], options=Options(9, 4, 2, 10, allow_partial=True)),
]


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
    # All arcs of a state have one label, so only their destinations can be out of order.
    shape = Shape(states=[9], arcs=3, rows=[12, 6], options=Options(9, 4, 2, 10), symbols=1)
    yield _describe("one label", Batch(shape))
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

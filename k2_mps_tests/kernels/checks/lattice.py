"""Cases of count_lattice, place_lattice, emit_lattice and find_best_paths."""

from itertools import pairwise

import numpy as np

from k2_mps_tests.kernels.case import EPS, Buffer, Case, ints
from k2_mps_tests.kernels.checks.intersect_dense import COLUMNS
from k2_mps_tests.kernels.lattices import (
    LANES,
    MAX_THREADS,
    SIZES,
    Lattice,
    Shape,
    lattices,
    written,
)
from k2_mps_tests.kernels.sources import enumeration, layout

Number = enumeration("lattice.h", "LatticeBuffer")
PARAMS = layout("lattice.h", "LatticeParams")
PATH_PARAMS = layout("lattice.h", "BestPathsParams")
NONEMPTY = 2


def cases():
    for name, lattice in lattices():
        yield _count(name, lattice)
        for threads in (LANES, MAX_THREADS):
            yield _place(name, lattice, threads)
        yield _emit(name, lattice)
        for parts in (1, 3):
            yield _best(name, lattice, parts)
    # Only one arc leaves each state, so most paths end early.
    lattice = Lattice(Shape(states=[60, 50], arcs=1, frames=[6, 5], a_to_b=[0, 1], beam=9.0))
    assert not all(n for n, _, _ in lattice.paths)
    for case in (_count, _emit, _best):
        yield case("paths that end", lattice)
    lattice = Lattice(Shape(states=[9], arcs=6, frames=[8], a_to_b=[0], beam=3.0))
    _let_padding_fit(lattice)
    yield _best("padding that fits", lattice)


def _let_padding_fit(lattice):
    """Changes the padding of the scores of a lattice of one FSA.

    Arcs on the way of the best path have no column of scores.  If such an arc got its score from
    the padding, the arc would be as good as the arc of the path, and the kernel would take the
    first one of the two.
    """
    num_states, changed = lattice.states[0], 0
    for t, best in enumerate(lattice.best_arcs[: lattice.frames[0]]):
        here, after = lattice.state_scores[[lattice.frames[0] - t, lattice.frames[0] - t - 1]]
        src = lattice.arcs["src"][best]
        for arc in lattice.arcs[lattice.leaving_begins[src] : best]:
            column = arc["label"] + 1
            if column >= COLUMNS and np.isfinite(after[arc["dest"]]):
                rest = after[:num_states][arc["dest"]] + arc["score"]
                lattice.scores[t, column] = here[src] - rest
                changed += rest + lattice.scores[t, column] == here[src]
    assert changed > 0


def _params(lattice):
    return Buffer.struct(
        PARAMS,
        num_fsas=len(lattice.states),
        num_states=lattice.state_begins[-1],
        num_steps=lattice.num_steps,
        num_words=lattice.num_words,
        stride=lattice.stride,
        num_columns=COLUMNS,
        beam=lattice.beam,
        has_best_arcs=0,
    )


def _inputs(lattice):
    """Returns the arguments that all kernels of lattices have."""
    return {
        Number.kLatticeArcs: Buffer(lattice.arcs.view(np.int32)),
        Number.kLatticeStateBegins: ints(lattice.state_begins),
        Number.kLatticeLeavingBegins: ints(lattice.leaving_begins),
        Number.kLatticeIncomingBegins: ints(lattice.incoming_begins),
        Number.kLatticeIncoming: ints(lattice.incoming),
        Number.kLatticeBScores: Buffer(lattice.scores),
        Number.kLatticeBBegins: ints(lattice.row_begins),
        Number.kLatticeAToBMap: ints(lattice.a_to_b),
        Number.kLatticeStateScores: Buffer(lattice.state_scores),
        Number.kLatticeParams: _params(lattice),
    }


def _count(name, lattice):
    counts = np.concatenate([lattice.counts, np.zeros((len(lattice.counts), 1))], axis=1)
    groups = -(-len(counts) // 4)
    # The fourth count has bits of properties.  parity/test_lattice.py compares properties.
    buffers = {
        **_inputs(lattice),
        Number.kLatticeBestArcs: ints(lattice.best_arcs),
        Number.kLatticeWords: written(lattice.words),
        Number.kLatticeCounts: written(counts, np.array([0, 0, 0, np.inf])),
    }
    return Case(name, "count_lattice", groups, 4 * LANES, buffers)


def _place(name, lattice, threads):
    counts = np.concatenate([lattice.counts, np.zeros((len(lattice.counts), 1), np.int32)], axis=1)
    totals = np.zeros(SIZES["kLtNumTotals"], np.int64)
    totals[:3] = lattice.counts.sum(axis=0)
    largest = np.float32(0)
    for fsa, num_states in enumerate(lattice.states):
        frames = lattice.frames[lattice.a_to_b[fsa]]
        begin = 2 * lattice.state_begins[fsa]
        start = lattice.state_scores[frames, begin]
        end = lattice.state_scores[frames, begin + 2 * num_states - 1]
        apart = abs(end - start)
        largest = max(largest, apart)
        near = not lattice.beam > apart + np.float32(frames + 1) * EPS * max(abs(start), abs(end))
        totals[SIZES["kLtMayCut"]] |= near
        first, last = np.array([fsa, fsa + 1]) * lattice.num_steps
        if lattice.frame_arcs[first] == lattice.frame_arcs[last]:
            totals[SIZES["kLtNotProperties"]] |= NONEMPTY
    totals[SIZES["kLtDifference"]] = largest.view(np.int32)
    buffers = {
        **_inputs(lattice),
        Number.kLatticeBestArcs: ints(lattice.best_arcs),
        Number.kLatticeCounts: ints(counts),
        Number.kLatticeFrameStates: written(lattice.frame_states),
        Number.kLatticeFrameArcs: written(lattice.frame_arcs),
        Number.kLatticeTotals: Buffer.output(totals, dtype=np.int64),
    }
    return Case(f"{name}, {threads} threads", "place_lattice", 1, threads, buffers)


def _emit(name, lattice):
    fsas = [fsa for fsa, _, _ in lattice.kept_states]
    splits1 = np.searchsorted(fsas, np.arange(len(lattice.states) + 1))
    groups = -(-len(lattice.counts) // 2)
    buffers = {
        **_inputs(lattice),
        Number.kLatticeBestArcs: ints(lattice.best_arcs),
        Number.kLatticeWords: ints(lattice.words),
        Number.kLatticeFrameStates: ints(lattice.frame_states),
        Number.kLatticeFrameArcs: ints(lattice.frame_arcs),
        Number.kLatticeRowSplits1: written(splits1),
        Number.kLatticeRowIds1: written(fsas),
        Number.kLatticeRowSplits2: written(lattice.row_splits2),
        Number.kLatticeRowIds2: written(lattice.row_ids2),
        Number.kLatticeOut: written(lattice.out.view(np.int32)),
        Number.kLatticeArcMapA: written(lattice.map_a),
        Number.kLatticeArcMapB: written(lattice.map_b),
    }
    return Case(name, "emit_lattice", groups, 2 * LANES, buffers)


def _best(name, lattice, parts=1):
    groups = -(-len(lattice.states) // 2)
    ends = [lattice.num_steps * i // parts for i in range(parts + 1)]
    steps, *more = (
        Buffer.struct(PATH_PARAMS, first_step=first, last_step=last)
        for first, last in pairwise(ends)
    )
    buffers = {
        **_inputs(lattice),
        Number.kLatticeBestArcs: written(lattice.best_arcs),
        Number.kLatticePaths: written(lattice.paths),
        Number.kLatticeSteps: steps,
    }
    more = [(groups, {Number.kLatticeSteps: steps}) for steps in more]
    name = f"{name}, {parts} parts"
    return Case(name, "find_best_paths", groups, 2 * LANES, buffers, more)

"""Cases of count_lattice, place_lattice, emit_lattice and find_best_paths."""

import numpy as np

from k2_mps_tests.kernels.case import Buffer, Case, ints
from k2_mps_tests.kernels.lattices import (
    COLUMNS,
    LANES,
    MAX_THREADS,
    SIZES,
    Lattice,
    lattices,
    written,
)

NONEMPTY = 2
EPS = np.finfo(np.float32).eps


def cases():
    for name, lattice in lattices():
        yield _count(name, lattice)
        for threads in (LANES, MAX_THREADS):
            yield _place(name, lattice, threads)
        yield _emit(name, lattice)
        for parts in (1, 3):
            yield _best(name, lattice, parts)
    # A pair of states has one arc or none, so most paths end early.
    lattice = Lattice([60, 50], 1, [6, 5], [0, 1], 9.0)
    assert not all(n for n, _, _ in lattice.paths)
    for case in (_count, _emit, _best):
        yield case("paths that end", lattice)


def _params(lattice):
    counts = [len(lattice.states), lattice.state_begins[-1], lattice.num_steps, lattice.num_words]
    return ints([*counts, COLUMNS, COLUMNS, lattice.beam.view(np.int32), 0])


def _inputs(lattice):
    """The arguments that all kernels begin with."""
    return [*map(Buffer, lattice.inputs), _params(lattice)]


def _count(name, lattice):
    counts = np.concatenate([lattice.counts, np.zeros((len(lattice.counts), 1))], axis=1)
    groups = -(-len(counts) // 4)
    # parity/test_lattice.py compares properties.
    buffers = [
        *_inputs(lattice),
        ints(lattice.best_arcs),
        written(lattice.words),
        written(counts, np.array([0, 0, 0, np.inf])),
    ]
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
        totals[SIZES["kLtRounding"]] |= near
        first, last = np.array([fsa, fsa + 1]) * lattice.num_steps
        if lattice.frame_arcs[first] == lattice.frame_arcs[last]:
            totals[SIZES["kLtNotProperties"]] |= NONEMPTY
    totals[SIZES["kLtDifference"]] = largest.view(np.int32)
    buffers = [
        *_inputs(lattice),
        ints(lattice.best_arcs),
        ints(counts),
        written(lattice.frame_states),
        written(lattice.frame_arcs),
        Buffer.output(totals, dtype=np.int64),
    ]
    return Case(f"{name}, {threads} threads", "place_lattice", 1, threads, buffers)


def _emit(name, lattice):
    fsas = [fsa for fsa, _, _ in lattice.kept_states]
    splits1 = np.searchsorted(fsas, np.arange(len(lattice.states) + 1))
    groups = -(-len(lattice.counts) // 2)
    buffers = [
        *_inputs(lattice),
        ints(lattice.best_arcs),
        ints(lattice.words),
        ints(lattice.frame_states),
        ints(lattice.frame_arcs),
        written(splits1),
        written(fsas),
        written(lattice.row_splits2),
        written(lattice.row_ids2),
        written(lattice.out.view(np.int32)),
        written(lattice.map_a),
        written(lattice.map_b),
    ]
    return Case(name, "emit_lattice", groups, 2 * LANES, buffers)


def _best(name, lattice, parts=1):
    groups = -(-len(lattice.states) // 2)
    ends = [lattice.num_steps * i // parts for i in range(parts + 1)]
    steps, *more = (ints(pair) for pair in zip(ends, ends[1:]))
    buffers = [*_inputs(lattice), written(lattice.best_arcs), written(lattice.paths), steps]
    more = [(groups, steps) for steps in more]
    name = f"{name}, {parts} parts"
    return Case(name, "find_best_paths", groups, 2 * LANES, buffers, more)

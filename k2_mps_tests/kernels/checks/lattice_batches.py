"""Cases of incoming_arcs, place_batches and fill_batches."""

import numpy as np

from k2_mps_tests.kernels.case import UNTOUCHED, Buffer, Case, ints
from k2_mps_tests.kernels.lattices import LANES, MAX_THREADS, lattices, written


def cases():
    for name, lattice in lattices():
        yield from _cases(name, lattice)


def _cases(name, lattice):
    states = lattice.kept_states
    num_arcs, num_fsas = len(lattice.out), len(lattice.states)
    fsas = np.array([fsa for fsa, _, _ in states])
    begins = np.searchsorted(fsas, np.arange(num_fsas))
    # By state, all FSAs in one.
    sources = np.array(lattice.row_ids2)
    dests = lattice.out["dest"] + begins[fsas[sources]]
    incoming = np.argsort(dests, kind="stable")
    incoming_splits = np.searchsorted(dests[incoming], np.arange(len(states) + 1))

    # By time, then by FSA.
    order = sorted(range(len(states)), key=lambda i: (states[i][1], states[i][0], i))
    part = [states[i][1] * num_fsas + states[i][0] for i in order]
    parts = np.searchsorted(part, np.arange(lattice.num_steps * num_fsas + 1))

    params = ints([num_fsas, lattice.num_steps, len(states), num_arcs])
    frames = [ints(lattice.frame_states), ints(lattice.frame_arcs)]
    groups = -(-len(lattice.counts) // 2)
    buffers = [
        ints(lattice.out.view(np.int32)),
        *frames,
        Buffer.scratch(np.full(max(1, len(states)), UNTOUCHED, np.int32)),
        written(incoming_splits),
        written(incoming),
        params,
    ]
    yield Case(name, "incoming_arcs", groups, 2 * LANES, buffers)
    for threads in (LANES, MAX_THREADS):
        buffers = [
            frames[0],
            written(np.arange(lattice.num_steps + 1) * num_fsas),
            written(parts),
            params,
        ]
        yield Case(f"{name}, {threads} threads", "place_batches", 1, threads, buffers)
    buffers = [frames[0], ints(parts), written(order), params]
    yield Case(name, "fill_batches", groups, 2 * LANES, buffers)

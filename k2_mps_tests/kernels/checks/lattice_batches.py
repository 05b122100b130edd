"""Cases of incoming_arcs, place_batches and fill_batches."""

import numpy as np

from k2_mps_tests.kernels.case import UNTOUCHED, Buffer, Case, ints
from k2_mps_tests.kernels.lattices import LANES, MAX_THREADS, lattices, written
from k2_mps_tests.kernels.sources import enumeration, layout

Number = enumeration("lattice.h", "BatchesBuffer")
PARAMS = layout("lattice.h", "BatchesParams")


def cases():
    for name, lattice in lattices():
        yield from _cases(name, lattice)


def _cases(name, lattice):
    states = lattice.kept_states
    num_fsas = len(lattice.states)
    fsas = np.array([fsa for fsa, _, _ in states])
    begins = np.searchsorted(fsas, np.arange(num_fsas))
    # `incoming` has the arcs in the order of their destinations.  States are numbered across all
    # FSAs.
    sources = np.array(lattice.row_ids2)
    dests = lattice.out["dest"] + begins[fsas[sources]]
    incoming = np.argsort(dests, kind="stable")
    incoming_splits = np.searchsorted(dests[incoming], np.arange(len(states) + 1))

    # A batch has the states of one frame, in the order of their FSAs.
    order = sorted(range(len(states)), key=lambda i: (states[i][1], states[i][0], i))
    part = [states[i][1] * num_fsas + states[i][0] for i in order]
    parts = np.searchsorted(part, np.arange(lattice.num_steps * num_fsas + 1))

    params = Buffer.struct(
        PARAMS,
        num_fsas=num_fsas,
        num_steps=lattice.num_steps,
        num_states=len(states),
        num_arcs=len(lattice.out),
    )
    groups = -(-len(lattice.counts) // 2)
    buffers = {
        Number.kBatchesArcs: ints(lattice.out.view(np.int32)),
        Number.kBatchesFrameStates: ints(lattice.frame_states),
        Number.kBatchesFrameArcs: ints(lattice.frame_arcs),
        Number.kBatchesNext: Buffer.scratch(np.full(max(1, len(states)), UNTOUCHED, np.int32)),
        Number.kBatchesRowSplits: written(incoming_splits),
        Number.kBatchesIncoming: written(incoming),
        Number.kBatchesParams: params,
    }
    yield Case(name, "incoming_arcs", groups, 2 * LANES, buffers)
    for threads in (LANES, MAX_THREADS):
        buffers = {
            Number.kBatchesFrameStates: ints(lattice.frame_states),
            Number.kBatchesRowSplits1: written(np.arange(lattice.num_steps + 1) * num_fsas),
            Number.kBatchesRowSplits2: written(parts),
            Number.kBatchesParams: params,
        }
        yield Case(f"{name}, {threads} threads", "place_batches", 1, threads, buffers)
    buffers = {
        Number.kBatchesFrameStates: ints(lattice.frame_states),
        Number.kBatchesRowSplits2: ints(parts),
        Number.kBatchesStates: written(order),
        Number.kBatchesParams: params,
    }
    yield Case(name, "fill_batches", groups, 2 * LANES, buffers)

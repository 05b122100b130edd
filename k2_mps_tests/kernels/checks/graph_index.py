"""Cases of graph_index."""

from typing import NamedTuple

import numpy as np

from k2_mps_tests.kernels.case import Buffer, Case, ints
from k2_mps_tests.kernels.graphs import Graphs
from k2_mps_tests.kernels.lattices import written
from k2_mps_tests.kernels.sources import enumeration, layout

Number = enumeration("graph_index.h", "GraphIndexBuffer")
PARAMS = layout("graph_index.h", "GraphIndexParams")


class Shape(NamedTuple):
    """The sizes of a batch of graphs, and of a launch."""

    states: list  # the number of states of each FSA
    arcs: int  # the number of arcs that leave each state
    threads: int  # the number of threads in each threadgroup


# The numbers of arcs are near powers of 2 or near the number of threads.  Some FSAs are empty.
SHAPES = [
    Shape(states=[1], arcs=1, threads=32),
    Shape(states=[2, 0, 3], arcs=1, threads=32),
    Shape(states=[31, 32, 33], arcs=1, threads=32),
    Shape(states=[0, 13, 0], arcs=5, threads=32),
    Shape(states=[64, 65, 1], arcs=3, threads=96),
    Shape(states=[700, 20], arcs=2, threads=1024),
]


def cases():
    for shape in SHAPES:
        for labels in (1, 7, 1000):
            yield _case(shape, labels)


def _case(shape, labels):
    states, num_arcs, threads = shape
    random = np.random.default_rng([sum(states), num_arcs, labels])
    graphs = Graphs.random(random, states, num_arcs, labels)
    params = Buffer.struct(
        PARAMS, num_fsas=len(states), num_states=graphs.state_begins[-1], num_arcs=len(graphs.arcs)
    )
    buffers = {
        Number.kGiArcs: Buffer(graphs.arcs.view(np.int32)),
        Number.kGiStateBegins: ints(graphs.state_begins),
        Number.kGiLeavingBegins: ints(graphs.leaving_begins),
        Number.kGiIncomingBegins: written(graphs.incoming_begins),
        Number.kGiIncoming: written(graphs.incoming),
        Number.kGiByLabel: written(graphs.by_label),
        Number.kGiFsaOfArc: written(graphs.fsa_of_arc),
        Number.kGiLabels: written(graphs.labels),
        Number.kGiEveryFsa: written(np.arange(len(states))),
        Number.kGiParams: params,
    }
    name = f"{states} states, {num_arcs} arcs, {labels} labels"
    return Case(name, "graph_index", 2 * len(states), threads, buffers)

"""Cases of graph_index."""

import numpy as np

from k2_mps_tests.kernels.case import Buffer, Case, ints
from k2_mps_tests.kernels.graphs import Graphs
from k2_mps_tests.kernels.lattices import written

# States of each FSA, arcs that leave a state, threads: numbers of arcs around the powers of 2
# and the number of threads, and FSAs without states.
SHAPES = [
    ([1], 1, 32),
    ([2, 0, 3], 1, 32),
    ([31, 32, 33], 1, 32),
    ([0, 13, 0], 5, 32),
    ([64, 65, 1], 3, 96),
    ([700, 20], 2, 1024),
]


def cases():
    for states, num_arcs, threads in SHAPES:
        for labels in (1, 7, 1000):
            yield _case(states, num_arcs, threads, labels)


def _case(states, num_arcs, threads, labels):
    random = np.random.default_rng([sum(states), num_arcs, labels])
    graphs = Graphs.random(random, states, num_arcs, labels)
    num_states, total = int(graphs.state_begins[-1]), len(graphs.arcs)

    buffers = [
        Buffer(graphs.arcs.view(np.int32)),
        ints(graphs.state_begins),
        ints(graphs.leaving_begins),
        *map(written, (graphs.incoming_begins, graphs.incoming, graphs.by_label)),
        *map(written, (graphs.fsa_of_arc, graphs.labels, np.arange(len(states)))),
        ints([len(states), num_states, total]),
    ]
    name = f"{states} states, {num_arcs} arcs, {labels} labels"
    return Case(name, "graph_index", 2 * len(states), threads, buffers)

"""Cases of dense_grad and graph_grad.

The reference adds in the order of arcs, in float32, as the kernels do.
"""

import numpy as np

from k2_mps_tests.kernels.case import Buffer, Case, ints
from k2_mps_tests.kernels.lattices import COLUMNS, LANES, lattices


def cases():
    for name, lattice in lattices():
        random = np.random.default_rng(len(name))
        arc_grad = random.standard_normal(len(lattice.out)).astype(np.float32)
        num_rows, num_arcs = len(lattice.scores), len(lattice.arcs)
        counts = [len(lattice.states), lattice.num_steps, len(lattice.frames)]
        params = ints([*counts, num_rows, COLUMNS, num_arcs])
        frame_arcs = ints(lattice.frame_arcs)
        groups = -(-num_rows // 2)
        buffers = [
            Buffer(arc_grad),
            ints(lattice.map_b),
            frame_arcs,
            ints(lattice.row_begins),
            ints(lattice.a_to_b),
            _sums(num_rows * COLUMNS, lattice.map_b, arc_grad),
            params,
        ]
        yield Case(name, "dense_grad", groups, 2 * LANES, buffers)
        groups = -(-num_arcs // LANES)
        buffers = [
            Buffer(arc_grad),
            ints(lattice.map_a),
            frame_arcs,
            Buffer(lattice.inputs[1]),
            Buffer(lattice.inputs[2]),
            _sums(num_arcs, lattice.map_a, arc_grad),
            params,
        ]
        yield Case(name, "graph_grad", groups, LANES, buffers)


def _sums(size, indexes, terms):
    expected = np.zeros(size, np.float32)
    np.add.at(expected, indexes, terms)
    return Buffer.output(expected)

"""Cases of dense_grad and graph_grad.

The reference adds in float32 and in the order of arcs.  The kernels add in the same order, so
results must be equal.
"""

import numpy as np

from k2_mps_tests.kernels.case import Buffer, Case, ints
from k2_mps_tests.kernels.checks.intersect_dense import COLUMNS
from k2_mps_tests.kernels.lattices import LANES, lattices
from k2_mps_tests.kernels.sources import enumeration, layout

Number = enumeration("lattice.h", "LatticeGradBuffer")
PARAMS = layout("lattice.h", "LatticeGradParams")


def cases():
    for name, lattice in lattices():
        random = np.random.default_rng(len(name))
        arc_grad = random.standard_normal(len(lattice.out)).astype(np.float32)
        num_rows, num_arcs = len(lattice.scores), len(lattice.arcs)
        params = Buffer.struct(
            PARAMS,
            num_fsas=len(lattice.states),
            num_steps=lattice.num_steps,
            num_sequences=len(lattice.frames),
            num_rows=num_rows,
            num_columns=COLUMNS,
            num_graph_arcs=num_arcs,
        )
        groups = -(-num_rows // 2)
        buffers = {
            Number.kLatticeGradArcGrad: Buffer(arc_grad),
            Number.kLatticeGradArcMapB: ints(lattice.cells),
            Number.kLatticeGradFrameArcs: ints(lattice.frame_arcs),
            Number.kLatticeGradRowBegins: ints(lattice.row_begins),
            Number.kLatticeGradAToBMap: ints(lattice.a_to_b),
            Number.kLatticeGradGrad: _sums(num_rows * COLUMNS, lattice.cells, arc_grad),
            Number.kLatticeGradParams: params,
        }
        yield Case(name, "dense_grad", groups, 2 * LANES, buffers)
        groups = -(-num_arcs // LANES)
        buffers = {
            Number.kLatticeGradArcGrad: Buffer(arc_grad),
            Number.kLatticeGradArcMapA: ints(lattice.map_a),
            Number.kLatticeGradFrameArcs: ints(lattice.frame_arcs),
            Number.kLatticeGradStateBegins: ints(lattice.state_begins),
            Number.kLatticeGradLeavingBegins: ints(lattice.leaving_begins),
            Number.kLatticeGradGrad: _sums(num_arcs, lattice.map_a, arc_grad),
            Number.kLatticeGradParams: params,
        }
        yield Case(name, "graph_grad", groups, LANES, buffers)


def _sums(size, indexes, terms):
    expected = np.zeros(size, np.float32)
    np.add.at(expected, indexes, terms)
    return Buffer.output(expected)

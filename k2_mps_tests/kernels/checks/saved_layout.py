"""A case of the kernel layout_of_saved of saved_layout.metal, in the folder of this file.

It calls LayoutOfSaved() of pruned_stream.h, whose `size` only the host reads otherwise.
"""

import numpy as np

from k2_mps_tests.kernels.case import Buffer, Case, ints
from k2_mps_tests.kernels.sources import enumerators


def cases():
    states, arcs, columns = 5, 7, 3
    history = enumerators("pruned_stream.h")["kPrHistory"] * columns
    # Each state has four numbers of `active`, num_kept, and its number.  Each arc has its next
    # state.
    layout = Buffer.output(np.cumsum([4 * states, states, states, arcs, history]), dtype=np.int64)
    buffers = {0: ints([states, arcs, columns]), 1: layout}
    yield Case("a stream", "layout_of_saved", 1, 1, buffers)

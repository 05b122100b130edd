"""Cases of the kernel may_cut_best_path of best_path.metal, in the folder of this file.

In the cases of other files, there are so few frames that rounding matters little.
"""

import numpy as np

from k2_mps_tests.kernels.case import Buffer, Case, ints

INF, MOST = float("inf"), float(np.finfo(np.float32).max)
# With this number of frames, rounding can change a sum by half of the larger score.
MANY = 2**22 - 1
# The results of both passes, the number of frames, a beam, and whether this beam may cut the path.
BEAMS = [
    (-8, -8, MANY, 4, True),
    (-8, -8, MANY, 4.5, False),
    (-4, -8, MANY, 8, True),
    (-4, -8, MANY, 8.5, False),
    (-8, -4, MANY, 8, True),
    (-8, -4, MANY, 8.5, False),
    (4, -4, MANY, 10, True),
    (4, -4, MANY, 10.5, False),
    (-4, 8, MANY, 16, True),
    (-4, 8, MANY, 16.5, False),
    # One addition has an error, too.
    (-(2**24), -(2**24), 0, 2, True),
    (-(2**24), -(2**24), 0, 2.5, False),
    (-MOST, -MOST, 0, 1, True),
    # There is no path.
    (-INF, -8, MANY, 1, False),
    (-8, -INF, MANY, 1, False),
]


def cases():
    starts, ends, frames, beams, expected = zip(*BEAMS)
    buffers = {
        0: Buffer(np.array(starts, np.float32)),
        1: Buffer(np.array(ends, np.float32)),
        2: ints(frames),
        3: Buffer(np.array(beams, np.float32)),
        4: Buffer.output(np.array(expected, np.int32), dtype=np.int32),
    }
    yield Case("beams", "may_cut_best_path", 1, len(BEAMS), buffers)

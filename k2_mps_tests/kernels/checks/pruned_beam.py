"""Cases of the kernel next_beams of pruned_beam.metal, in the folder of this file.

The host computes beams in float64, and stores them in float32.  pruned_beam.h computes the same
bits with integers, because a GPU has no float64.  If a beam differs in one bit, mps and the CPU may
keep different arcs.
"""

import numpy as np

from k2_mps_tests.kernels.case import Buffer, Case

GROUPS, THREADS = 100, 256
SIZE = GROUPS * THREADS


def cases():
    random = np.random.default_rng(1)
    for size in (1e-20, 1.0, 20.0, 1e20):
        beams = size * random.uniform(0.1, 10, (2, SIZE))
        yield _case(f"beams of about {size}", *beams)
    yield _case("very different beams", 10 ** random.uniform(-25, 25, SIZE), np.full(SIZE, 20.0))
    yield _case("sums between two floats", *_between_floats(random))


def _between_floats(random):
    """Returns beams whose next beam is midway between two floats, but for errors of float64.

    The rounding to float64 then decides to which of the two floats the beam is rounded.
    """
    # In units of 2^-24: `beams` is even, and 4 * beams + usual is 5 times an odd number.
    beams = 2 * random.integers(2**23, 2**24, 100 * SIZE)
    usual = 5 * (random.integers(2**23, 2**24, beams.size) * 2 + 1) - 4 * beams
    are_floats = (usual >= 2**23) & (usual < 2**24)
    return beams[are_floats][:SIZE] / 2**24, usual[are_floats][:SIZE] / 2**24


def _case(name, beams, usual):
    beams, usual = beams.astype(np.float32), usual.astype(np.float32)
    smaller = 0.8 * beams.astype(np.float64)
    returning = smaller + 0.2 * usual.astype(np.float64)
    results = [Buffer.output(numbers.astype(np.float32)) for numbers in (smaller, returning)]
    buffers = dict(enumerate((Buffer(beams), Buffer(usual), *results)))
    return Case(name, "next_beams", GROUPS, THREADS, buffers)

"""Cases of the kernels of numbers.metal, in the folder of this file.

All results are integers, so they must be equal.
"""

import numpy as np

from k2_mps_tests.kernels.case import Buffer, Case, ints

WIDTH = 32  # kSimdWidth in simd_width.h


def cases():
    for threads in (32, 256, 1024):
        yield _simdgroups(threads)
        yield _atomics(threads)


def _output(values):
    return Buffer.output(values.astype(np.int32), dtype=np.int32)


def _simdgroups(threads, groups=3):
    every = np.arange(groups * threads)
    thread_of_group = every % threads
    sums = every.reshape(-1, WIDTH).sum(1).repeat(WIDTH)
    results = (every % WIDTH, thread_of_group // WIDTH, np.full_like(every, WIDTH), sums)
    buffers = dict(enumerate(map(_output, results)))
    return Case(f"{threads} threads", "simdgroups", groups, threads, buffers)


def _atomics(threads, groups=40):
    random = np.random.default_rng(threads)
    values = random.integers(-(2**31), 2**31, groups * threads)
    before = np.array([2**31 - 1, -(2**31), 0, 0], np.int32)
    bits = np.bitwise_or.reduce(values)
    after = np.array([values.min(), values.max(), len(values), bits], np.int32)
    buffers = {0: ints(values), 1: Buffer(before, after), 2: _output(np.full(groups, threads))}
    return Case(f"{threads} threads", "atomics", groups, threads, buffers)

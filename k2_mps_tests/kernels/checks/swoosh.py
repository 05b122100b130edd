"""Cases of the swoosh kernels: values, derivatives (in floats or in bytes), and gradients.

In k2's tables, the zeros of the functions are nodes.  In the cases' tables, no zero is a node.  The
reference computes the functions by definition.  It computes Philox with Python's integers.

Tolerances: a value near a node is a sum.  One term is a number rounded to float32, and all other
terms are small.  So the error of a value is at most 2 units in the last place.
k2_mps_tests/parity/test_swoosh.py tests this for k2's tables.  Near a zero, the terms cancel.  So
the tolerance also includes the roundings of the terms.
"""

import math

import numpy as np

from k2_mps_tests.kernels.case import UNTOUCHED, Buffer, Case, record
from k2_mps_tests.kernels.sources import enumeration, enumerators, layout

Number = enumeration("swoosh.h", "SwooshBuffer")
PARAMS = layout("swoosh.h", "SwooshParams")
GRAD_PARAMS = layout("swoosh.h", "SwooshGradParams")
TAIL = layout("swoosh.h", "SwooshTail")
TABLE = layout("swoosh.h", "SwooshTable")
GRID = layout("swoosh.h", "SwooshGrid")
CELL = layout("swoosh.h", "SwooshCell")
CELLS = enumerators("swoosh.h")["kSwooshCells"]
OF_CHUNK = enumerators("swoosh.h")["kSwooshOfChunk"]
CHUNKS = enumerators("swoosh.h")["kSwooshChunks"]
DROPOUT_BITS = enumerators("swoosh.h")["kSwooshDropoutBits"]
THREADS = 32
COEFF = 0.08
STEP = 1.005 / 255
SHIFT, OFFSET = 1.0, 0.313261687
# The distance between two nodes.
NODE_DISTANCE = 0.4375
NODES_BEFORE_SHIFT = 18

TYPES = {"": np.float32, "_half": np.float16, "_bfloat": np.uint16}
# Sizes near the numbers of elements that a thread loads at once, that a threadgroup loads at once,
# and that a threadgroup computes in all.
OF_GROUP = THREADS * CHUNKS * OF_CHUNK
SIZES = (1, 3, 4, 5, THREADS * OF_CHUNK + 6, OF_GROUP, OF_GROUP + 6)
SEED = (0x1234ABCD, 0x0F0E0D0C)


def cases():
    yield _not_a_number()
    for suffix in TYPES:
        for size in SIZES:
            for is_aligned in (0, 1):
                name = f"{size} elements, {'' if is_aligned else 'not '}aligned"
                yield _values(name, suffix, size, is_aligned, False)
                yield _values(name, suffix, size, is_aligned, True)
                yield _backward(name, suffix, size, is_aligned)
                for dropout_prob in (0.0, 0.4):
                    full = f"{name}, dropout {dropout_prob}"
                    yield _forward(full, suffix, size, is_aligned, dropout_prob)


def _sigmoid(x):
    return 1 / (1 + math.exp(SHIFT - x))


def _value(x):
    return math.log1p(math.exp(x - SHIFT)) - COEFF * x - OFFSET


def _sum(x):
    """Returns a number rounded to float32, and the remainder."""
    high = float(np.float32(x))
    return high, x - high


def _table():
    """Returns the buffer of a SwooshTable with NODES_BEFORE_SHIFT nodes below SHIFT."""
    grid = record(
        GRID,
        base=SHIFT,
        step=NODE_DISTANCE,
        before=NODES_BEFORE_SHIFT,
        cells_per_unit=1 / NODE_DISTANCE,
        first_cell=NODES_BEFORE_SHIFT - SHIFT / NODE_DISTANCE,
    )
    return Buffer.struct(TABLE, grid=grid, cells=np.concatenate([_cell(i) for i in range(CELLS)]))


def _cell(index):
    # The product and the sum have few bits, so both are exact in float32.
    node = (index - NODES_BEFORE_SHIFT) * NODE_DISTANCE + SHIFT
    value, value_low = _sum(_value(node))
    slope, slope_low = _sum(_sigmoid(node) - COEFF)
    return record(CELL, value=value, value_low=value_low, slope=slope, slope_low=slope_low)


def _tail(slope, intercept):
    (slope, slope_low), (intercept, intercept_low) = _sum(slope), _sum(intercept)
    return record(
        TAIL, slope=slope, slope_low=slope_low, intercept=intercept, intercept_low=intercept_low
    )


def _limit(dropout_prob):
    return round(dropout_prob * 2**DROPOUT_BITS)


def _params(size, is_aligned, dropout_prob=0.0):
    return Buffer.struct(
        PARAMS,
        size=size,
        is_aligned=is_aligned,
        shift=SHIFT,
        left=_tail(-COEFF, -OFFSET),
        right=_tail(1 - COEFF, -SHIFT - OFFSET),
        seed=SEED,
        dropout_limit=_limit(dropout_prob),
        kept_scale=1 / (1 - dropout_prob),
    )


def _grad_params(size, is_aligned):
    return Buffer.struct(GRAD_PARAMS, size=size, is_aligned=is_aligned, scale=STEP, offset=COEFF)


def _inputs(size, suffix, seed=0):
    """Returns an array of the kernel's type, and the same numbers in float64."""
    values = np.random.default_rng([seed, size]).normal(0, 8, size).astype(np.float32)
    if suffix == "_bfloat":
        bits = (values.view(np.uint32) >> 16).astype(np.uint16)
        return bits, (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    values = values.astype(TYPES[suffix])
    return values, values.astype(np.float64)


def _tolerance(expected):
    # Two units in the last place.  2e-8 is for the roundings of the terms that cancel near a zero.
    return 2 * np.spacing(np.abs(expected).astype(np.float32)) + 2e-8


def _groups(size):
    return -(-size // OF_GROUP)


def _values(name, suffix, size, is_aligned, with_deriv):
    content, x = _inputs(size, suffix)
    y = np.array([_value(at) for at in x])
    buffers = {
        Number.kSwooshX: Buffer(content),
        Number.kSwooshY: Buffer.output(y.astype(np.float32), _tolerance(y)),
        Number.kSwooshParams: _params(size, is_aligned),
        Number.kSwooshTable: _table(),
    }
    kernel = "swoosh"
    if with_deriv:
        kernel = "swoosh_and_deriv"
        deriv = np.array([_sigmoid(at) - COEFF for at in x])
        buffers[Number.kSwooshDeriv] = Buffer.output(deriv.astype(np.float32), _tolerance(deriv))
        buffers[Number.kSwooshDerivTable] = _table()
    return Case(name, kernel + suffix, _groups(size), THREADS, buffers)


def _philox(counter, key):
    """Returns the four random words that Philox4x32-7 gives for a counter and a key."""
    word = 0xFFFFFFFF
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(7):
        from_0, from_2 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            (from_2 >> 32) ^ c1 ^ k0,
            from_2 & word,
            (from_0 >> 32) ^ c3 ^ k1,
            from_0 & word,
        )
        k0, k1 = (k0 + 0x9E3779B9) & word, (k1 + 0xBB67AE85) & word
    return c0, c1, c2, c3


def _random_bits(size):
    """Returns the 32 random bits of each element."""
    numbers = []
    for chunk in range(-(-size // OF_CHUNK)):
        numbers += _philox((chunk, 0, 0, 0), SEED)
    return np.array(numbers[:size], np.int64)


def _forward(name, suffix, size, is_aligned, dropout_prob):
    content, x = _inputs(size, suffix)
    y = np.array([_value(at) for at in x])
    steps = np.array([_sigmoid(at) for at in x]) / STEP
    bits = _random_bits(size)
    tolerance = _tolerance(y)
    if dropout_prob:
        dropped = (bits & (2**DROPOUT_BITS - 1)) < _limit(dropout_prob)
        y = np.where(dropped, 0, y / (1 - dropout_prob))
        tolerance = 2 * _tolerance(y)
        steps = np.where(dropped, COEFF / STEP, steps)
    with_rounding = steps + ((bits >> DROPOUT_BITS) + 0.5) / 2 ** (32 - DROPOUT_BITS)
    g = np.floor(with_rounding)
    # A kernel's derivative differs from the reference by up to 1e-5.  So if the reference's sum is
    # within 1e-5 / STEP of an integer, the kernel's sum may be on the other side of the integer.
    is_near = np.abs(with_rounding - np.round(with_rounding)) < 1e-5 / STEP
    zeros = np.zeros(size, np.uint8)
    buffers = {
        Number.kSwooshX: Buffer(content),
        Number.kSwooshY: Buffer.output(y.astype(np.float32), tolerance),
        Number.kSwooshG: Buffer(zeros, g.astype(np.uint8), is_near.astype(float)),
        Number.kSwooshParams: _params(size, is_aligned, dropout_prob),
        Number.kSwooshTable: _table(),
    }
    return Case(name, "swoosh_forward" + suffix, _groups(size), THREADS, buffers)


def _not_a_number():
    """The byte of the derivative is 0, because a byte cannot be NaN."""
    nan = np.full(1, np.nan, np.float32)
    buffers = {
        Number.kSwooshX: Buffer(nan),
        Number.kSwooshY: Buffer.output(nan),
        Number.kSwooshG: Buffer.output(np.zeros(1), dtype=np.uint8),
        Number.kSwooshParams: _params(1, 1),
        Number.kSwooshTable: _table(),
    }
    return Case("NaN", "swoosh_forward", 1, THREADS, buffers)


def _backward(name, suffix, size, is_aligned):
    random = np.random.default_rng(size)
    y_grad = random.normal(0, 1, size).astype(np.float32)
    g = random.integers(0, 255, size, dtype=np.uint8)
    expected = y_grad.astype(np.float64) * (g * STEP - COEFF)
    # The kernel rounds three times to float32, and then to the type of x.
    eps = {"": 2.0**-23, "_half": 2.0**-10, "_bfloat": 2.0**-7}[suffix]
    tolerance = np.abs(expected) * eps + np.abs(y_grad) * 4 * 2.0**-24 + 1e-7
    begin = (
        np.full(size, UNTOUCHED, TYPES[suffix])
        if suffix != "_bfloat"
        else np.zeros(size, np.uint16)
    )
    return Case(
        name,
        "swoosh_backward" + suffix,
        _groups(size),
        THREADS,
        {
            Number.kSwooshYGrad: Buffer(y_grad),
            Number.kSwooshG: Buffer(g),
            Number.kSwooshXGrad: Buffer(begin, expected.astype(np.float32), tolerance),
            Number.kSwooshParams: _grad_params(size, is_aligned),
        },
    )

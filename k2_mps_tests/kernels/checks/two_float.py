"""Cases of the kernels two_float and path_sums of two_float.metal, in the folder of this file.

The reference computes in long double, whose significand has 64 bits, 16 more than a pair of floats.

Tolerances: two_float.h states the relative errors.  Another 2^-49 is for rounding the reference to
pairs.  The kernel rounds a score to float32, with an error of half a unit in the last place.
Before this rounding, the kernel adds pairs, with an error of 2^-44 of the largest number in the
sum.
"""

import itertools

import numpy as np

from k2_mps_tests.kernels.case import Buffer, Case, ints

LD = np.longdouble
SIZE = 100000
SUMS = 5000
# {operation: relative error}, in the order of the enumeration TwoFloatOperation.
BOUNDS = {
    "two_sum": 0,
    "quick_two_sum": 0,
    "add": 3 * 2.0**-48,
    "add_float": 2.0**-47,
    "add_same_sign": 3 * 2.0**-48,
    "mul": 2.0**-46,
    "div": 2.0**-45,
    "exp": 2.0**-46,
    "float_exp": 2.0**-23,
    "log": 2.0**-44,
    # The exponent of a large score is rounded to a float.
    "score": 2.0**-23,
}
# {operation: relative error}, for the operations that follow in the enumeration.  The significand
# of a result is a product of four factors.
POSTERIORS = {"posterior": 2.0**-23, "ctc_posterior": 2.0**-43, "float_posterior": 2.0**-20}
# Sizes of scores.  path_sums.h states that exponents are exact up to the last of these sizes.
LARGEST = {
    "posterior": (3.7e8, 1e10, 1e12, 1e13),
    "ctc_posterior": (1e8, 3.7e8),
    "float_posterior": (1e8, 3.7e8),
}
PAIR = 2.0**-49
INF, NAN = np.inf, np.nan
SPECIAL = (-INF, INF, NAN, -3.0, 2.0)


def cases():
    random = np.random.default_rng(1)
    for number, operation in enumerate(BOUNDS):
        yield _operation(number, operation, random)
    for number, operation in enumerate(POSTERIORS, len(BOUNDS)):
        for size in (1e2, 3e5, 1e6, 3e6, 2e7, *LARGEST[operation]):
            yield _posteriors(number, operation, size, random)
    for arcs in (1, 2, 3, 40, 2000):
        for size in (1e-6, 1.0, 1e5, 1e10, 1e30):
            yield _sums(random, arcs, size)
    yield from _special_sums()


def _in_order(*buffers):
    """Returns the arguments of a kernel of two_float.metal: buffer 0, buffer 1 and so on.

    No header has an enumeration of these buffers, because k2 does not launch these kernels.
    """
    return dict(enumerate(buffers))


def _pairs(numbers):
    """Returns long doubles as pairs of floats, [..., 2].  The sum of a pair is the number."""
    high = numbers.astype(np.float32)
    # The low part of an infinite number is 0.
    with np.errstate(invalid="ignore"):
        low = np.where(np.isfinite(high), numbers - high, 0)
    low = low.astype(np.float32)
    return np.stack([high, low], -1)


def _numbers(pairs):
    return pairs[..., 0].astype(LD) + pairs[..., 1].astype(LD)


def _any(random, low, high, size=SIZE):
    """Returns random long doubles of both signs, with magnitudes from 10^low to 10^high."""
    return 10 ** random.uniform(low, high, size).astype(LD) * random.choice([-1, 1], size)


def _arguments(name, random):
    """Returns random arguments of an operation, as pairs of floats."""
    a, b = _any(random, -3, 5), _any(random, -3, 5)
    # In the first quarter of the sums a + b, most or all bits cancel.
    near = SIZE // 4
    b[:near] = -a[:near] * (1 + random.normal(0, 1e-7, near))
    b[:10] = -a[:10]
    if name == "quick_two_sum":
        a, b = np.where(abs(a) < abs(b), b, a), np.where(abs(a) < abs(b), a, b)
    elif name == "add_same_sign":
        a, b = abs(a), abs(b)
    elif name in ("exp", "float_exp"):
        a = random.uniform(-60, 60, SIZE).astype(LD)
        a[:near] = _any(random, -30, 0, near)
        # exp() of these numbers is halfway between two powers of 2^(1 / 16).  The terms of the
        # series are largest at these numbers.
        a[near : 2 * near] = (
            (random.integers(-1300, 1300, near) + 0.5)
            * (np.log(LD(2)) / 16)
            * (1 + random.normal(0, 1e-7, near))
        )
    elif name == "log":
        a = abs(_any(random, -30, 30))
        a[:near] = 1 + _any(random, -12, -1, near)
        # Log() scales its argument by a power of 2.  Near 2^(n + 1/2), this power changes.
        a[near : 2 * near] = 2.0 ** (random.integers(-60, 60, near) + 0.5) * (
            1 + random.normal(0, 1e-7, near)
        )
        a[:2] = 1, 2
    elif name == "score":
        a = _any(random, 0, 37)
    a, b = _pairs(a), _pairs(b)
    if name in ("two_sum", "quick_two_sum"):
        a[:, 1] = b[:, 1] = 0
    elif name == "add_float":
        b[:, 1] = 0
    elif name in ("exp", "float_exp", "score"):
        a[:, 1] = 0
    return a, b


def _operation(number, name, random):
    """Returns a case of an operation.

    Args:
      number: the operation's number in the kernel.
    """
    a, b = _arguments(name, random)
    x, y = _numbers(a), _numbers(b)
    expected = {
        "mul": lambda: x * y,
        "div": lambda: x / y,
        "exp": lambda: np.exp(x),
        "float_exp": lambda: np.exp(x),
        "log": lambda: np.log(x),
        "score": lambda: x,
    }.get(name, lambda: x + y)()
    allowed = abs(expected) * (BOUNDS[name] + PAIR if BOUNDS[name] else 0)
    if name == "exp":
        # The kernel subtracts multiples of log(2) / 16, a constant that has two parts of 24 bits.
        allowed += abs(expected * x) * 2.0**-52
    buffers = _in_order(
        Buffer(a),
        Buffer(b),
        Buffer(_pairs(expected)),
        Buffer.scratch(np.zeros_like(a)),
        Buffer.output(np.zeros(SIZE), allowed.astype(float)),
        ints([SIZE, number]),
    )
    return Case(name, "two_float", -(-SIZE // 256), 256, buffers)


def _posteriors(number, name, size, random):
    """Returns a case of exp(a + b - c - d), for floats of about `size`.

    The sum a + b - c - d is between -60 and 60.
    """
    unit = np.spacing(np.float32(size + 60))
    a, b, c = random.uniform(-1, 1, (3, SIZE)) * size / 3 // unit * unit
    near = random.integers(-1, 2, SIZE) * (random.uniform(0, 60, SIZE) // unit * unit)
    d = a + b - c - near
    expected = np.exp(near.astype(LD))
    # For scores below 5e5, the kernel subtracts multiples of log(2) / 16; see _operation().
    allowed = POSTERIORS[name] + 4 * min(size, 5e5) * 2.0**-52
    return Case(
        f"{name}, scores to {size:.0e}",
        "two_float",
        -(-SIZE // 256),
        256,
        _in_order(
            Buffer(np.stack([a, b], -1).astype(np.float32)),
            Buffer(np.stack([c, d], -1).astype(np.float32)),
            Buffer(_pairs(expected)),
            Buffer.scratch(np.zeros((SIZE, 2), np.float32)),
            Buffer.output(np.zeros(SIZE), (expected * allowed).astype(float)),
            ints([SIZE, number]),
        ),
    )


def _states(scores, random):
    """Returns (PathSums, scores): [..., 4] floats, and the exact scores of these PathSums.

    The exact scores are near the argument `scores`.
    """
    exponents = _pairs(np.rint(scores / np.log(LD(2))))
    significands = _pairs(2 ** random.uniform(0, 1, scores.shape).astype(LD))
    states = np.concatenate([exponents, significands], -1)
    return states, _numbers(exponents) * np.log(LD(2)) + np.log(_numbers(significands))


def _sums(random, arcs, size):
    shape = (SUMS * 3 // (arcs + 2), arcs)
    r = -size * random.uniform(0, 1, shape).astype(LD)
    # In every second sum, the scores are close to each other, so that all of them matter.
    r[1::2] = r[1::2, :1] - random.exponential(5, r[1::2].shape)
    states, scores = _states(r, random)
    arc_scores = (size * random.normal(0, 1, shape)).astype(np.float32)
    arc_scores[1::2] = random.normal(0, 3, arc_scores[1::2].shape)
    terms = scores + arc_scores
    largest = terms.max(1)
    expected = largest + np.log(np.exp(terms - largest[:, None]).sum(1))
    largest = np.max([abs(each).max(1) for each in (terms, scores, arc_scores)], 0).astype(float)
    allowed = np.spacing(abs(expected).astype(np.float32)) / 2
    if size > 1e14:
        # The kernel rounds the exponents of the arc's score and of the sum to floats.
        log2 = np.log(2)
        allowed = allowed + log2 * np.spacing((largest / log2).astype(np.float32))
    return _sums_case(
        f"{arcs} arcs, scores to {size:.0e}",
        states,
        arc_scores,
        expected,
        allowed + 2.0**-44 * arcs**0.5 * largest,
    )


def _special_sums():
    """Yields cases of path_sums with infinities and NaN.

    The reference adds in the order of the arcs, by the rules of LogAdd in k2/csrc/utils.h.
    """
    terms = np.array(list(itertools.product(SPECIAL, repeat=3)))
    expected = np.full(len(terms), -INF)
    with np.errstate(invalid="ignore"):
        for arc in terms.T:
            larger = np.where(arc < expected, expected, arc)
            diff = -abs(arc - expected)
            expected = np.where(diff >= -36, larger + np.log1p(np.exp(diff)), larger)
    for name, r, arc_scores in (
        ("states", terms, np.zeros_like(terms)),
        ("arcs", np.zeros_like(terms), terms),
    ):
        yield _sums_case(
            "infinities and NaN of " + name,
            path_sums_of(r),
            arc_scores.astype(np.float32),
            expected,
            1e-6,
        )


def path_sums_of(scores):
    """Returns the PathSums of scores, [..., 4] floats."""
    scores = scores.astype(LD)
    finite = np.isfinite(scores)
    with np.errstate(invalid="ignore"):
        exponents = np.where(finite, np.floor(scores / np.log(LD(2))), scores)
        rest = np.where(finite, scores - exponents * np.log(LD(2)), 0)
    return np.concatenate([_pairs(exponents), _pairs(np.exp(rest))], -1)


def _sums_case(name, states, arc_scores, expected, allowed):
    count = len(expected)
    buffers = _in_order(
        Buffer(states.astype(np.float32)),
        Buffer(arc_scores),
        Buffer.output(expected.astype(float), allowed),
        ints(arc_scores.shape),
    )
    return Case(name, "path_sums", -(-count // 64), 64, buffers)

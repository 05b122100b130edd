"""Tests the functions of integers in Metal's standard library."""

import re

import numpy as np
import pytest
from metal import TYPES

RANDOM = np.random.default_rng(1)

INTEGERS = [name for name in TYPES if name not in ("float", "half", "bool")]


def integer_cases(bits, signed):
    """Returns {expression of x and y: reference function for Python's integers}.

    Args:
      bits, signed: the type of x and y.
    """
    highest = (1 << bits - 1) - 1 if signed else (1 << bits) - 1
    mask = (1 << bits) - 1

    def wrap(value):
        value &= mask
        return value - (mask + 1) if signed and value > highest else value

    def leading(x):
        return bits - (x & mask).bit_length()

    def trailing(x):
        return bits if x == 0 else ((x & -x) & mask).bit_length() - 1

    return {
        "max(x, y)": max,
        "min(x, y)": min,
        "clamp(x, T(2), T(9))": lambda x, y: max(2, min(9, x)),
        "abs(x)": lambda x, y: wrap(abs(x)),
        "clz(x)": lambda x, y: leading(x),
        "ctz(x)": lambda x, y: trailing(x),
        "popcount(x)": lambda x, y: bin(x & mask).count("1"),
    }


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(metal, name):
    dtype = TYPES[name]
    info = np.iinfo(dtype)
    edges = [info.min, info.max, 0, 1, 2, 3, info.max - 1]
    if info.min < 0:
        edges += [-1, -2, info.min + 1]
    values = edges + RANDOM.integers(info.min, info.max, 40, dtype, endpoint=True).tolist()
    pairs = [(x, y) for x in values for y in values]
    x = np.array([p[0] for p in pairs], dtype)
    y = np.array([p[1] for p in pairs], dtype)
    cases = integer_cases(info.bits, info.min < 0)
    # One kernel evaluates all expressions, each for scalars and for vectors of two components.
    stores = ""
    for number, expression in enumerate(cases):
        pair = re.sub(
            r"\b(x|y)\b|\bT\(",
            lambda m: {"x": "V(x, y)", "y": "V(y, x)", "T(": "V("}[m.group()],
            expression,
        )
        at = f"{len(cases) * 2} * i + {2 * number}"
        stores += f"  out[{at}] = {expression};\n  out[{at} + 1] = ({pair}).x;\n"
    source = (
        f"using T = {name}; using V = vec<T, 2>;\n"
        + "kernel void k(device T *out, device const T *px,\n"
        + "              device const T *py,\n"
        + "              uint i [[thread_position_in_grid]]) {\n"
        + "  T x = px[i], y = py[i];\n"
        + stores
        + "}\n"
    )
    out = np.zeros((len(pairs), len(cases), 2), dtype)
    metal.run(source, "k", [out, x, y], len(pairs), 64)
    for number, (expression, reference) in enumerate(cases.items()):
        expected = np.array([reference(*pair) for pair in pairs], object)
        for form in (0, 1):
            wrong = [
                (pair, found, wanted)
                for pair, found, wanted in zip(pairs, out[:, number, form].tolist(), expected)
                if found != wanted
            ]
            assert not wrong, (expression, form, wrong[:5])

"""Tests the functions of floats, halves and bfloats in Metal's standard library."""

import functools
import math

import bfloat
import numpy as np
import pytest
from metal import TYPES, floats

NAMES = {np.dtype(dtype): name for name, dtype in TYPES.items()}


@functools.lru_cache
def _compiled(metal, expressions, element, count, result):
    """Returns a library in which kernel k0 evaluates the first expression, k1 the second, ..."""
    parameters = "".join(f"device const {element} *p{i}, " for i in range(count))
    loads = "".join(f"{element} {'xyz'[i]} = p{i}[i]; " for i in range(count))
    return metal.compile(
        "".join(
            f"kernel void k{number}({parameters}device {result} *out,"
            f" uint i [[thread_position_in_grid]]) {{ {loads} out[i] = {expression}; }}\n"
            for number, expression in enumerate(expressions)
        )
    )


def map_values(metal, expression, inputs, result, together=()):
    """Evaluates an expression for all elements of its inputs; returns an array.

    Args:
      inputs: arrays of one dtype and length, with the values of x, y and z.
      result: the NumPy dtype of the result.
      together: all expressions to compile into one library, including this one.  Calls with the
        same `together` compile only once.
    """
    expressions = tuple(together) or (expression,)
    columns = [np.ascontiguousarray(column) for column in inputs]
    element, kind = NAMES[columns[0].dtype], NAMES[np.dtype(result)]
    library = _compiled(metal, expressions, element, len(columns), kind)
    out = np.zeros(len(columns[0]), result)
    library.run(f"k{expressions.index(expression)}", [*columns, out], len(out), 32)
    return out


RANDOM = np.random.default_rng(1)
ANY = np.concatenate(
    [RANDOM.normal(size=200) * 3, [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-30, 1e10, -1e10]]
).astype(np.float32)
UNIT = RANDOM.uniform(-1, 1, 200).astype(np.float32)
POSITIVE = np.exp(RANDOM.normal(size=200) * 4).astype(np.float32)

# {name: (reference function for double, argument)}.  The tolerance is two units in the last place,
# because the error of glibc's functions for float is at most one unit.
UNARY = {
    "ceil": (np.ceil, ANY),
    "floor": (np.floor, ANY),
    "rint": (np.rint, ANY),
    "trunc": (np.trunc, ANY),
    "fabs": (np.abs, ANY),
    "abs": (np.abs, ANY),
    "round": (lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5), ANY),
    "fract": (lambda x: np.minimum(x - np.floor(x), 1 - 2.0**-24), ANY),
    "sign": (np.sign, ANY),
    "acos": (np.arccos, UNIT),
    "asin": (np.arcsin, UNIT),
    "atan": (np.arctan, ANY),
    "acosh": (np.arccosh, 1 + POSITIVE),
    "asinh": (np.arcsinh, ANY),
    "atanh": (np.arctanh, UNIT),
    "cos": (np.cos, ANY[:200]),
    "sin": (np.sin, ANY[:200]),
    "tan": (np.tan, ANY[:200]),
    "cosh": (np.cosh, ANY[:200]),
    "sinh": (np.sinh, ANY[:200]),
    "tanh": (np.tanh, ANY),
    "exp": (np.exp, ANY[:200]),
    "exp2": (np.exp2, ANY[:200]),
    "exp10": (lambda x: 10.0**x, ANY[:200]),
    "log": (np.log, POSITIVE),
    "log2": (np.log2, POSITIVE),
    "log10": (np.log10, POSITIVE),
    "sqrt": (np.sqrt, POSITIVE),
    "rsqrt": (lambda x: 1 / np.sqrt(x), POSITIVE),
}

X, Y, Z = ANY[:200], ANY[:200][::-1], np.roll(ANY[:200], 7)
# {expression: (reference function for double, arguments)}.  Namespaces precise and fast lack
# sign().
FUNCTIONS = {
    **{
        f"{space}{name}(x)": (reference, x)
        for space in ("", "precise::", "fast::")
        for name, (reference, x) in UNARY.items()
        if not space or name != "sign"
    },
    "atan2(x, y)": (np.arctan2, X, Y),
    "copysign(x, y)": (np.copysign, X, Y),
    "fast::divide(x, y)": (np.divide, X, Y),
    "precise::divide(x, y)": (np.divide, X, Y),
    "fmax(x, y)": (np.fmax, X, Y),
    "fmin(x, y)": (np.fmin, X, Y),
    "max(x, y)": (np.fmax, X, Y),
    "min(x, y)": (np.fmin, X, Y),
    "fmod(x, y)": (np.fmod, X, Y),
    "pow(abs(x), y)": (lambda x, y: np.abs(x) ** y, X, Y),
    "step(x, y)": (lambda x, y: (y >= x).astype(float), X, Y),
    "clamp(x, min(y, z), max(y, z))": (
        lambda x, y, z: np.clip(x, np.minimum(y, z), np.maximum(y, z)),
        *(X, Y, Z),
    ),
    "fma(x, y, z)": (lambda x, y, z: x * y + z, X, Y, Z),
    "powr(abs(x), y)": (lambda x, y: np.abs(x) ** y, X, Y),
    "saturate(x)": (lambda x: np.clip(x, 0, 1), X),
    "mix(x, y, 0.25f)": (lambda x, y: 0.75 * x + 0.25 * y, X, Y),
    "max3(x, y, z)": (lambda x, y, z: np.max([x, y, z], axis=0), X, Y, Z),
    "min3(x, y, z)": (lambda x, y, z: np.min([x, y, z], axis=0), X, Y, Z),
    "median3(x, y, z)": (lambda x, y, z: np.median([x, y, z], axis=0), X, Y, Z),
    "fmax3(x, y, z)": (lambda x, y, z: np.max([x, y, z], axis=0), X, Y, Z),
    "fmin3(x, y, z)": (lambda x, y, z: np.min([x, y, z], axis=0), X, Y, Z),
    "fmedian3(x, y, z)": (lambda x, y, z: np.median([x, y, z], axis=0), X, Y, Z),
}
# If the two terms of a sum almost cancel, the error is relative to the terms, not to the sum.
TOLERANCES = dict.fromkeys(["fma(x, y, z)", "mix(x, y, 0.25f)"], dict(rtol=1e-6, atol=1e-6))


@pytest.mark.parametrize("call", FUNCTIONS)
def test_functions(metal, call):
    reference, *inputs = FUNCTIONS[call]
    alike = [c for c, (_, *other) in FUNCTIONS.items() if len(other) == len(inputs)]
    found = map_values(metal, call, inputs, np.float32, alike)
    expected = reference(*(values.astype(np.float64) for values in inputs))
    tolerance = dict(rtol=2 * 2.0**-23, atol=1e-30 if len(inputs) == 1 else 0)
    np.testing.assert_allclose(found, expected, **TOLERANCES.get(call, tolerance))


def test_the_fraction_of_a_tiny_negative_number_is_below_1(evaluate):
    """x - floor(x) is rounded to 1."""
    assert evaluate(["fract(x.x)", "fract(x.y)"], x=(-1e-30, -0.25, 0, 0)) == [1 - 2.0**-24, 0.75]


def test_pi_functions(metal):
    """The results are exact for multiples of a quarter turn."""
    x = np.arange(-16, 17).astype(np.float32) / 4
    quarter = [0, math.sqrt(0.5), 1, math.sqrt(0.5)]
    calls = {"sinpi(x)": 0, "cospi(x)": 2, "tanpi(x)": None}
    tangents = map_values(metal, "tanpi(x)", [x], np.float32, calls)
    np.testing.assert_allclose(tangents[1::4], 1, rtol=2 * 2.0**-23)
    assert not tangents[::4].any() and (abs(tangents[2::4]) > 1e6).all()
    calls.pop("tanpi(x)")
    for call, ahead in calls.items():
        expected = [quarter[int(n + ahead) % 4] * (-1) ** (int(n + ahead) // 4) for n in x * 4]
        found = map_values(metal, call, [x], np.float32, calls)
        np.testing.assert_allclose(found, expected, rtol=0, atol=6e-8)


def test_the_next_number(metal):
    found = map_values(metal, "nextafter(x, y)", [X, Y], np.float32)
    np.testing.assert_array_equal(found, np.nextafter(X, Y))


def test_the_minimum_of_a_number_and_nan_is_the_number(metal):
    x = floats(np.nan, 1, np.nan, 2)
    y = floats(3, np.nan, np.nan, 1)
    calls = {"fmax(x, y)": 2, "max(x, y)": 2, "fmin(x, y)": 1, "min(x, y)": 1}
    for call, last in calls.items():
        found = map_values(metal, call, [x, y], np.float32, calls)
        np.testing.assert_array_equal(found, [3, 1, np.nan, last])


CLASSES = floats(0, -0.0, 1, np.inf, -np.inf, np.nan, 1e-40, -2)
# {function: its results for CLASSES}.
CLASSIFICATIONS = {
    "isnan": [0, 0, 0, 0, 0, 1, 0, 0],
    "isinf": [0, 0, 0, 1, 1, 0, 0, 0],
    "isfinite": [1, 1, 1, 0, 0, 0, 1, 1],
    "signbit": [0, 1, 0, 0, 1, 0, 0, 1],
}


def test_classification(metal):
    small = CLASSES.astype(np.float16)
    small[6] = 1e-6  # subnormal in half precision too
    for values in (CLASSES, small):
        vector = f"(vec<{NAMES[values.dtype]}, 2>(x, 1)).x"
        calls = {c + form: c for c in CLASSIFICATIONS for form in ("(x)", vector)}
        for call, name in calls.items():
            found = map_values(metal, call, [values], np.bool_, calls)
            assert found.tolist() == [bool(e) for e in CLASSIFICATIONS[name]], call


def test_half_precision(metal):
    """Functions for half compute in float, and round the result to half once."""
    x = np.linspace(0.01, 8, 300).astype(np.float16)
    calls = {
        "exp(x)": np.exp,
        "log(x)": np.log,
        "sqrt(x)": np.sqrt,
        "tanh(x)": np.tanh,
        "sin(x)": np.sin,
    }
    for call, reference in calls.items():
        found = map_values(metal, call, [x], np.float16, calls)
        expected = reference(x.astype(np.float64)).astype(np.float16)
        np.testing.assert_array_max_ulp(found, expected, 1)
    y = x[::-1].copy()
    found = map_values(metal, "x * y + x", [x, y], np.float16)
    expected = x.astype(np.float32) * y + x
    np.testing.assert_allclose(found, expected, rtol=2.0**-9)


def test_precise_and_fast_functions_of_a_half_return_a_float(metal):
    """Namespaces precise and fast have no function for half, so the half becomes a float."""
    source = """
kernel void k(device const half *x, device float *out, device uint *sizes,
              uint i [[thread_position_in_grid]]) {
  out[i] = 1 / (1 + precise::exp(x[i])) + fast::max(x[i], half(1));
  sizes[0] = sizeof(precise::exp(x[i]));
  sizes[1] = sizeof(exp(x[i]));
  sizes[2] = sizeof(fast::exp(x[i]));
  sizes[3] = sizeof(precise::exp(bfloat(x[i])));
}
"""
    x = RANDOM.normal(size=64).astype(np.float16)
    out, sizes = np.zeros(64, np.float32), np.zeros(4, np.uint32)
    metal.run(source, "k", [x, out, sizes], 64, 32)
    assert sizes.tolist() == [4, 2, 4, 4]
    wide = x.astype(np.float64)
    expected = 1 / (1 + np.exp(wide)) + np.maximum(wide, 1)
    # Two units in the last place of the largest term; a half would be off by 2^-11.
    np.testing.assert_allclose(out, expected, rtol=2 * 2.0**-23)


def test_precise_functions_take_no_vector_of_halves(metal):
    source = "kernel void k(device half2 *x) { x[0] = half2(precise::exp(x[0])); }"
    assert "no matching function" in metal.refusal(source)


def test_conversions_between_precisions(metal):
    """Converts all halves to float, and random and special floats to half."""
    bits = np.arange(65536, dtype=np.uint16)
    halves = bits.view(np.float16)
    found = map_values(metal, "x", [halves], np.float32)
    np.testing.assert_array_equal(found, halves.astype(np.float32))
    x = RANDOM.normal(size=5000).astype(np.float32)
    x *= np.exp2(RANDOM.uniform(-30, 18, 5000)).astype(np.float32)
    x = np.concatenate([x, floats(65519.9, 65520, 2.0**-25, 2.98e-8, np.nan)])
    found = map_values(metal, "half(x)", [x], np.float16)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, x.astype(np.float16))


def test_brain_floats(metal):
    """A conversion to bfloat keeps the upper 16 bits of a float, rounded to nearest even."""
    x = RANDOM.normal(size=1000).astype(np.float32)
    expected = bfloat.from_floats(x)
    found = map_values(metal, "as_type<ushort>(bfloat(x))", [x], np.uint16)
    np.testing.assert_array_equal(found, expected)
    found = map_values(metal, "float(as_type<bfloat>(x)) * 2.0f", [expected], np.float32)
    np.testing.assert_array_equal(found, bfloat.to_floats(expected) * 2)


def _rounded_to_bfloat(x):
    return bfloat.to_floats(bfloat.from_floats(x))


def test_brain_floats_round_after_each_operation(metal):
    bits = bfloat.from_floats(RANDOM.uniform(0, 1, 4096))
    x = bfloat.to_floats(bits)
    call = "as_type<ushort>(bfloat(bfloat(1) / (bfloat(1) + as_type<bfloat>(x))))"
    found = map_values(metal, call, [bits], np.uint16)
    each = _rounded_to_bfloat(1 / _rounded_to_bfloat(1 + x))
    once = _rounded_to_bfloat(1 / (1 + x))
    assert (each != once).sum() > 500  # the inputs tell the two ways apart
    np.testing.assert_array_equal(bfloat.to_floats(found), each)


def test_several_results(metal):
    source = """
kernel void k(device const float *x [[buffer(0)]],
              device float4 *out [[buffer(1)]],
              uint i [[thread_position_in_grid]]) {
  int e;
  float c;
  float m = frexp(x[i], e);
  out[2 * i] = float4(m, e, ldexp(m, e), 0);
  float s = sincos(x[i], c);
  out[2 * i + 1] = float4(s, c, 0, 0);
}
"""
    x = floats(3.75, -0.3, 100, -7)
    out = np.zeros((4, 2, 4), np.float32)
    metal.run(source, "k", [x, out], 4, 4)
    mantissa, exponent = np.frexp(x)
    np.testing.assert_array_equal(out[:, 0, 0], mantissa)
    np.testing.assert_array_equal(out[:, 0, 1], exponent)
    np.testing.assert_array_equal(out[:, 0, 2], x)
    np.testing.assert_allclose(out[:, 1, 0], np.sin(x), rtol=2e-6)
    np.testing.assert_allclose(out[:, 1, 1], np.cos(x), rtol=2e-6)


def test_dot_products(evaluate):
    expressions = {
        "dot(x.xy, y.xy)": 4 - 10,
        "dot(x.xyz, y.xyz)": 4 - 10 + 18,
        "dot(x, y)": 4 - 10 + 18 - 28,
        "float(dot(half2(1, 2), half2(3, 4)))": 11,
    }
    found = evaluate(list(expressions), (1, 2, 3, 4), (4, -5, 6, -7))
    np.testing.assert_allclose(found, list(expressions.values()), rtol=1e-6)

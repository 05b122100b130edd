"""Tests the mathematical, integer and atomic functions of Metal's standard library."""

import functools
import math
import re

import numpy as np
import pytest
from metal import TYPES, floats, uint

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
    bits = x.view(np.uint32)
    expected = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    found = map_values(metal, "as_type<ushort>(bfloat(x))", [x], np.uint16)
    np.testing.assert_array_equal(found, expected)
    found = map_values(metal, "float(as_type<bfloat>(x)) * 2.0f", [expected], np.float32)
    wide = (expected.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(found, wide * 2)


def _rounded_to_bfloat(x):
    """Rounds floats to the nearest bfloat, ties to even; returns floats."""
    bits = x.astype(np.float32).view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) & np.uint32(0xFFFF0000)).view(np.float32)


def test_brain_floats_round_after_each_operation(metal):
    x = _rounded_to_bfloat(RANDOM.uniform(0, 1, 4096))
    bits = (x.view(np.uint32) >> 16).astype(np.uint16)
    call = "as_type<ushort>(bfloat(bfloat(1) / (bfloat(1) + as_type<bfloat>(x))))"
    found = map_values(metal, call, [bits], np.uint16)
    each = _rounded_to_bfloat(1 / _rounded_to_bfloat(1 + x))
    once = _rounded_to_bfloat(1 / (1 + x))
    assert (each != once).sum() > 500  # the inputs tell the two ways apart
    np.testing.assert_array_equal((found.astype(np.uint32) << 16).view(np.float32), each)


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


def test_constants(evaluate):
    names = {
        "M_PI_F": math.pi,
        "M_SQRT2_F": math.sqrt(2),
        "FLT_MAX": 3.4028234663852886e38,
        "FLT_EPSILON": 2.0**-23,
        "HUGE_VALF": math.inf,
        "-INFINITY": -math.inf,
        "NAN": math.nan,
        "float(INT_MAX)": 2.0**31,
        "numeric_limits<float>::max()": 3.4028234663852886e38,
        "numeric_limits<float>::lowest()": -3.4028234663852886e38,
        "numeric_limits<float>::infinity()": math.inf,
        "numeric_limits<half>::epsilon()": 2.0**-10,
        "numeric_limits<int>::min()": -(2.0**31),
        "numeric_limits<uchar>::max()": 255,
        "numeric_limits<ulong>::max()": 2.0**64,
        "1.5h + 2.25H": 3.75,
        "1e3": 1000,
        "0x1p4f": 16,
    }
    expected = np.array(list(names.values())).astype(np.float32)
    np.testing.assert_array_equal(evaluate(list(names)), expected)


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


def test_type_traits(metal):
    metal.compile(
        """
static_assert(is_same<int, int32_t>::value && !is_same_v<int, uint>, "");
static_assert(is_floating_point_v<half> && is_integral_v<ushort>, "");
static_assert(is_signed_v<char> && !is_signed_v<ulong>, "");
template <typename T, typename = enable_if_t<is_integral<T>::value>>
T only_integers(T x) { return x; }
static_assert(is_same_v<decltype(only_integers(1u)), uint>, "");
static_assert(true_type::value && !false_type::value, "");
static_assert(is_scalar_v<device int *> && is_scalar_v<mem_flags> && !is_scalar_v<float2>, "");
"""
    )


# {address space of the atomic `a`: (code before the operation, code after it)}.  For threadgroup
# memory, the code copies the buffer `d` to `a` and back.
ATOMIC_SPACES = {
    "device": ("device A *a = d;", ""),
    "threadgroup": (
        "threadgroup A a[1]; COPY(a, d) threadgroup_barrier(mem_flags::mem_threadgroup);",
        "threadgroup_barrier(mem_flags::mem_threadgroup); COPY(d, a)",
    ),
}
ATOMIC_OPERATIONS = {
    "add": np.add,
    "sub": np.subtract,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "max": np.maximum,
    "min": np.minimum,
}


@pytest.mark.parametrize("space", ATOMIC_SPACES)
@pytest.mark.parametrize("name", ["int", "uint"])
def test_integer_atomics(metal, space, name):
    before, behind = ATOMIC_SPACES[space]
    library = metal.compile(
        f"using T = {name}; using A = atomic_{name};\n"
        "#define COPY(to, from) if (i == 0) atomic_store_explicit(to, \\\n"
        "    atomic_load_explicit(from, memory_order_relaxed), memory_order_relaxed);\n"
        + "".join(
            f"kernel void fetch_{key}(device A *d, device const T *v, device T *old,\n"
            f"    uint i [[thread_position_in_grid]]) {{ {before}\n"
            f"  old[i] = atomic_fetch_{key}_explicit(a, v[i], memory_order_relaxed); {behind} }}\n"
            for key in ATOMIC_OPERATIONS
        )
    )
    values = np.array([5, 12, 3, 9, 12, 200, 7, 1], TYPES[name])
    for key, operation in ATOMIC_OPERATIONS.items():
        total = np.array([20], values.dtype)
        *expected, last = operation.accumulate([*total, *values], dtype=values.dtype)
        old = np.zeros_like(values)
        library.run(f"fetch_{key}", [total, values, old], 8, 8)
        assert total[0] == last, key
        assert old.tolist() == expected, key


def test_other_atomics(metal):
    source = """
kernel void k(device atomic_float *f [[buffer(0)]],
              device atomic_uint *u [[buffer(1)]],
              device atomic<bool> *b [[buffer(2)]],
              device float *out [[buffer(4)]],
              volatile device atomic_int *v [[buffer(5)]],
              uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(f, 0.5f, memory_order_relaxed);
  atomic_fetch_sub_explicit(&f[1], 2.0f, memory_order_relaxed);
  // Computes a maximum with compare and exchange.
  uint seen = atomic_load_explicit(u, memory_order_relaxed);
  while (i * 3 > seen &&
         !atomic_compare_exchange_weak_explicit(u, &seen, i * 3,
             memory_order_relaxed, memory_order_relaxed)) {}
  if (i == 5) atomic_store_explicit(b, true, memory_order_relaxed);
  out[i] = atomic_exchange_explicit(&f[2], float(i), memory_order_relaxed);
  atomic_fetch_add_explicit(v, 1, memory_order_relaxed);
  float expected = -1;
  atomic_compare_exchange_weak_explicit(&f[3], &expected, 4.0f,
      memory_order_relaxed, memory_order_relaxed);
  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst);
}
"""
    f, u = floats(1, 100, -5, -1), uint(7)
    b, out, v = np.zeros(1, np.bool_), np.zeros(64, np.float32), np.zeros(1, np.int32)
    metal.run(source, "k", {0: f, 1: u, 2: b, 4: out, 5: v}, 64, 16)
    assert f.tolist() == [33, 100 - 128, 63, 4]
    assert u[0] == 63 * 3
    assert b[0]
    assert sorted(out.tolist()) == sorted([-5.0] + list(range(63)))
    assert v[0] == 64

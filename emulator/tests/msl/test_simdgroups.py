"""Simdgroup and quadgroup functions against loops in Python."""

import numpy as np
import pytest
from metal import TYPES, uint

QUAD_TYPES = {name: dtype for name, dtype in TYPES.items() if name != "bool"}
SIMD_TYPES = {name: dtype for name, dtype in QUAD_TYPES.items() if name not in ("long", "ulong")}
INTEGERS = [name for name in QUAD_TYPES if name not in ("float", "half")]

REDUCTIONS = {
    "sum": (lambda a, b: a + b, 0),
    "product": (lambda a, b: a * b, 1),
    "min": (min, None),
    "max": (max, None),
}
BITWISE = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}

# Threads in the threadgroup: whole simdgroups, and a last one of 5 lanes.
SIZES = [32, 96, 69, 1, 6]


def values_of(dtype, count, seed=0):
    """Small values, whose sums and products are exact in every order."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return rng.choice([0.5, 1, 2, -1, 1], count).astype(dtype)
    return rng.integers(0, 6, count).astype(dtype)


def kernel_name(prefix, function, name):
    return f"{prefix}_{function}_{name}"


@pytest.fixture(scope="module")
def library(metal):
    """A kernel for each function of one argument and each of its types."""
    kernels = []
    for prefix, types in (("simd", SIMD_TYPES), ("quad", QUAD_TYPES)):
        functions = list(REDUCTIONS) + list(BITWISE)
        functions += [
            f"prefix_{kind}_{what}"
            for kind in ("inclusive", "exclusive")
            for what in ("sum", "product")
        ]
        for function in functions:
            for name in types:
                if function in BITWISE and name not in INTEGERS:
                    continue
                kernels.append(
                    f"kernel void {kernel_name(prefix, function, name)}(device const {name} *x, "
                    f"device {name} *out,\n"
                    "    uint i [[thread_position_in_grid]]) {\n"
                    f"  out[i] = {prefix}_{function}(x[i]);\n}}\n"
                )
    return metal.compile("".join(kernels))


def run(library, prefix, function, name, data):
    out = np.zeros(len(data), data.dtype)
    library.run(kernel_name(prefix, function, name), [data, out], len(data), len(data))
    return out


def groups(data, width):
    return [data[i : i + width] for i in range(0, len(data), width)]


def fold(operation, values, start):
    result = start
    for value in values:
        result = value if result is None else operation(result, value)
    return result


@pytest.fixture(params=["simd", "quad"])
def group(request):
    """(prefix of the functions, lanes)"""
    return request.param, 32 if request.param == "simd" else 4


def types_of(prefix):
    return SIMD_TYPES if prefix == "simd" else QUAD_TYPES


def for_all_lanes(operation, start, data, width):
    """Each group's result in each of its lanes."""
    with np.errstate(over="ignore"):
        return np.concatenate(
            [np.full(len(g), fold(operation, g, start)) for g in groups(data, width)]
        ).astype(data.dtype)


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("function", REDUCTIONS)
def test_reductions(library, group, function, count):
    prefix, width = group
    operation, start = REDUCTIONS[function]
    for name, dtype in types_of(prefix).items():
        data = values_of(dtype, count)
        found = run(library, prefix, function, name, data)
        first = None if start is None else dtype(start)
        expected = for_all_lanes(operation, first, data, width)
        np.testing.assert_array_equal(found, expected, name)


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("function", BITWISE)
def test_bitwise(library, group, function, count):
    prefix, width = group
    for name in set(INTEGERS) & set(types_of(prefix)):
        data = values_of(QUAD_TYPES[name], count, 3)
        found = run(library, prefix, function, name, data)
        expected = for_all_lanes(BITWISE[function], None, data, width)
        np.testing.assert_array_equal(found, expected, name)


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("kind", ["inclusive", "exclusive"])
@pytest.mark.parametrize("function", ["sum", "product"])
def test_prefixes(library, group, function, kind, count):
    prefix, width = group
    operation, start = REDUCTIONS[function]
    for name, dtype in types_of(prefix).items():
        data = values_of(dtype, count, 5)
        found = run(library, prefix, f"prefix_{kind}_{function}", name, data)
        expected = []
        for g in groups(data, width):
            value = dtype(start)
            for element in g:
                with np.errstate(over="ignore"):
                    following = dtype(operation(value, element))
                expected.append(following if kind == "inclusive" else value)
                value = following
        np.testing.assert_array_equal(found, np.array(expected, dtype), name)


def shuffle_cases(width):
    """{call: reference(lane, lanes) -> (source lane, whether it is the filling)}"""
    return {
        "shuffle(x[i], W - 1 - own)": lambda n: (width - 1 - n, False),
        "shuffle_xor(x[i], 1)": lambda n: (n ^ 1, False),
        "shuffle_xor(x[i], W / 2)": lambda n: (n ^ width // 2, False),
        "shuffle_up(x[i], 1)": lambda n: (max(n - 1, 0), False),
        "shuffle_up(x[i], 3)": lambda n: (n - 3 if n >= 3 else n, False),
        "shuffle_down(x[i], 1)": lambda n: (min(n + 1, width - 1), False),
        "shuffle_down(x[i], 3)": lambda n: (n + 3 if n + 3 < width else n, False),
        "shuffle_rotate_up(x[i], 1)": lambda n: ((n - 1) % width, False),
        "shuffle_rotate_down(x[i], 3)": lambda n: ((n + 3) % width, False),
        "broadcast(x[i], 2)": lambda n: (2, False),
        "broadcast_first(x[i])": lambda n: (0, False),
        "shuffle_and_fill_up(x[i], y, 2)": lambda n: ((n - 2) % width, n < 2),
        "shuffle_and_fill_down(x[i], y, 2)": lambda n: ((n + 2) % width, n + 2 >= width),
        "shuffle_and_fill_up(x[i], y, 1, 2)": lambda n: (n // 2 * 2 + (n - 1) % 2, n % 2 < 1),
        "shuffle_and_fill_down(x[i], y, 1, 4)": lambda n: (
            n // 4 * 4 + (n + 1) % 4,
            n % 4 + 1 >= 4,
        ),
    }


def test_shuffles(metal, group):
    prefix, width = group
    cases = shuffle_cases(width)
    library = metal.compile(
        f"#define W {width}\n"
        + "".join(
            "kernel void k_{}(device const {} *x, device {} *out,\n"
            "    uint i [[thread_position_in_grid]]) {{\n"
            "  ushort own = i % W;\n  {} y = x[i] + 64;\n{}}}\n".format(
                name,
                name,
                name,
                name,
                "".join(
                    f"  out[{len(cases)} * i + {number}] = {prefix}_{call};\n"
                    for number, call in enumerate(cases)
                ),
            )
            for name in types_of(prefix)
        )
    )
    for name, dtype in types_of(prefix).items():
        data = np.arange(64).astype(dtype)
        out = np.zeros((64, len(cases)), dtype)
        library.run("k_" + name, [data, out], 64, 64)
        for number, (call, reference) in enumerate(cases.items()):
            expected = []
            for i in range(64):
                lane, filling = reference(i % width)
                expected.append(i // width * width + lane + 64 * filling)
            found = out[:, number].tolist()
            assert found == expected, (name, call)


@pytest.mark.parametrize("name", ["float2", "half4", "int3", "uchar4", "float4"])
def test_vectors(metal, name):
    element, components = SIMD_TYPES[name[:-1]], int(name[-1])
    stored = 4 if components == 3 else components
    data = np.arange(32 * stored).reshape(32, stored) % 11
    data = data.astype(element)
    calls = {
        "simd_sum(x[i])": lambda d: np.broadcast_to(d.sum(0), d.shape),
        "simd_max(x[i])": lambda d: np.broadcast_to(d.max(0), d.shape),
        "simd_shuffle_xor(x[i], 5)": lambda d: d[np.arange(32) ^ 5],
        "simd_prefix_inclusive_sum(x[i])": lambda d: d.cumsum(0),
        "quad_sum(x[i])": lambda d: np.repeat(d.reshape(8, 4, -1).sum(1), 4, 0),
    }
    library = metal.compile(
        "".join(
            f"kernel void k{number}(device const {name} *x, device {name} *out,"
            f" uint i [[thread_position_in_grid]]) {{ out[i] = {call}; }}\n"
            for number, call in enumerate(calls)
        )
    )
    for number, (call, reference) in enumerate(calls.items()):
        out = np.zeros_like(data)
        library.run(f"k{number}", [data, out], 32, 32)
        expected = reference(data[:, :components].astype(np.int64))
        np.testing.assert_array_equal(out[:, :components], expected.astype(element), call)


def test_brain_floats(metal):
    source = """
kernel void k(device const float *x, device float *out,
              uint i [[thread_position_in_grid]]) {
  bfloat b = bfloat(x[i]);
  out[4 * i] = simd_sum(b);
  out[4 * i + 1] = simd_max(b);
  out[4 * i + 2] = simd_shuffle_xor(b, 1);
  out[4 * i + 3] = simd_min(b);
}
"""
    x = np.arange(32).astype(np.float32) / 4
    out = np.zeros((32, 4), np.float32)
    metal.run(source, "k", [x, out], 32, 32)
    assert (out[:, 0] == x.sum()).all()
    assert (out[:, 1] == 7.75).all()
    assert out[:, 2].tolist() == x[np.arange(32) ^ 1].tolist()
    assert (out[:, 3] == 0).all()


def test_votes(metal):
    source = """
kernel void k(device const uint *x, device uint *out,
              uint i [[thread_position_in_grid]]) {
  bool v = x[i] != 0;
  device uint *o = out + 12 * i;
  o[0] = simd_all(v);
  o[1] = simd_any(v);
  o[2] = uint(simd_vote::vote_t(simd_ballot(v)));
  o[3] = simd_ballot(v).all();
  o[4] = simd_ballot(v).any();
  o[5] = uint(simd_vote::vote_t(simd_active_threads_mask()));
  o[6] = simd_is_first();
  o[7] = quad_all(v);
  o[8] = quad_any(v);
  o[9] = uint(quad_vote::vote_t(quad_ballot(v)));
  o[10] = quad_is_first();
  o[11] = uint(quad_vote::vote_t(quad_active_threads_mask()));
}
"""
    count = 38  # the second simdgroup has 6 lanes, its second quadgroup 2
    x = np.zeros(count, np.uint32)
    x[[0, 1, 2, 3, 9, 33, 36, 37]] = 1
    out = np.zeros((count, 12), np.uint32)
    metal.run(source, "k", [x, out], count, count)
    for i in range(count):
        simd = x[i // 32 * 32 :][:32]
        quad = x[i // 4 * 4 :][:4]
        mask = int(sum(int(v) << n for n, v in enumerate(simd)))
        quad_mask = int(sum(int(v) << n for n, v in enumerate(quad)))
        expected = [
            int(simd.all()),
            int(simd.any()),
            mask,
            int(mask == 0xFFFFFFFF),
            int(mask != 0),
            (1 << len(simd)) - 1,
            int(i % 32 == 0),
            int(quad.all()),
            int(quad.any()),
            quad_mask,
            int(i % 4 == 0),
            (1 << len(quad)) - 1,
        ]
        assert out[i].tolist() == expected, i


def test_inactive_lanes_are_poison(metal):
    """The value of an inactive lane, which Metal leaves undefined, is poison."""
    source = (
        "kernel void k(device float *x, uint i [[thread_position_in_grid]])"
        + " { x[i] = simd_shuffle(x[i], 20); }\n"
    )
    found = np.ones(8, np.float32)
    metal.run(source, "k", [found], 8, 8)
    assert (found.view(np.uint32) == 0xC7C7C7C7).all()


DIVERGENT = """
kernel void k(device uint *out [[buffer(0)]],
              uint i [[thread_position_in_grid]]) {
  uint value = 0;
  if (i < 10) {
    value = simd_sum(i);             // lanes 0 to 9
  } else if (i % 2 == 0) {
    value = 1000 + simd_sum(i);      // even lanes from 10 on
  }
  out[2 * i] = value;
  out[2 * i + 1] = simd_sum(1u);     // all again
}
"""


@pytest.mark.parametrize("order", ["forward", "reverse", "random:1", "random:9"])
def test_divergent_lanes(metal, schedule, order):
    """Lanes meet at the same call, in the order of the calls in the text."""
    schedule(order)
    library = metal.compile(DIVERGENT)
    out = np.zeros((32, 2), np.uint32)
    library.run("k", [out], 32, 32)
    even = sum(range(10, 32, 2))
    expected = [45] * 10 + [1000 + even, 0] * 11
    assert out[:, 0].tolist() == expected
    assert (out[:, 1] == 32).all()


FUNCTIONS = """
uint total(uint x) { return simd_sum(x); }
struct Op { uint operator()(uint x) const { return total(x); } };
kernel void k(device uint *out [[buffer(0)]],
              uint i [[thread_position_in_grid]]) {
  uint value;
  Op op;
  if (i < 10) value = simd_max(i) + total(i);
  else value = op(i) + (i % 2 == 0 ? total(i) : 0);
  out[2 * i] = value;
  out[2 * i + 1] = total(1) + op(1);
}
"""


@pytest.mark.parametrize("order", ["forward", "reverse", "random:7"])
def test_divergent_calls_of_functions(metal, schedule, order):
    """A call in a function is a different call for each call of the function."""
    schedule(order)
    library = metal.compile(FUNCTIONS)
    out = np.zeros((32, 2), np.uint32)
    library.run("k", [out], 32, 32)
    high = sum(range(10, 32))
    even = sum(range(10, 32, 2))
    expected = [9 + 45] * 10 + [high + even, high] * 11
    assert out[:, 0].tolist() == expected
    assert (out[:, 1] == 64).all()


LOOPS = """
kernel void k(device uint *out [[buffer(0)]],
              uint i [[thread_position_in_grid]]) {
  uint rounds = 0;
  for (uint n = 0; n <= i % 4; ++n) rounds += simd_sum(1u);
  out[i] = rounds;
}
"""


@pytest.mark.parametrize("order", ["forward", "reverse", "random:4"])
def test_lanes_that_leave_a_loop(metal, schedule, order):
    schedule(order)
    library = metal.compile(LOOPS)
    out = uint(*[0] * 32)
    library.run("k", [out], 32, 32)
    # 32 lanes in the first round, 24 in the second, ...
    assert out.tolist() == [32, 56, 72, 80] * 8


def test_lanes_that_return(metal):
    source = """
kernel void k(device uint *out, uint i [[thread_position_in_grid]]) {
  if (i % 3 == 0) return;
  out[i] = simd_sum(i);
}
"""
    out = uint(*[0] * 32)
    metal.run(source, "k", [out], 32, 32)
    total = sum(i for i in range(32) if i % 3)
    assert out.tolist() == [total if i % 3 else 0 for i in range(32)]


def test_functions_that_call_them(metal):
    """A kernel may reach a simdgroup function through templates and lambdas."""
    source = """
template <typename T, typename F> T all_lanes(T x, F combine) {
  for (ushort d = 16; d > 0; d /= 2) x = combine(x, simd_shuffle_xor(x, d));
  return x;
}
struct Add { template <typename T> T operator()(T a, T b) { return a + b; } };
kernel void k(device uint *out, uint i [[thread_position_in_grid]]) {
  auto greater = [](uint a, uint b) { return a > b ? a : b; };
  out[i] = all_lanes(i, Add()) * 100 + all_lanes(i, greater);
}
"""
    library = metal.compile(source)
    assert library.kernels["k"].needs_fibers
    out = uint(*[0] * 32)
    library.run("k", [out], 32, 32)
    assert (out == 496 * 100 + 31).all()


@pytest.mark.parametrize("threads", [28, 32, 5])
def test_filling_beyond_the_last_lane(metal, threads):
    """torch's reductions of 64-bit integers depend on this filling on a Mac."""
    source = (
        "kernel void k(device int2 *x [[buffer(0)]],"
        " uint i [[thread_position_in_grid]]) {"
        "  int2 v = x[i];"
        "  for (ushort d = 16; d > 0; d /= 2)"
        "    v += simd_shuffle_and_fill_down(v, int2(0), d);"
        "  x[i] = simd_broadcast(v, 0);"
        "}"
    )
    x = np.ones((threads, 2), np.int32)
    metal.run(source, "k", [x], threads, threads)
    assert (x == threads).all()

"""Compares simdgroup functions with references in Python."""

import numpy as np
import pytest
from metal import TYPES, floats

NUMBERS = {name: dtype for name, dtype in TYPES.items() if name not in ("bool", "long", "ulong")}

REDUCTIONS = {"sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum}
BITWISE = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
SCANS = ["prefix_inclusive_sum", "prefix_exclusive_sum"]

# Numbers of threads in the threadgroup.  In some threadgroups, the last simdgroup has fewer than 32
# lanes.
SIZES = [32, 96, 69, 1, 6]


def values_of(dtype, count):
    """Returns small random values.  Their order does not change their sums and products."""
    rng = np.random.default_rng(0)
    if np.dtype(dtype).kind == "f":
        return rng.choice([0.5, 1, 2, -1, 1], count).astype(dtype)
    return rng.integers(0, 6, count).astype(dtype)


@pytest.fixture(scope="module")
def library(metal):
    """A library with a kernel for each function and type."""
    return metal.compile(
        "".join(
            f"kernel void {function}_{name}(device const {name} *x, device {name} *out,\n"
            f"    uint i [[thread_position_in_grid]]) {{ out[i] = simd_{function}(x[i]); }}\n"
            for function in [*REDUCTIONS, *BITWISE, *SCANS]
            for name in NUMBERS
            if function not in BITWISE or name not in ("float", "half")
        )
    )


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("function", [*REDUCTIONS, *BITWISE])
def test_reductions(library, function, count):
    for name, dtype in NUMBERS.items():
        if function in BITWISE and dtype in (np.float32, np.float16):
            continue
        data = values_of(dtype, count)
        out = np.zeros(count, dtype)
        library.run(f"{function}_{name}", [data, out], count, count)
        groups = [data[i : i + 32] for i in range(0, count, 32)]
        reduce = {**REDUCTIONS, **BITWISE}[function].reduce
        keywords = {} if function in ("min", "max") else {"dtype": dtype}
        expected = np.concatenate([np.full(len(g), reduce(g, **keywords)) for g in groups])
        np.testing.assert_array_equal(out, expected, name)


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("function", SCANS)
def test_prefix_sums(library, function, count):
    for name, dtype in NUMBERS.items():
        data = values_of(dtype, count)
        out = np.zeros(count, dtype)
        library.run(f"{function}_{name}", [data, out], count, count)
        groups = [data[i : i + 32] for i in range(0, count, 32)]
        expected = np.concatenate([group.cumsum(dtype=dtype) for group in groups])
        expected -= data if "exclusive" in function else 0
        np.testing.assert_array_equal(out, expected, name)


# {call: a function that takes a lane and returns (source lane, whether the result is the filling of
# the source lane)}.
SHUFFLES = {
    "shuffle(x[i], 31 - own)": lambda n: (31 - n, False),
    "shuffle_xor(x[i], 1)": lambda n: (n ^ 1, False),
    "shuffle_xor(x[i], 16)": lambda n: (n ^ 16, False),
    "shuffle_up(x[i], 1)": lambda n: (max(n - 1, 0), False),
    "shuffle_up(x[i], 3)": lambda n: (n - 3 if n >= 3 else n, False),
    "shuffle_down(x[i], 1)": lambda n: (min(n + 1, 31), False),
    "shuffle_down(x[i], 3)": lambda n: (n + 3 if n < 29 else n, False),
    "shuffle_rotate_up(x[i], 3)": lambda n: ((n - 3) % 32, False),
    "shuffle_rotate_down(x[i], 3)": lambda n: ((n + 3) % 32, False),
    "broadcast(x[i], 2)": lambda n: (2, False),
    "shuffle_and_fill_up(x[i], y, 2)": lambda n: ((n - 2) % 32, n < 2),
    "shuffle_and_fill_down(x[i], y, 2)": lambda n: ((n + 2) % 32, n >= 30),
    "shuffle_and_fill_up(x[i], y, 1, 2)": lambda n: (n // 2 * 2 + (n - 1) % 2, n % 2 < 1),
    "shuffle_and_fill_down(x[i], y, 1, 4)": lambda n: (n // 4 * 4 + (n + 1) % 4, n % 4 == 3),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_shuffles(metal, name):
    stores = "".join(
        f"  out[{len(SHUFFLES)} * i + {number}] = simd_{call};\n"
        for number, call in enumerate(SHUFFLES)
    )
    data = np.arange(64).astype(NUMBERS[name])
    out = np.zeros((64, len(SHUFFLES)), data.dtype)
    source = (
        f"kernel void k(device const {name} *x, device {name} *out,\n"
        f"    uint i [[thread_position_in_grid]]) {{\n"
        f"  ushort own = i % 32;\n  {name} y = x[i] + 64;\n{stores}}}\n"
    )
    metal.run(source, "k", [data, out], 64, 64)
    for number, (call, reference) in enumerate(SHUFFLES.items()):
        sources = [reference(i % 32) for i in range(64)]
        expected = [i // 32 * 32 + lane + 64 * fill for i, (lane, fill) in enumerate(sources)]
        assert out[:, number].tolist() == expected, call


@pytest.mark.parametrize("name", ["float2", "half4", "int3", "uchar4", "float4"])
def test_vectors(metal, name):
    element, components = NUMBERS[name[:-1]], int(name[-1])
    stored = 4 if components == 3 else components
    data = np.arange(32 * stored).reshape(32, stored) % 11
    data = data.astype(element)
    calls = {
        "simd_sum(x[i])": lambda d: np.broadcast_to(d.sum(0), d.shape),
        "simd_max(x[i])": lambda d: np.broadcast_to(d.max(0), d.shape),
        "simd_shuffle_xor(x[i], 5)": lambda d: d[np.arange(32) ^ 5],
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


def test_prefix_products(metal):
    source = """
kernel void k(device const float *x, device float2 *out, uint i [[thread_position_in_grid]]) {
  out[i] = float2(simd_prefix_inclusive_product(x[i]), simd_prefix_exclusive_product(x[i]));
}
"""
    x = np.tile(floats(1, 2, 0.5, -1), 8)
    out = np.zeros((32, 2), np.float32)
    metal.run(source, "k", [x, out], 32, 32)
    np.testing.assert_array_equal(out[:, 0], x.cumprod())
    np.testing.assert_array_equal(out[:, 1], np.concatenate([[1], x.cumprod()[:-1]]))


def test_votes(metal):
    source = """
kernel void k(device const uint *x, device uint *out,
              uint i [[thread_position_in_grid]]) {
  bool v = x[i] != 0;
  device uint *o = out + 5 * i;
  o[0] = simd_all(v);
  o[1] = simd_any(v);
  o[2] = uint(simd_vote::vote_t(simd_ballot(v)));
  o[3] = simd_ballot(v).all();
  o[4] = simd_ballot(v).any();
}
"""
    count = 38  # the second simdgroup has 6 lanes
    x = np.zeros(count, np.uint32)
    x[[0, 1, 2, 3, 9, 33, 36, 37]] = 1
    out = np.zeros((count, 5), np.uint32)
    metal.run(source, "k", [x, out], count, count)
    for i in range(count):
        simd = x[i // 32 * 32 :][:32]
        mask = int(sum(int(v) << n for n, v in enumerate(simd)))
        expected = [int(simd.all()), int(simd.any()), mask, int(mask == 0xFFFFFFFF), int(mask != 0)]
        assert out[i].tolist() == expected, i


def test_inactive_lanes_are_poison(metal):
    """A read of an inactive lane returns the poison byte.  In Metal the value is undefined."""
    source = (
        "kernel void k(device float *x, uint i [[thread_position_in_grid]])"
        + " { x[i] = simd_shuffle(x[i], 20); }\n"
    )
    found = np.ones(8, np.float32)
    metal.run(source, "k", [found], 8, 8)
    assert (found.view(np.uint32) == 0xC7C7C7C7).all()


# {name: (body of a kernel, expected out[2 * i] for lane i, expected out[2 * i + 1] for lane i)}.
# Lanes exchange values only with lanes at the same call.  If a function contains a simdgroup
# function, lanes that call the function at different places do not meet.
EVEN = sum(range(10, 32, 2))
DIVERGENT = {
    "branches": (
        """
  uint value = 0;
  if (i < 10) {
    value = simd_sum(i);             // lanes 0 to 9
  } else if (i % 2 == 0) {
    value = 1000 + simd_sum(i);      // even lanes from 10 on
  }
  out[2 * i] = value;
  out[2 * i + 1] = simd_sum(1u);     // all again
""",
        [45] * 10 + [1000 + EVEN, 0] * 11,
        [32] * 32,
    ),
    "calls of functions": (
        """
  uint value;
  Op op;
  if (i < 10) value = simd_max(i) + total(i);
  else value = op(i) + (i % 2 == 0 ? total(i) : 0);
  out[2 * i] = value;
  out[2 * i + 1] = total(1) + op(1);
""",
        [9 + 45] * 10 + [sum(range(10, 32)) + EVEN, sum(range(10, 32))] * 11,
        [64] * 32,
    ),
    # The first round has 32 lanes, the second 24, the third 16, and the fourth 8.
    "lanes that leave a loop": (
        """
  uint rounds = 0;
  for (uint n = 0; n <= i % 4; ++n) rounds += simd_sum(1u);
  out[2 * i] = rounds;
""",
        [32, 56, 72, 80] * 8,
        [0] * 32,
    ),
    "lanes that return": (
        "  if (i % 3 == 0) return;\n  out[2 * i] = simd_sum(i);\n",
        [sum(n for n in range(32) if n % 3) if i % 3 else 0 for i in range(32)],
        [0] * 32,
    ),
}


@pytest.mark.parametrize("order", ["forward", "reverse", "random:1"])
@pytest.mark.parametrize("name", DIVERGENT)
def test_divergent_lanes(metal, schedule, name, order):
    schedule(order)
    body, *expected = DIVERGENT[name]
    library = metal.compile(
        "uint total(uint x) { return simd_sum(x); }\n"
        "struct Op { uint operator()(uint x) const { return total(x); } };\n"
        "kernel void k(device uint *out, uint i [[thread_position_in_grid]]) {" + body + "}\n"
    )
    out = np.zeros((32, 2), np.uint32)
    library.run("k", [out], 32, 32)
    assert out.T.tolist() == expected


@pytest.mark.parametrize("threads", [28, 32, 5])
def test_a_lane_beyond_the_last_one_gives_the_filling(metal, threads):
    """On a Mac, torch's reductions of 64-bit integers depend on this filling."""
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

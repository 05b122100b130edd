"""Tests barriers, threadgroup memory, and the emulator's messages about their wrong use."""

import numpy as np
import pytest
from metal import Fatal, floats, kernels_of, uint

SCHEDULES = ["forward", "reverse", "random:1", "random:2", "random:12345"]

REDUCE = """
kernel void reduce(device const float *x [[buffer(0)]],
                   device float *sums [[buffer(1)]],
                   constant uint &n [[buffer(2)]],
                   threadgroup float *shared [[threadgroup(0)]],
                   uint i [[thread_position_in_grid]],
                   uint l [[thread_index_in_threadgroup]],
                   uint g [[threadgroup_position_in_grid]],
                   uint size [[threads_per_threadgroup]]) {
  shared[l] = i < n ? x[i] : 0.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint s = 128; s > 0; s /= 2) {
    if (l < s && l + s < size) shared[l] += shared[l + s];
    %s
  }
  if (l == 0) sums[g] = shared[0];
}
"""
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


def reduce_once(metal, barrier, count=1000):
    library = metal.compile(REDUCE % barrier)
    x = np.arange(count).astype(np.float32)
    sums = np.zeros(-(-count // 256), np.float32)
    library.run("reduce", [x, sums, uint(count)], count, 256, {0: 1024})
    padded = np.zeros(len(sums) * 256, np.float32)
    padded[:count] = x
    return sums, padded.reshape(-1, 256).sum(1)


@pytest.mark.parametrize("order", SCHEDULES)
def test_reduction(metal, schedule, order):
    schedule(order)
    sums, expected = reduce_once(metal, BARRIER)
    np.testing.assert_array_equal(sums, expected)


@pytest.mark.planted("missing barrier")
def test_a_missing_barrier_gives_a_wrong_result(metal, schedule):
    """Without the barrier, the result is wrong in at least one order of the threads."""
    wrong = []
    for order in SCHEDULES:
        schedule(order)
        sums, expected = reduce_once(metal, "")
        if not np.array_equal(sums, expected):
            wrong.append(order)
    assert wrong


@pytest.mark.parametrize(
    "order, first", [("forward", list(range(8))), ("reverse", list(range(7, -1, -1)))]
)
def test_order_of_threads(metal, schedule, order, first):
    """Kernels with and without barriers run their threads in the chosen order."""
    schedule(order)
    source = """
kernel void loop(device atomic_uint *next [[buffer(0)]],
                 device uint *out [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
  out[atomic_fetch_add_explicit(next, 1, memory_order_relaxed)] = i;
}
kernel void fibers(device atomic_uint *next [[buffer(0)]],
                   device uint *out [[buffer(1)]],
                   uint i [[thread_position_in_grid]]) {
  out[atomic_fetch_add_explicit(next, 1, memory_order_relaxed)] = i;
  threadgroup_barrier(mem_flags::mem_none);
}
"""
    library = metal.compile(source)
    for kernel in ("loop", "fibers"):
        out = uint(*[0] * 8)
        library.run(kernel, [uint(0), out], 8, 4)
        assert out.tolist() == first


def test_random_orders_differ(metal, schedule):
    source = """
kernel void k(device atomic_uint *next, device uint *out,
              uint i [[thread_position_in_grid]]) {
  out[atomic_fetch_add_explicit(next, 1, memory_order_relaxed)] = i;
  threadgroup_barrier(mem_flags::mem_none);
  out[atomic_fetch_add_explicit(next, 1, memory_order_relaxed)] = i;
}
"""
    library = metal.compile(source)
    seen = {}
    for order in ("random:1", "random:2", "random:1"):
        schedule(order)
        out = uint(*[0] * 256)
        library.run("k", [uint(0), out], 128, 64)
        assert sorted(out.tolist()) == sorted(list(range(128)) * 2)
        assert seen.setdefault(order, out.tolist()) == out.tolist()
        # In a threadgroup, all threads reach the barrier before any thread continues after it.
        for half in (out[:128], out[128:]):
            assert sorted(half[:64]) == sorted(half[64:])
    assert seen["random:1"] != seen["random:2"]


@pytest.mark.parametrize("value", ["backward", "random", "random:x", "random:-1"])
def test_unknown_schedule(metal, schedule, value):
    library = metal.compile("kernel void k(device uint *a) {}\n")
    schedule(value)
    with pytest.raises(Fatal, match="set it to forward, reverse or random"):
        library.run("k", [uint(0)], 1, 1)


# {name: (body of a kernel, (size of the grid, size of a threadgroup), parts of the message)}.
DIVERGENT = {
    "some threads have returned": (
        """
  if (i >= 90) return;
  threadgroup_barrier(mem_flags::mem_none);
""",
        (128, 64),
        [
            "kernel 'k', threadgroup (1, 0, 0)",
            "26 of 64 threads wait in line 6",
            "38 have returned",
        ],
    ),
    "two barriers": (
        """
  if (i < 10)
    threadgroup_barrier(mem_flags::mem_none);
  else
    threadgroup_barrier(mem_flags::mem_none);
""",
        (32, 32),
        ["10 of 32 threads wait in line 6", "22 of 32 threads wait in line 8"],
    ),
    "two barriers in one line": (
        "if (i < 10) { B; } else { B; }",
        (32, 32),
        ["divergent threadgroup_barrier"],
    ),
    "a loop of two or three rounds": (
        "for (uint n = 0; n < (i == 3 ? 2u : 3u); ++n) B;",
        (32, 32),
        ["31 of 32 threads wait", "1 have returned"],
    ),
}


@pytest.mark.planted("divergent barrier")
@pytest.mark.parametrize("body, sizes, parts", DIVERGENT.values(), ids=DIVERGENT)
def test_a_barrier_that_some_threads_miss_is_fatal(metal, body, sizes, parts):
    source = (
        "#define B threadgroup_barrier(mem_flags::mem_none)\n"
        + f"kernel void k(device uint *a, uint i [[thread_position_in_grid]]) {{{body} a[i] = 1; }}"
    )
    with pytest.raises(Fatal) as caught:
        metal.run(source, "k", [uint(*[0] * sizes[0])], *sizes)
    message = str(caught.value)
    for part in parts:
        assert part in message
    assert ("have returned" in message) == any("have returned" in part for part in parts)


@pytest.mark.planted("divergent barrier")
def test_two_calls_of_a_function_with_a_barrier_are_two_barriers(metal):
    source = """
template <typename T> T wait(T x) {
  threadgroup_barrier(mem_flags::mem_none);
  return x;
}
void twice() { wait(1); wait(2); }
kernel void bad(device uint *a, uint i [[thread_position_in_grid]]) {
  if (i < 10)
    a[i] = wait(3u);
  else
    a[i] = wait(4u);
}
kernel void good(device uint *a, uint i [[thread_position_in_grid]]) {
  uint x = i < 10 ? 1 : 2;
  for (int n = 0; n < 3; ++n) {
    twice();
    x = wait(x) + wait(1u) * 2;
  }
  a[i] = x;
}
"""
    library = metal.compile(source)
    with pytest.raises(Fatal) as caught:
        library.run("bad", [uint(*[0] * 32)], 32, 32)
    message = str(caught.value)
    assert "10 of 32 threads wait in line 5, called in line 11" in message
    assert "22 of 32 threads wait in line 5, called in line 13" in message
    a = uint(*[0] * 64)
    library.run("good", [a], 64, 32)
    assert a[:10].tolist() == [7] * 10 and a[10:].tolist() == [8] * 54


def test_lanes_meet_after_different_deeply_nested_calls(metal):
    """Lanes that returned from different nested calls meet in the next simdgroup function."""
    source = """
template <uint N> uint nested(uint lane) {
  return nested<N - 1>(lane) + simd_sum(1u);
}
template <> uint nested<0>(uint lane) { return simd_sum(1u); }
template <uint N> uint outer(uint lane) { return outer<N - 1>(lane); }
template <> uint outer<0>(uint lane) {
  uint x = lane < 10 ? nested<1>(lane) : nested<2>(lane);
  return x + 100 * simd_sum(1u);
}
kernel void k(device uint *a, uint i [[thread_position_in_grid]]) {
  a[i] = outer<40>(i);
}
"""
    a = uint(*[0] * 32)
    metal.run(source, "k", [a], 32, 32)
    assert a.tolist() == [3200 + 2 * 10] * 10 + [3200 + 3 * 22] * 22


@pytest.mark.planted("uninitialised threadgroup memory")
def test_the_memory_of_each_threadgroup_is_filled_with_the_poison_byte(metal):
    source = """
kernel void k(device uint *out [[buffer(0)]],
              threadgroup uint *given [[threadgroup(0)]],
              uint g [[threadgroup_position_in_grid]]) {
  threadgroup uint own[2];
  threadgroup float4 vector;
  out[4 * g] = given[1];
  out[4 * g + 1] = own[1];
  out[4 * g + 2] = as_type<uint>(vector.w);
  given[1] = own[1] = 7;
  vector.w = 1;
  out[4 * g + 3] = own[1];
}
"""
    # `own` has 8 bytes, and `vector` has the bytes 16 to 31 because of its alignment.
    assert kernels_of(source)["k"].static_threadgroup_bytes == 32
    out = uint(*[0] * 12)
    metal.run(source, "k", [out], 3, 1, {0: 16})
    assert out.tolist() == [0xC7C7C7C7] * 3 + [7] + ([0xC7C7C7C7] * 3 + [7]) * 2


def test_threadgroup_variables(metal):
    """All forms of declarations compile, and the variables are aligned as declared."""
    source = """
struct Cell { float a; uint2 b; };
template <typename T, uint N>
kernel void k(device ulong *out, uint l [[thread_index_in_threadgroup]]) {
  threadgroup T plain;
  threadgroup T array[N], second[2][N];
  threadgroup Cell cells[3];
  threadgroup vec<float, 3> vectors[2];
  alignas(64) threadgroup char aligned[3];
  threadgroup char also_aligned[3] __attribute__((aligned(128)));
  threadgroup metal::atomic_uint count;
  const threadgroup T *pointer = array;
  threadgroup T (&reference)[N] = array;
  if (l == 0) {
    plain = 1;
    array[N - 1] = 2;
    second[1][0] = 3;
    cells[2].b.y = 4;
    vectors[1] = float3(5);
    atomic_store_explicit(&count, 6, memory_order_relaxed);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  {
    threadgroup T inner;
    if (l == 1) inner = 7;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (l == 0) out[6] = inner;
  }
  if (l == 1) {
    out[0] = plain;
    out[1] = pointer[N - 1] + reference[N - 1];
    out[2] = second[1][0];
    out[3] = cells[2].b.y;
    out[4] = vectors[1].z;
    out[5] = atomic_load_explicit(&count, memory_order_relaxed);
    out[7] = (ulong)&aligned % 64 + (ulong)&also_aligned % 128 +
             (ulong)&vectors % 16;
    out[8] = sizeof(array) + sizeof(second);
  }
}
template [[host_name("k")]] kernel void k<int, 5>(device ulong *out, uint l);
"""
    out = np.zeros(9, np.uint64)
    metal.run(source, "k", [out], 2, 2)
    assert out.tolist() == [1, 4, 3, 4, 5, 6, 7, 0, 20 + 40]


# {name: (program, arguments of Library.run() after the kernel, part of the message)}.
REFUSED_DISPATCHES = {
    "unbound buffer": (
        "kernel void k(device float *a, constant float &scale) {}",
        ({0: floats(1)}, 1, 1),
        "kernel 'k': no buffer is bound at index 1 (parameter 'scale')",
    ),
    "buffer too small for a reference": (
        "struct P { float4 a; int b; };\n"
        "kernel void k(constant P &p, device float *a) { a[0] = p.b; }",
        ([floats(1, 2, 3, 4, 5), floats(1)], 1, 1),
        "holds 20 bytes, parameter 'p' needs 32",
    ),
    "offset that is not aligned": (
        "kernel void k(device float *a) {}",
        ([np.zeros(9, np.uint8)[1:]], 1, 1),
        "the buffer at index 0 is not a multiple of 4 bytes, to which the type of parameter 'a'",
    ),
    "threadgroup memory without a length": (
        "kernel void k(threadgroup float *s [[threadgroup(3)]]) {}",
        ([], 1, 1),
        "no threadgroup memory is set at index 3",
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.planted("out of bounds")] * ("too small" in name))
        for name in REFUSED_DISPATCHES
    ],
)
def test_a_dispatch_with_wrong_arguments_is_refused(metal, name):
    program, arguments, said = REFUSED_DISPATCHES[name]
    with pytest.raises(Fatal) as caught:
        metal.run(program + "\n", "k", *arguments)
    assert said in str(caught.value)


def test_a_buffer_that_the_kernel_does_not_access_may_be_unbound(metal):
    out = floats(1)
    source = "kernel void k(device float *a, device float *b) { a[0] = a[0] == 9 ? b[0] : 2; }\n"
    metal.run(source, "k", {0: out}, 1, 1)
    assert out.tolist() == [2]


def test_large_private_arrays(metal):
    """Each of 1,024 threads has an array of 32 KB."""
    source = """
kernel void k(device float *a, uint i [[thread_position_in_grid]]) {
  float own[8192];
  for (uint n = 0; n < 8192; ++n) own[n] = a[i] + n;
  threadgroup_barrier(mem_flags::mem_none);
  float sum = 0;
  for (uint n = 0; n < 8192; n += 1024) sum += own[(n + i) % 8192];
  a[i] = sum;
}
"""
    a = np.arange(1024).astype(np.float32)
    metal.run(source, "k", [a], 1024, 1024)
    i = np.arange(1024)
    assert a.tolist() == (8 * 2 * i + 1024 * 28).tolist()

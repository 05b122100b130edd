"""Tests that MPS_EMULATOR_CHECK_RACES=1 finds data races in each order of the threads."""

import ctypes

import numpy as np
import pytest
from metal import Fatal, uint


@pytest.fixture(autouse=True)
def _check_races(monkeypatch):
    monkeypatch.setenv("MPS_EMULATOR_CHECK_RACES", "1")


# The parameters of all programs below.
PARAMETERS = """(device float *a [[buffer(0)]],
              device uint *b [[buffer(1)]],
              threadgroup float *s [[threadgroup(0)]],
              uint i [[thread_position_in_grid]],
              uint l [[thread_index_in_threadgroup]],
              uint g [[threadgroup_position_in_grid]]) {
"""

LAST_GROUP = """
  a[g * 64 + l] = l;
  threadgroup_barrier(mem_flags::mem_device);
  threadgroup uint last;
  if (l == 0) {
    %s
    last = atomic_fetch_add_explicit((device atomic_uint *)b, 1,
                                     memory_order_relaxed);
    %s
  }
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  if (last == 1) b[1 + l] = a[64 * (1 - g) + l];
"""
FENCE = "atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst);"

planted = pytest.mark.planted

# For each kind of mistake {name: (body of the kernel, part of the message)}.  The body begins in
# line 9.
RACES = [
    (
        planted("missing barrier"),
        {
            "missing barrier": (
                "s[l] = l;\na[i] = s[(l + 1) % 64];",
                "thread 0 of threadgroup (0, 0, 0) reads threadgroup memory that no "
                "thread has written so far, in line 10: initialise the memory, and put a "
                "threadgroup_barrier before the read",
            ),
            "barrier missing after the reads": (
                "s[l] = l;\n"
                "threadgroup_barrier(mem_flags::mem_threadgroup);\n"
                "float x = s[63 - l];\n"
                "s[l] = x;",
                "data race on threadgroup memory: thread 31 of threadgroup (0, 0, 0) "
                "writes in line 12, and thread 32 of threadgroup (0, 0, 0) reads in "
                "line 11, and nothing orders the two: put "
                "threadgroup_barrier(mem_flags::mem_threadgroup) between them",
            ),
            "barrier of a simdgroup for the threadgroup": (
                "s[l] = l;\nsimdgroup_barrier(mem_flags::mem_threadgroup);\na[i] = s[63 - l];",
                "no thread has written so far, in line 11",
            ),
            "two threads write one element": (
                "a[l / 2] = 1;",
                "byte 0 of buffer 0 ('a'): thread 0 of threadgroup (0, 0, 0) writes "
                "in line 9, and thread 1 of threadgroup (0, 0, 0) writes in line 9",
            ),
            "atomic and plain": (
                "if (i == 5) b[0] = 3;\n"
                "atomic_fetch_add_explicit((device atomic_uint *)b, 1,"
                " memory_order_relaxed);",
                "thread 0 of threadgroup (0, 0, 0) writes atomically in line 10, and "
                "thread 5 of threadgroup (0, 0, 0) writes in line 9",
            ),
        },
    ),
    (
        planted("out of bounds"),
        {
            "an array of a thread, out of bounds": (
                "float x[4] = {1, 2, 3, 4};\na[i] = x[l / 8];",
                "thread 32 of threadgroup (0, 0, 0) uses index 4 of the type 'float[4]' in line 10",
            ),
            "an array of a thread, out of bounds before it": (
                "int x[2][4] = {};\nx[1][int(l) - 1] = 5;\na[i] = x[0][3];",
                "thread 0 of threadgroup (0, 0, 0) uses index -1 of the type 'int[4]' in line 10",
            ),
            "a vector, out of bounds": (
                "float4 x = float4(l);\na[i] = x[l];",
                "thread 4 of threadgroup (0, 0, 0) uses index 4 of the type 'float4' in line 10",
            ),
            "read out of bounds": (
                "a[i] = i < 127 ? a[i] : a[i + 1];",
                "thread 63 of threadgroup (1, 0, 0) reads 4 bytes at byte 512 of "
                "buffer 0 ('a'), which has 512 bytes, in line 9",
            ),
            "write out of bounds": (
                "if (i == 0) a[(int)i - 1] = 1;",
                "thread 0 of threadgroup (0, 0, 0) writes 4 bytes at byte -4 of "
                "buffer 0 ('a'), which has 512 bytes, in line 9",
            ),
            "read far out of bounds": (
                "b[i] = a[i + (1 << 20)];",
                "thread 0 of threadgroup (0, 0, 0) reads 4 bytes at byte ",
            ),
            "threadgroup memory out of bounds": (
                "s[l] = l;\nthreadgroup_barrier(mem_flags::mem_threadgroup);\na[i] = s[l + 1];",
                "thread 63 of threadgroup (0, 0, 0) reads 4 bytes at byte 256 of the "
                "threadgroup memory at index 0, which has 256 bytes "
                "(setThreadgroupMemoryLength:atIndex:), in line 11",
            ),
            "threadgroup variable out of bounds": (
                "threadgroup float t[64];\nt[l] = l;\n"
                "threadgroup_barrier(mem_flags::mem_threadgroup);\na[i] = t[l + 1];",
                "thread 63 of threadgroup (0, 0, 0) reads 4 bytes at byte 256 of a "
                "threadgroup variable of 256 bytes, in line 12",
            ),
        },
    ),
    (
        planted("float out of an integer's range"),
        {
            "a float above the range of integers": (
                "b[i] = uint(1e9f * l);",
                "thread 5 of threadgroup (0, 0, 0) converts 5e+09 in line 9 to the type "
                "'unsigned int', which lacks the value: the result is undefined.  clamp() the "
                "value first",
            ),
            "a half below the range of integers": (
                "b[i] = uchar(half(0) - half(l));",
                "thread 1 of threadgroup (0, 0, 0) converts -1 in line 9 to the type 'unsigned "
                "char'",
            ),
            "not a number as an integer": (
                "float x = l == 7 ? NAN : 1.0f;\nb[i] = int(x);",
                "thread 7 of threadgroup (0, 0, 0) converts nan in line 10 to the type 'int'",
            ),
        },
    ),
    (
        planted("missing fence"),
        {
            "barrier for the other memory": (
                "a[i] = l;\nthreadgroup_barrier(mem_flags::mem_threadgroup);\nb[i] = a[i ^ 1];",
                "of buffer 0 ('a'): thread 1 of threadgroup (0, 0, 0) writes in line "
                "9, and thread 0 of threadgroup (0, 0, 0) reads in line 11, and "
                "nothing orders the two: put threadgroup_barrier(mem_flags::"
                "mem_device) between them",
            ),
            "two threadgroups": (
                "a[i] = 1;\nb[i] = a[127 - i];",
                "thread 63 of threadgroup (0, 0, 0) reads in line 10, and thread 0 of "
                "threadgroup (1, 0, 0) writes in line 9, and nothing orders the two: "
                "threadgroups of one dispatch run in any order",
            ),
            "missing fence": (
                LAST_GROUP % ("", ""),
                "threadgroup (0, 0, 0) writes in line 10, and thread 0 of threadgroup "
                "(1, 0, 0) reads in line 20",
            ),
            "missing fence before": (LAST_GROUP % ("", FENCE), "nothing orders"),
            "missing fence after": (LAST_GROUP % (FENCE, ""), "nothing orders"),
            "fences without an order": (
                LAST_GROUP % (2 * (FENCE.replace("seq_cst", "relaxed"),)),
                "nothing orders",
            ),
            "write after the fence and the atomic": (
                LAST_GROUP % (FENCE, FENCE + " a[g * 64] = 7;"),
                "thread 0 of threadgroup (0, 0, 0) writes in line 17",
            ),
        },
    ),
    (
        planted("inactive lane"),
        {
            "inactive lane": (
                "float v = l;\nif (l % 32 < 16) v += simd_shuffle_down(v, 16);\na[i] = v;",
                "thread 0 of threadgroup (0, 0, 0) reads the value of lane 16 of its "
                "simdgroup in line 10, but that lane takes no part in the shuffle",
            ),
            "lane that does not exist": (
                "float v = l;\nv += simd_shuffle(v, l % 32 + 8);\na[i] = v;",
                "thread 24 of threadgroup (0, 0, 0) reads the value of lane 32 of its "
                "simdgroup in line 10, but a simdgroup has lanes 0 to 31",
            ),
            "broadcast of a lane that does not exist": (
                "a[i] = simd_broadcast(float(l), 40);",
                "thread 0 of threadgroup (0, 0, 0) reads the value of lane 40 of its simdgroup",
            ),
            "broadcast of different lanes": (
                "a[i] = simd_broadcast(float(l), l % 2);",
                "thread 0 of threadgroup (0, 0, 0) and another thread of its simdgroup name "
                "different lanes in the simd_broadcast in line 9",
            ),
        },
    ),
    (
        planted("write to constant memory"),
        {
            "write to constant memory": (
                "a[i] = i;",
                "thread 0 of threadgroup (0, 0, 0) writes to memory that also "
                "belongs to buffer 2 ('c'), in line 9",
            )
        },
    ),
    (
        planted("uninitialised threadgroup memory"),
        {
            "uninitialised threadgroup memory": (
                "if (l != 7) s[l] = 1;\nthreadgroup_barrier(mem_flags::mem_threadgroup);\n"
                "a[i] = s[l];",
                "thread 7 of threadgroup (0, 0, 0) reads threadgroup memory that no "
                "thread has written so far, in line 11",
            )
        },
    ),
]

# {name: body of a kernel without a race}.
RIGHT = {
    "barrier": "s[l] = l;\nthreadgroup_barrier(mem_flags::mem_threadgroup);\na[i] = s[63 - l];",
    "barrier of a simdgroup": "s[l] = l;\n"
    "simdgroup_barrier(mem_flags::mem_threadgroup);\na[i] = s[l ^ 1];",
    "atomics": "atomic_fetch_add_explicit((device atomic_uint *)b, 1, memory_order_relaxed);",
    "neighbouring bytes": "((device uchar *)a)[i] = 1;",
    "floats at the ends of the integers": "b[i] = uint(4294967040.0f) + uchar(255.5f);\n"
    "a[i] = int(-2147483648.0f) + uint(-0.5f * l / 64);",
    "all read one element": "s[l] = a[0];\n"
    "threadgroup_barrier(mem_flags::mem_threadgroup);\nb[i] = s[0] + a[0];",
    "fences": LAST_GROUP % (FENCE, FENCE),
    "the same memory in every threadgroup": "s[l] = g; a[i] = s[l];",
    "shuffles of all lanes": "float v = l;\nv += simd_shuffle_xor(v, 16);\n"
    "if (l % 32 < 16) v += simd_shuffle_xor(v, 8);\na[i] = v;",
    "broadcast of one lane": "a[i] = simd_broadcast(float(l), l / 32 + 3);",
    "structures and vectors": "struct P { float4 v; uint n[5]; };\n"
    "threadgroup P shared[2];\n"
    "if (l < 2) { P p = {float4(l), {1, 2, 3, 4, 5}}; shared[l] = p; }\n"
    "threadgroup_barrier(mem_flags::mem_threadgroup);\n"
    "P q = shared[l & 1]; a[i] = q.v.x + q.n[4];",
}


def run(metal, body, constant=False):
    """Runs a kernel with this body.

    Args:
      constant: whether the kernel has a parameter c in `constant` memory.  The memory of c is the
        memory of buffer 0.
    """
    parameters = PARAMETERS
    if constant:
        parameters = PARAMETERS.replace(
            "[[buffer(1)]],", "[[buffer(1)]], constant float *c [[buffer(2)]],"
        )
    source = "kernel void k" + parameters + body + "\n}\n"
    library = metal.compile(source)
    # There is memory before and after the array, so an access out of bounds does no harm.
    a = np.zeros(1 << 21, np.float32)[192:320]
    b = np.zeros(129, np.uint32)
    buffers = [a, b, a] if constant else [a, b]
    library.run("k", buffers, 128, 64, {0: 256})


@pytest.mark.parametrize("order", ["forward", "reverse", "random:3"])
@pytest.mark.parametrize(
    "name, body, said",
    [
        pytest.param(name, *race, marks=mark, id=name)
        for mark, races in RACES
        for name, race in races.items()
    ],
)
def test_a_race_is_reported(metal, schedule, name, body, said, order):
    schedule(order)
    with pytest.raises(Fatal) as caught:
        run(metal, body, constant=name == "write to constant memory")
    message = str(caught.value)
    if order == "forward":
        assert said in message
    else:
        assert any(
            words in message
            for words in (
                "data race",
                "no thread has written",
                "which has",
                "uses index",
                "lacks the value",
                "of a threadgroup variable of 256 bytes",
                "takes no part in the shuffle",
                "has lanes 0 to 31",
                "name different lanes",
                "also belongs to buffer 2 ('c')",
            )
        )


@pytest.mark.parametrize("order", ["forward", "reverse", "random:3"])
@pytest.mark.parametrize("name", RIGHT)
def test_a_correct_kernel_passes(metal, schedule, name, order):
    schedule(order)
    run(metal, RIGHT[name])


@pytest.mark.parametrize("barrier", [True, False])
def test_an_access_to_a_threads_own_memory_is_not_taken_for_one_to_a_near_buffer(metal, barrier):
    """The address of the buffer is a little above the thread's stack frame."""
    library = metal.compile(
        "kernel void k(device ulong *a [[buffer(0)]],\n"
        "              device uint *b [[buffer(1)]],\n"
        "              uint i [[thread_position_in_grid]]) {\n"
        "  uint own[4] = {i, i, i, i};\n"
        + ("  threadgroup_barrier(mem_flags::mem_none);\n" if barrier else "")
        + "  a[i] = (ulong)&own[0];\n"
        "  own[(i + b[0]) % 4] = i + 5;\n"
        "  a[i + 16] = own[(i + 1) % 4];\n}\n"
    )
    a = np.zeros(32, np.uint64)
    library.run("k", [a, uint(1)], 16, 16)
    assert a[16:].tolist() == [i + 5 for i in range(16)]
    # The address is 2,000 bytes above the thread's variables: still in the stack, but not in use.
    memory = (ctypes.c_uint32 * 1).from_address(int(a[9]) + 2000)
    b = np.frombuffer(memory, np.uint32)
    library.run("k", [a, b], 16, 16)


@pytest.mark.parametrize("index, at", [("-1", -4), ("64", 256)])
@pytest.mark.parametrize("first", [0, 1])
def test_an_access_out_of_bounds_names_the_nearest_buffer(metal, first, index, at):
    """The message names the buffer that is nearest to the access."""
    source = (
        "kernel void k(device float *a [[buffer(0)]],\n"
        "              device float *b [[buffer(1)]],\n"
        "              device float *c [[buffer(2)]],\n"
        "              uint i [[thread_position_in_grid]]) {{\n"
        "  {}[{}] = b[i] + c[i];\n}}\n".format("ab"[first], index)
    )
    memory = np.zeros(1024, np.float32)
    others = [memory[100:200], memory[700:800]]
    arrays = others[:first] + [memory[400:464]] + others[first:]
    with pytest.raises(Fatal) as caught:
        metal.run(source, "k", arrays, 1, 1)
    assert f"writes 4 bytes at byte {at} of buffer {first} " in str(caught.value)

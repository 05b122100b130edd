"""Tests the atomic functions of Metal's standard library."""

import numpy as np
import pytest
from metal import TYPES, floats, uint

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
    before, after = ATOMIC_SPACES[space]
    library = metal.compile(
        f"using T = {name}; using A = atomic_{name};\n"
        "#define COPY(to, from) if (i == 0) atomic_store_explicit(to, \\\n"
        "    atomic_load_explicit(from, memory_order_relaxed), memory_order_relaxed);\n"
        + "".join(
            f"kernel void fetch_{key}(device A *d, device const T *v, device T *old,\n"
            f"    uint i [[thread_position_in_grid]]) {{ {before}\n"
            f"  old[i] = atomic_fetch_{key}_explicit(a, v[i], memory_order_relaxed); {after} }}\n"
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

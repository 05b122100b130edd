"""8x8 matrices distributed over the lanes of a SIMD group, against NumPy."""

import numpy as np
import pytest


def small_integers(dtype, *shape, seed=0):
    """Small integers: their sums and products are exact in every type and order."""
    rng = np.random.default_rng(seed)
    return rng.integers(-3, 4, shape).astype(dtype)


@pytest.mark.parametrize("name, dtype", [("float", np.float32), ("half", np.float16)])
def test_product(metal, name, dtype):
    """d = a * b + c, a, b and c being tiles of larger matrices."""
    source = """
kernel void k(device const TYPE *a [[buffer(0)]],
              device const TYPE *b [[buffer(1)]],
              constant float *c [[buffer(2)]],
              device float *d [[buffer(3)]]) {
  simdgroup_matrix<TYPE, 8, 8> at, bt;
  simdgroup_float8x8 ct, dt;
  simdgroup_load(at, a, 16, ulong2(4, 2));
  simdgroup_load(bt, b, 12);
  simdgroup_load(ct, c, 8, ulong2(0), true);
  simdgroup_multiply_accumulate(dt, at, bt, ct);
  simdgroup_store(dt, d, 10, ulong2(1, 3));
}
""".replace("TYPE", name)
    a = small_integers(dtype, 12, 16)
    b = small_integers(dtype, 8, 12, seed=1)
    c = small_integers(np.float32, 8, 8, seed=2)
    d = np.full((12, 10), 99, np.float32)
    metal.run(source, "k", [a, b, c, d], 32, 32)
    expected = np.full((12, 10), 99, np.float32)
    expected[3:11, 1:9] = a[2:10, 4:12].astype(np.float32) @ b[:, :8].astype(np.float32) + c.T
    assert (d == expected).all()


def test_filled_and_diagonal(metal):
    source = """
kernel void k(device float *out [[buffer(0)]],
              threadgroup float *shared [[threadgroup(0)]],
              uint lane [[thread_index_in_simdgroup]]) {
  simdgroup_store(simdgroup_float8x8(2.0f), out);
  simdgroup_store(make_filled_simdgroup_matrix<float, 8, 8>(3.0f), out + 64);
  simdgroup_float8x8 m = make_filled_simdgroup_matrix<float, 8>(0.5f);
  m.thread_elements()[0] = lane;
  m.thread_elements()[1] = lane + 100;
  simdgroup_store(m * simdgroup_float8x8(2.0f), shared);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[128 + lane] = shared[lane];
  out[160 + lane] = shared[lane + 32];
}
"""
    out = np.zeros((3, 8, 8), np.float32)
    metal.run(source, "k", [out], 32, 32, threadgroup_bytes={0: 256})
    assert (out[0] == 2 * np.eye(8)).all()
    assert (out[1] == 3).all()
    # Each lane holds two adjacent elements of a row.
    lanes = [2 * lane for lane in range(32)]
    assert sorted(out[2].flat) == lanes + [200 + value for value in lanes]
    assert (out[2, :, 1::2] - out[2, :, ::2] == 200).all()


def test_other_sizes_are_refused(metal):
    text = metal.refusal("kernel void k() { simdgroup_matrix<float, 4, 4> m; }")
    assert "a simdgroup_matrix is 8x8" in text

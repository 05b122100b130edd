#include <metal_stdlib>

using namespace metal;

// Shows what the kernels of k2 assume about a GPU: the width of a simdgroup,
// and atomic operations of threadgroups and of the device.

// lanes, simdgroups, widths   [threads], what each thread sees
// sums                        [threads], the sum of the lanes' numbers
kernel void simdgroups(device int *lanes [[buffer(0)]],
                       device int *simdgroups [[buffer(1)]],
                       device int *widths [[buffer(2)]],
                       device int *sums [[buffer(3)]],
                       uint i [[thread_position_in_grid]],
                       uint lane [[thread_index_in_simdgroup]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]],
                       uint width [[threads_per_simdgroup]]) {
  lanes[i] = lane;
  simdgroups[i] = simdgroup;
  widths[i] = width;
  sums[i] = simd_sum(int(i));
}

// values   [threads]
// results  [4], the least and the largest value, the number of values, and the
//          bits that any value has
// counts   [groups], the number of values of each threadgroup
kernel void atomics(device const int *values [[buffer(0)]],
                    device atomic_int *results [[buffer(1)]],
                    device int *counts [[buffer(2)]],
                    uint i [[thread_position_in_grid]],
                    uint thread_of_group [[thread_position_in_threadgroup]],
                    uint group [[threadgroup_position_in_grid]]) {
  threadgroup atomic_int count;
  if (thread_of_group == 0)
    atomic_store_explicit(&count, 0, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const int value = values[i];
  atomic_fetch_min_explicit(results, value, memory_order_relaxed);
  atomic_fetch_max_explicit(results + 1, value, memory_order_relaxed);
  atomic_fetch_add_explicit(results + 2, 1, memory_order_relaxed);
  atomic_fetch_or_explicit(results + 3, value, memory_order_relaxed);
  atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (thread_of_group == 0)
    counts[group] = atomic_load_explicit(&count, memory_order_relaxed);
}

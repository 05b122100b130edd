// The primitives of target_host.h, for NVIDIA GPUs.  A thread of the kernel is
// a thread of the GPU, and a simdgroup is a warp.  This target does not check
// races.
#pragma once

// On this target, clang gives string literals an address space that no other
// object has.  So a program cannot pass a literal to a function.
#define MSL_TEXT(text) text

namespace __msl {
namespace target {

// Functions of namespace metal::fast that are instructions of the GPU.  Their
// results are approximate.
#define MSL_HAS_FAST
namespace fast {
MSL_INLINE float exp2(float x) { return __nvvm_ex2_approx_ftz_f(x); }
MSL_INLINE float exp(float x) { return exp2(x * 1.44269504088896340736f); }
MSL_INLINE float exp10(float x) { return exp2(x * 3.32192809488736234787f); }
MSL_INLINE float log2(float x) { return __nvvm_lg2_approx_ftz_f(x); }
MSL_INLINE float log(float x) { return log2(x) * 0.693147180559945309417f; }
MSL_INLINE float log10(float x) { return log2(x) * 0.301029995663981195214f; }
MSL_INLINE float sin(float x) { return __nvvm_sin_approx_ftz_f(x); }
MSL_INLINE float cos(float x) { return __nvvm_cos_approx_ftz_f(x); }
}  // namespace fast

// ---- Threads

MSL_INLINE uint thread_index() {
  return __nvvm_read_ptx_sreg_tid_x() +
         __nvvm_read_ptx_sreg_ntid_x() *
             (__nvvm_read_ptx_sreg_tid_y() +
              __nvvm_read_ptx_sreg_ntid_y() * __nvvm_read_ptx_sreg_tid_z());
}

MSL_INLINE uint simd_lane() { return __nvvm_read_ptx_sreg_laneid(); }

MSL_NOTE("msl.suspends")
MSL_INLINE void threadgroup_barrier(uint flags, ulong site) { __syncthreads(); }

// enter_call() and leave_call() do nothing, because the GPU itself
// distinguishes the calls of a function with a barrier.
MSL_INLINE int enter_call(ulong site) { return 0; }
MSL_INLINE void leave_call() {}

// Returns the set of lanes that execute this call together: bit i is lane i.
MSL_INLINE uint active_lanes() {
#ifdef MSL_WHOLE_SIMDGROUPS
  return 0xffffffffu;
#else
  uint mask;
  __asm__ volatile("activemask.b32 %0;" : "=r"(mask));
  return mask;
#endif
}

// Returns the value of lane `lane`.  `mask` is the set of active lanes.
template <class T>
MSL_INLINE T from_lane(T value, uint lane, uint mask) {
  constexpr int words = (sizeof(T) + 3) / 4;
  int mine[words] = {};
  int theirs[words];
  __builtin_memcpy(mine, &value, sizeof(T));
  for (int i = 0; i < words; ++i)
    theirs[i] = __nvvm_shfl_sync_idx_i32(mask, mine[i], lane, 31);
  T result;
  __builtin_memcpy(&result, theirs, sizeof(T));
  return result;
}

template <class T>
struct lanes {
  T values[32];
  uint active;

  bool takes_part(uint lane) const { return active >> lane & 1; }
};

template <class T>
MSL_NOTE("msl.suspends")
MSL_INLINE lanes<T> exchange(T value, ulong site) {
  lanes<T> all;
  all.active = active_lanes();
  for (uint i = 0; i < 32; ++i) all.values[i] = from_lane(value, i, all.active);
  return all;
}

MSL_INLINE void simdgroup_barrier(uint flags, ulong site) {
  __nvvm_bar_warp_sync(active_lanes());
}

MSL_INLINE uint ballot(bool condition, ulong site) {
  return __nvvm_vote_ballot_sync(active_lanes(), condition);
}

template <class T>
MSL_INLINE T shuffle(T value, uint lane, ulong site) {
  return from_lane(value, lane % 32, active_lanes());
}

template <class T>
MSL_INLINE T broadcast(T value, uint lane, ulong site) {
  return shuffle(value, lane, site);
}

template <class T>
MSL_INLINE T shuffle_two(T data, T filling, bool from_filling, uint lane,
                         ulong site) {
  uint mask = active_lanes();
  T shuffled_data = from_lane(data, lane % 32, mask);
  T shuffled_filling = from_lane(filling, lane % 32, mask);
  return from_filling ? shuffled_filling : shuffled_data;
}

template <class Operation, class T>
MSL_INLINE T reduce(T value, T neutral, ulong site) {
  if (active_lanes() == 0xffffffffu) {
    for (uint distance = 16; distance > 0; distance /= 2)
      value = Operation::apply(
          value, from_lane(value, simd_lane() ^ distance, 0xffffffffu));
    return value;
  }
  lanes<T> all = exchange(value, site);
  T result = neutral;
  for (uint i = 0; i < 32; ++i)
    if (all.takes_part(i)) result = Operation::apply(result, all.values[i]);
  return result;
}

// scan() of target_common.h calls this function for integers if all lanes are
// active.  scan() does not call it for floats: a sum of floats depends on the
// order of the additions, and the sum must be bit for bit identical with the
// sum on the emulated device.
#define MSL_SCANS_WHOLE_SIMDGROUPS
template <class Operation, bool inclusive, class T>
MSL_INLINE T scan_whole(T value, T neutral) {
  const uint own = simd_lane();
  for (uint distance = 1; distance < 32; distance *= 2) {
    T below = from_lane(value, own - distance, 0xffffffffu);
    if (own >= distance) value = Operation::apply(value, below);
  }
  if (inclusive) return value;
  T below = from_lane(value, own - 1, 0xffffffffu);
  return own > 0 ? below : neutral;
}

// ---- Threadgroup memory

// In C++ for OpenCL only a kernel can define variables in shared memory, and a
// kernel cannot be a template.  So here the variables are in `global` memory.
// nvptx.py finds them by their names and moves them to shared memory.
template <class T, uint slot, ulong alignment>
__global uchar mps_emulator_threadgroup_memory[sizeof(T)]
    __attribute__((aligned(alignment)));

// The dynamic shared memory, whose size the host chooses at the launch.
extern __global uchar mps_emulator_threadgroup_memory_of_launch[]
    __attribute__((aligned(16)));

MSL_INLINE void *threadgroup_buffer(ulong offset) {
  return (MSL_THREADGROUP uchar *)(void *)
             mps_emulator_threadgroup_memory_of_launch +
         offset;
}

template <class T, uint slot, ulong alignment>
MSL_INLINE MSL_THREADGROUP T &threadgroup_variable() {
  return *(MSL_THREADGROUP T
               *)(void *)&mps_emulator_threadgroup_memory<T, slot, alignment>;
}

MSL_INLINE void atomic_fence(uint flags) { __nvvm_membar_gl(); }

}  // namespace target
}  // namespace __msl

// The name of a function in CUDA's libdevice.
#define MSL_LIBRARY(name) __nv_##name##f
#define MSL_ATOMIC_ACCESS(p, flags)
#include "target_common.h"

namespace __msl {

// ---- The position of a thread

#define MSL_REGISTERS(name, register)                        \
  MSL_INLINE uint name(int d) {                              \
    return d == 0   ? __nvvm_read_ptx_sreg_##register##_x()  \
           : d == 1 ? __nvvm_read_ptx_sreg_##register##_y()  \
                    : __nvvm_read_ptx_sreg_##register##_z(); \
  }
MSL_REGISTERS(thread_position, tid)
MSL_REGISTERS(group_position, ctaid)
MSL_REGISTERS(group_size, ntid)
MSL_REGISTERS(group_count, nctaid)
#undef MSL_REGISTERS

// CUDA launches whole threadgroups.  At the edge of the grid Metal's
// threadgroups are smaller, so threads outside of the grid return at once.
struct target_built_ins {
  uint grid[3];  // the size of the grid, in threads

  MSL_INLINE bool is_in_grid() const {
    for (int d = 0; d < 3; ++d)
      if (group_position(d) * group_size(d) + thread_position(d) >= grid[d])
        return false;
    return true;
  }
  MSL_INLINE uint thread_position_in_threadgroup(int d) const {
    return thread_position(d);
  }
  MSL_INLINE uint threadgroup_position_in_grid(int d) const {
    return group_position(d);
  }
  MSL_INLINE uint threads_per_threadgroup(int d) const {
    uint left = grid[d] - group_position(d) * group_size(d);
    return left < group_size(d) ? left : group_size(d);
  }
  MSL_INLINE uint dispatch_threads_per_threadgroup(int d) const {
    return group_size(d);
  }
  MSL_INLINE uint threads_per_grid(int d) const { return grid[d]; }
  MSL_INLINE uint threadgroups_per_grid(int d) const { return group_count(d); }
  // A simdgroup is a warp.  In a threadgroup that the grid's edge makes
  // smaller in x or y, warps contain other threads than Metal's simdgroups do.
  MSL_INLINE uint index() const { return target::thread_index(); }
  MSL_INLINE uint lane() const { return target::simd_lane(); }
};

}  // namespace __msl

#include "built_ins.h"

// The primitives for the host CPU, where the executor runs one thread of a
// threadgroup at a time.  target_nvptx.h defines the same primitives for NVIDIA
// GPUs.
#pragma once

#include "abi.h"

// The functions of air.h have no runtime of their own, because clang copies
// them into several objects.
#ifdef MSL_RUNTIME_IS_ELSEWHERE
extern "C" const mps_emulator_msl_runtime *mps_emulator_msl_runtime_in_use;
extern "C" void __msl_access(const void *address, ulong size, uint flags);
#else
extern "C" {
const mps_emulator_msl_runtime *mps_emulator_msl_runtime_in_use;
}
#endif

// With -fsanitize=thread, clang adds a call of one of the functions below
// before every access to memory.
#if defined(MSL_REPORT_ACCESSES) && !defined(MSL_RUNTIME_IS_ELSEWHERE)
#define MSL_ANNOUNCE \
  __attribute__((used, noinline, disable_sanitizer_instrumentation))
extern "C" {
MSL_ANNOUNCE inline void __msl_access(const void *address, ulong size,
                                      uint flags) {
  mps_emulator_msl_runtime_in_use->access(address, size, flags,
                                          __builtin_return_address(0));
}
MSL_ANNOUNCE inline void __tsan_init() {}
#define MSL_ANNOUNCE_ACCESS(name, size, flags)                            \
  MSL_ANNOUNCE inline void __tsan_##name(const void *address) {           \
    mps_emulator_msl_runtime_in_use->access(address, size, flags,         \
                                            __builtin_return_address(0)); \
  }
#define MSL_ANNOUNCE_SIZE(size)                                \
  MSL_ANNOUNCE_ACCESS(read##size, size, 0)                     \
  MSL_ANNOUNCE_ACCESS(write##size, size, kMpsEmulatorMslWrite) \
  MSL_ANNOUNCE_ACCESS(unaligned_read##size, size, 0)           \
  MSL_ANNOUNCE_ACCESS(unaligned_write##size, size, kMpsEmulatorMslWrite)
MSL_ANNOUNCE_SIZE(1)
MSL_ANNOUNCE_SIZE(2)
MSL_ANNOUNCE_SIZE(4)
MSL_ANNOUNCE_SIZE(8)
MSL_ANNOUNCE_SIZE(16)
#undef MSL_ANNOUNCE_SIZE
#undef MSL_ANNOUNCE_ACCESS
MSL_ANNOUNCE inline void *__tsan_memcpy(void *to, const void *from,
                                        ulong size) {
  const void *place = __builtin_return_address(0);
  mps_emulator_msl_runtime_in_use->access(from, size, 0, place);
  mps_emulator_msl_runtime_in_use->access(
      to, size, kMpsEmulatorMslWrite | kMpsEmulatorMslSecond, place);
  for (ulong i = 0; i < size; ++i)
    ((volatile char *)to)[i] = ((const volatile char *)from)[i];
  return to;
}
MSL_ANNOUNCE inline void *__tsan_memset(void *to, int value, ulong size) {
  mps_emulator_msl_runtime_in_use->access(to, size, kMpsEmulatorMslWrite,
                                          __builtin_return_address(0));
  for (ulong i = 0; i < size; ++i) ((volatile char *)to)[i] = (char)value;
  return to;
}
// clang's description of an index, in the layout that clang's sanitizers
// define.
struct __msl_type {
  ushort kind, info;
  char name[1];
};
struct __msl_index {
  const char *file;
  uint line, column;
  const __msl_type *array, *index;
};
// With -fsanitize=array-bounds, compiled code calls this function before an
// access with an index outside of an array.
MSL_ANNOUNCE inline void __ubsan_handle_out_of_bounds(const __msl_index *at,
                                                      ulong index) {
  const bool is_signed = at->index->info & 1, is_int = at->index->info >> 1 < 6;
  mps_emulator_msl_runtime_in_use->outside_array(
      at->array->name, is_signed && is_int ? (long)(int)index : (long)index,
      at->line);
}
struct __msl_conversion {
  const char *file;
  uint line, column;
  const __msl_type *from, *to;
};
// With -fsanitize=float-cast-overflow, compiled code calls this function before
// it converts a float to an integer type that cannot represent the float.
// `bits` are the bits of the float.
MSL_ANNOUNCE inline void __ubsan_handle_float_cast_overflow(
    const __msl_conversion *at, ulong bits) {
  const float value = at->from->info == 16
                          ? (float)__builtin_astype((ushort)bits, half)
                          : __builtin_astype((uint)bits, float);
  mps_emulator_msl_runtime_in_use->outside_integer(value, at->to->name,
                                                   at->line);
}
}
#undef MSL_ANNOUNCE
#endif
#ifdef MSL_REPORT_ACCESSES
#define MSL_ATOMIC_ACCESS(p, flags) \
  __msl_access((const void *)p, sizeof(*p), kMpsEmulatorMslAtomic | flags)
#else
#define MSL_ATOMIC_ACCESS(p, flags)
#endif

// In MSL, a string literal is a pointer to `constant` memory.
#define MSL_TEXT(text) ((MSL_CONSTANT const char *)(ulong)(text))

namespace __msl {
namespace target {

// ---- Threads

MSL_INLINE uint thread_index() {
  return mps_emulator_msl_runtime_in_use->thread_index();
}

MSL_INLINE uint simd_lane() { return thread_index() % 32; }

// A function with this annotation suspends its thread.  The front end finds the
// kernels that call such a function.  The executor runs the threads of these
// kernels on fibers.
MSL_NOTE("msl.suspends")
MSL_INLINE void threadgroup_barrier(uint flags, ulong site) {
  mps_emulator_msl_runtime_in_use->threadgroup_barrier(flags, site);
}

// If a function of the program suspends its thread, the front end adds
// enter_call() before each call of this function, and leave_call() after the
// call.
MSL_INLINE int enter_call(ulong site) {
  mps_emulator_msl_runtime_in_use->enter_call(site);
  return 0;
}
MSL_INLINE void leave_call() { mps_emulator_msl_runtime_in_use->leave_call(); }

// The values that the lanes of a simdgroup pass to one call.
template <class T>
struct lanes {
  T values[32];
  uint active;   // bit i: lane i takes part in the call
  uint present;  // bit i: the simdgroup has a lane i

  bool takes_part(uint lane) const { return lane < 32 && active >> lane & 1; }
};

template <class T>
MSL_NOTE("msl.suspends")
MSL_INLINE lanes<T> exchange(T value, ulong site) {
  lanes<T> all;
  mps_emulator_msl_lanes which;
  const void *values = mps_emulator_msl_runtime_in_use->simdgroup_exchange(
      &value, sizeof(T), site, &which);
  all.active = which.active;
  all.present = which.present;
  __builtin_memcpy((void *)all.values, values, sizeof(all.values));
  return all;
}

MSL_INLINE void simdgroup_barrier(uint flags, ulong site) {
  exchange(flags, site);
#ifdef MSL_REPORT_ACCESSES
  mps_emulator_msl_runtime_in_use->simdgroup_barrier(flags);
#endif
}

// Returns a set of lanes: bit i is 1 if lane i is active and its `condition` is
// true.
MSL_INLINE uint ballot(bool condition, ulong site) {
  lanes<uint> all = exchange((uint)condition, site);
  uint votes = 0;
  for (uint i = 0; i < 32; ++i) votes |= (all.values[i] & 1) << i;
  return votes & all.active;
}

#ifdef MSL_REPORT_ACCESSES
#define MSL_READ_LANE(all, lane, site) \
  if (!all.takes_part(lane))           \
    mps_emulator_msl_runtime_in_use->inactive_lane(lane, site);
#else
#define MSL_READ_LANE(all, lane, site)
#endif

// Returns the value of `lane`.  If that lane is inactive or does not exist, the
// bytes of the result are 0xC7.
template <class T>
MSL_INLINE T shuffle(T value, uint lane, ulong site) {
  lanes<T> all = exchange(value, site);
  MSL_READ_LANE(all, lane, site)
  if (lane < 32) return all.values[lane];
  T poison;
  __builtin_memset((void *)&poison, 0xC7, sizeof(T));
  return poison;
}

// Returns the value of `lane`.  All active lanes must pass the same `lane`.
template <class T>
MSL_INLINE T broadcast(T value, uint lane, ulong site) {
#ifdef MSL_REPORT_ACCESSES
  lanes<uint> wanted = exchange(lane, site);
  for (uint i = 0; i < 32; ++i)
    if (wanted.takes_part(i) && wanted.values[i] != lane)
      mps_emulator_msl_runtime_in_use->inactive_lane(kMpsEmulatorMslLanesDiffer,
                                                     site);
#endif
  return shuffle(value, lane, site);
}

// Returns the data of `lane`, or the filling of `lane` if `from_filling` is
// true.  If a partial simdgroup lacks that lane, the result is this thread's
// filling.  On a Mac, torch's reductions and their tests depend on this result.
template <class T>
MSL_INLINE T shuffle_two(T data, T filling, bool from_filling, uint lane,
                         ulong site) {
  struct pair {
    T data;
    T filling;
  };
  pair mine;
  mine.data = data;
  mine.filling = filling;
  lanes<pair> all = exchange(mine, site);
  if (!(all.present >> lane % 32 & 1)) return filling;
  MSL_READ_LANE(all, lane % 32, site)
  return from_filling ? all.values[lane % 32].filling
                      : all.values[lane % 32].data;
}

// Combines the values of the active lanes in the order of a butterfly
// reduction, as GPUs do.  An inactive lane has the value `neutral`.
template <class Operation, class T>
MSL_INLINE T reduce(T value, T neutral, ulong site) {
  lanes<T> all = exchange(value, site);
  T partial[32];
  for (uint i = 0; i < 32; ++i)
    partial[i] = all.takes_part(i) ? all.values[i] : neutral;
  for (uint half_width = 16; half_width > 0; half_width /= 2)
    for (uint i = 0; i < half_width; ++i)
      partial[i] = Operation::apply(partial[i], partial[i + half_width]);
  return partial[0];
}

// ---- Threadgroup memory

template <class T, uint slot, ulong alignment>
MSL_INLINE MSL_THREADGROUP T &threadgroup_variable() {
  return *(MSL_THREADGROUP T *)mps_emulator_msl_runtime_in_use
              ->threadgroup_variable(slot, sizeof(T), alignment);
}

MSL_INLINE void atomic_fence(uint flags) {
#ifdef MSL_REPORT_ACCESSES
  mps_emulator_msl_runtime_in_use->fence(flags);
#endif
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

}  // namespace target
}  // namespace __msl

#define MSL_LIBRARY(name) name##f
#include "target_common.h"

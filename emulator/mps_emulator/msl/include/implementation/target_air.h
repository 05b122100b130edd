// The primitives of target_host.h, for AIR.  air/functions.py replaces the
// functions of Metal's library by functions of AIR, so most primitives are only
// declared here: a library function that AIR lacks leaves a call of an
// undefined function, which air/writing.py reports.
#pragma once

#define MSL_TEXT(text) text

namespace __msl {
namespace target {

uint simd_lane();
uint ballot(bool condition, ulong site);
void threadgroup_barrier(uint flags, ulong site);
void simdgroup_barrier(uint flags, ulong site);
void atomic_fence(uint flags);

template <class T>
struct lanes {
  T values[32];

  bool takes_part(uint lane) const;
};
template <class T>
lanes<T> exchange(T value, ulong site);
template <class T>
T shuffle(T value, uint lane, ulong site);
template <class T>
T broadcast(T value, uint lane, ulong site);
template <class T>
T shuffle_two(T data, T filling, bool from_filling, uint lane, ulong site);
template <class Operation, class T>
T reduce(T value, T neutral, ulong site);

// A GPU itself distinguishes the calls of a function with a barrier.
MSL_INLINE int enter_call(ulong site) { return 0; }
MSL_INLINE void leave_call() {}

// As in target_nvptx.h, the variables are in `global` memory, from which
// air/preparing.py moves them.
template <class T, uint slot, ulong alignment>
__global uchar mps_emulator_threadgroup_memory[sizeof(T)]
    __attribute__((aligned(alignment)));

template <class T, uint slot, ulong alignment>
MSL_INLINE MSL_THREADGROUP T &threadgroup_variable() {
  return *(MSL_THREADGROUP T
               *)(void *)&mps_emulator_threadgroup_memory<T, slot, alignment>;
}

}  // namespace target
}  // namespace __msl

#define MSL_LIBRARY(name) mps_emulator_##name##f
#define MSL_ATOMIC_ACCESS(p, flags)
#include "target_common.h"

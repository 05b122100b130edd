// Defines what the thunks from codegen.py need: the position of a thread.  Also
// defines a function that compiled code of any kernel library may call.
#pragma once

#include "target_host.h"

namespace __msl {

struct target_built_ins {
  const mps_emulator_msl_launch *launch;
  uint position[3];  // in the threadgroup

  MSL_INLINE uint thread_position_in_threadgroup(int d) const {
    return position[d];
  }
  MSL_INLINE uint threadgroup_position_in_grid(int d) const {
    return launch->threadgroup_position[d];
  }
  MSL_INLINE uint threads_per_threadgroup(int d) const {
    return launch->threadgroup_size[d];
  }
  MSL_INLINE uint dispatch_threads_per_threadgroup(int d) const {
    return launch->dispatch_threadgroup_size[d];
  }
  MSL_INLINE uint threads_per_grid(int d) const { return launch->grid_size[d]; }
  MSL_INLINE uint threadgroups_per_grid(int d) const {
    return launch->threadgroup_count[d];
  }
  MSL_INLINE uint index() const {
    const uint *size = launch->threadgroup_size;
    return position[0] + size[0] * (position[1] + size[1] * position[2]);
  }
  MSL_INLINE uint lane() const { return index() % 32; }
};

}  // namespace __msl

#include "built_ins.h"

// Converts a float to bfloat.  Compiled code calls this function if the
// processor has no instruction for the conversion.  The function is also in
// GCC's runtime library, but only from release 13 on.
extern "C" __attribute__((used)) inline bfloat __truncsfbf2(float x) {
  uint bits = __builtin_bit_cast(uint, x);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return __builtin_bit_cast(bfloat, (ushort)(bits >> 16 | 0x40u));
  return __builtin_bit_cast(
      bfloat, (ushort)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16));
}

// For the generated part of a kernel library: the position of a thread, and
// functions that clang calls.
#pragma once

#include "target_host.h"

namespace __msl {

struct target_place {
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

#include "place.h"

// clang calls these functions for conversions on a processor without an
// instruction for them.  Kernel libraries link with no compiler runtime.
extern "C" {

__attribute__((used)) inline float __extendhfsf2(half x) {
  uint bits = __builtin_bit_cast(ushort, x);
  uint sign = (bits & 0x8000u) << 16;
  uint exponent = bits >> 10 & 0x1fu;
  uint fraction = bits & 0x3ffu;
  if (exponent == 0x1f)
    return __builtin_bit_cast(float, sign | 0x7f800000u | fraction << 13);
  if (exponent == 0) {
    // fraction * 2^-24, exact in single precision.
    float magnitude = (float)fraction * 0x1p-24f;
    return __builtin_bit_cast(float,
                              sign | __builtin_bit_cast(uint, magnitude));
  }
  return __builtin_bit_cast(float,
                            sign | (exponent + 112) << 23 | fraction << 13);
}

__attribute__((used)) inline half __truncsfhf2(float x) {
  uint bits = __builtin_bit_cast(uint, x);
  uint sign = bits >> 16 & 0x8000u;
  uint magnitude = bits & 0x7fffffffu;
  uint result;
  if (magnitude > 0x7f800000u) {
    result = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {
    result = 0x7c00u;  // rounds to 2^16 or more
  } else if (magnitude >= 0x38800000u) {
    uint rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    result = (rounded >> 13) - (112u << 10);
  } else {
    // A subnormal half is a multiple of 2^-24.  The last bit of a sum with 0.5
    // is 2^-24 too, so the addition rounds correctly.
    float shifted = __builtin_bit_cast(float, magnitude) + 0.5f;
    result = __builtin_bit_cast(uint, shifted) - 0x3f000000u;
  }
  return __builtin_bit_cast(half, (ushort)(sign | result));
}

__attribute__((used)) inline bfloat __truncsfbf2(float x) {
  uint bits = __builtin_bit_cast(uint, x);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return __builtin_bit_cast(bfloat, (ushort)(bits >> 16 | 0x40u));
  return __builtin_bit_cast(
      bfloat, (ushort)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16));
}

}  // extern "C"


// <simd/simd.h>: other names of Metal's vectors and matrices.
#pragma once

#include "stdlib.h"

#define MSL_SIMD_VECTORS(T, name) \
  typedef T##2 vector_##name##2;  \
  typedef T##3 vector_##name##3;  \
  typedef T##4 vector_##name##4;  \
  typedef T##2 simd_##name##2;    \
  typedef T##3 simd_##name##3;    \
  typedef T##4 simd_##name##4;    \
  namespace simd {                \
  using ::T##2;                   \
  using ::T##3;                   \
  using ::T##4;                   \
  }
MSL_SIMD_VECTORS(char, char)
MSL_SIMD_VECTORS(uchar, uchar)
MSL_SIMD_VECTORS(short, short)
MSL_SIMD_VECTORS(ushort, ushort)
MSL_SIMD_VECTORS(int, int)
MSL_SIMD_VECTORS(uint, uint)
MSL_SIMD_VECTORS(long, long)
MSL_SIMD_VECTORS(ulong, ulong)
MSL_SIMD_VECTORS(half, half)
MSL_SIMD_VECTORS(float, float)
#undef MSL_SIMD_VECTORS

#define MSL_SIMD_MATRICES(size)           \
  typedef float##size matrix_float##size; \
  typedef float##size simd_float##size;   \
  typedef half##size matrix_half##size;   \
  typedef half##size simd_half##size;     \
  namespace simd {                        \
  using ::float##size;                    \
  using ::half##size;                     \
  }
MSL_SIMD_MATRICES(2x2)
MSL_SIMD_MATRICES(2x3)
MSL_SIMD_MATRICES(2x4)
MSL_SIMD_MATRICES(3x2)
MSL_SIMD_MATRICES(3x3)
MSL_SIMD_MATRICES(3x4)
MSL_SIMD_MATRICES(4x2)
MSL_SIMD_MATRICES(4x3)
MSL_SIMD_MATRICES(4x4)
#undef MSL_SIMD_MATRICES

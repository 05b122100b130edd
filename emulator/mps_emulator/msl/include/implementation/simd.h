// <simd/simd.h>: other names of Metal's vectors and matrices.
#pragma once

#include "stdlib.h"

#define MSL_SIMD_VECTORS(T)   \
  typedef T##2 vector_##T##2; \
  typedef T##3 vector_##T##3; \
  typedef T##4 vector_##T##4; \
  typedef T##2 simd_##T##2;   \
  typedef T##3 simd_##T##3;   \
  typedef T##4 simd_##T##4;   \
  namespace simd {            \
  using ::T##2;               \
  using ::T##3;               \
  using ::T##4;               \
  }
MSL_INTEGERS(MSL_SIMD_VECTORS)
MSL_SIMD_VECTORS(half)
MSL_SIMD_VECTORS(float)
#undef MSL_SIMD_VECTORS

#define MSL_SIMD_MATRICES(C, R)                 \
  typedef float##C##x##R matrix_float##C##x##R; \
  typedef float##C##x##R simd_float##C##x##R;   \
  typedef half##C##x##R matrix_half##C##x##R;   \
  typedef half##C##x##R simd_half##C##x##R;     \
  namespace simd {                              \
  using ::float##C##x##R;                       \
  using ::half##C##x##R;                        \
  }
MSL_MATRIX_SIZES(MSL_SIMD_MATRICES)
#undef MSL_SIMD_MATRICES

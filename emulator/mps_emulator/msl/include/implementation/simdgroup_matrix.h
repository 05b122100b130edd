// <metal_simdgroup_matrix>: 8x8 matrices, distributed over the lanes of a SIMD
// group.
#pragma once

namespace metal {

template <class T, int Columns, int Rows>
struct simdgroup_matrix {
  static_assert(Columns == 8 && Rows == 8, "a simdgroup_matrix is 8x8");
  static_assert(is_floating_point<T>::value,
                "a simdgroup_matrix is made of half, bfloat or float");

  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T diagonal) {
    for (uint i = 0; i < 2; ++i)
      elements[i] = own_row() == own_column() + i ? diagonal : (T)0;
  }

  // This lane's two elements, adjacent in one row.  Metal does not document
  // which elements a lane holds, but programs depend on it.
  MSL_THREAD vec<T, 2> &thread_elements() MSL_THREAD { return elements; }
  vec<T, 2> thread_elements() const MSL_THREAD { return elements; }

  static uint own_row() { return row_of(__msl::target::simd_lane()); }
  static uint own_column() { return column_of(__msl::target::simd_lane()); }
  static uint row_of(uint lane) { return (lane >> 4) * 4 + (lane >> 1) % 4; }
  static uint column_of(uint lane) {
    return ((lane >> 3) % 2) * 4 + lane % 2 * 2;
  }
  // The lane that holds an element.
  static uint lane_of(uint row, uint column) {
    return (row / 4) << 4 | (column / 4) << 3 | (row % 4) << 1 |
           (column / 2) % 2;
  }

 private:
  vec<T, 2> elements;
};

typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
#if __METAL_VERSION__ >= 310
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
#endif

template <class T, int Columns, int Rows = Columns>
MSL_INLINE simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(
    T value) {
  simdgroup_matrix<T, Columns, Rows> result;
  result.thread_elements() = (vec<T, 2>)value;
  return result;
}

// The offset in memory of the element (row, column + i) of a tile.
MSL_INLINE ulong __tile_offset(uint row, uint column, ulong elements_per_row,
                               ulong2 origin, bool transpose) {
  return transpose ? (origin.y + column) * elements_per_row + origin.x + row
                   : (origin.y + row) * elements_per_row + origin.x + column;
}

#define MSL_SIMDGROUP_MATRIX_LOAD(space)                                    \
  template <class T>                                                        \
  MSL_INLINE void simdgroup_load(                                           \
      MSL_THREAD simdgroup_matrix<T, 8, 8> &d, space const T *source,       \
      ulong elements_per_row = 8, ulong2 matrix_origin = (ulong2)0,         \
      bool transpose_matrix = false) {                                      \
    for (uint i = 0; i < 2; ++i)                                            \
      d.thread_elements()[i] = source[__tile_offset(                        \
          d.own_row(), d.own_column() + i, elements_per_row, matrix_origin, \
          transpose_matrix)];                                               \
  }
MSL_SIMDGROUP_MATRIX_LOAD(MSL_DEVICE)
MSL_SIMDGROUP_MATRIX_LOAD(__global)
MSL_SIMDGROUP_MATRIX_LOAD(MSL_THREADGROUP)
#undef MSL_SIMDGROUP_MATRIX_LOAD

#define MSL_SIMDGROUP_MATRIX_STORE(space)                                    \
  template <class T>                                                         \
  MSL_INLINE void simdgroup_store(                                           \
      simdgroup_matrix<T, 8, 8> a, space T *destination,                     \
      ulong elements_per_row = 8, ulong2 matrix_origin = (ulong2)0,          \
      bool transpose_matrix = false) {                                       \
    for (uint i = 0; i < 2; ++i)                                             \
      destination[__tile_offset(a.own_row(), a.own_column() + i,             \
                                elements_per_row, matrix_origin,             \
                                transpose_matrix)] = a.thread_elements()[i]; \
  }
MSL_SIMDGROUP_MATRIX_STORE(MSL_DEVICE)
MSL_SIMDGROUP_MATRIX_STORE(MSL_THREADGROUP)
#undef MSL_SIMDGROUP_MATRIX_STORE

// d = a * b + c
template <class D, class A, class B, class C>
MSL_SUSPENDS MSL_INLINE void simdgroup_multiply_accumulate(
    MSL_THREAD simdgroup_matrix<D, 8, 8> &d, simdgroup_matrix<A, 8, 8> a,
    simdgroup_matrix<B, 8, 8> b, simdgroup_matrix<C, 8, 8> c, MSL_SITE) {
  struct factors {
    vec<A, 2> a;
    vec<B, 2> b;
  };
  factors own;
  own.a = a.thread_elements();
  own.b = b.thread_elements();
  __msl::target::lanes<factors> all = __msl::target::exchange(own, site);
  for (uint i = 0; i < 2; ++i) {
    float sum = (float)c.thread_elements()[i];
    for (uint k = 0; k < 8; ++k) {
      uint lane_of_a = d.lane_of(d.own_row(), k);
      uint lane_of_b = d.lane_of(k, d.own_column() + i);
      sum += (float)all.values[lane_of_a].a[k % 2] *
             (float)all.values[lane_of_b].b[i];
    }
    d.thread_elements()[i] = (D)sum;
  }
}
template <class D, class A, class B>
MSL_SUSPENDS MSL_INLINE void simdgroup_multiply(
    MSL_THREAD simdgroup_matrix<D, 8, 8> &d, simdgroup_matrix<A, 8, 8> a,
    simdgroup_matrix<B, 8, 8> b, MSL_SITE) {
  simdgroup_multiply_accumulate(d, a, b, simdgroup_matrix<D, 8, 8>((D)0), site);
}
// An operator has no parameter for the place of its call, so all products with
// this operator count as one call.
template <class T>
MSL_SUSPENDS MSL_INLINE simdgroup_matrix<T, 8, 8> operator*(
    simdgroup_matrix<T, 8, 8> a, simdgroup_matrix<T, 8, 8> b) {
  simdgroup_matrix<T, 8, 8> d;
  simdgroup_multiply(d, a, b);
  return d;
}

}  // namespace metal

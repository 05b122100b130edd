// <metal_matrix>: matrices of columns.
#pragma once

namespace metal {

template <class T, int Columns, int Rows = Columns>
struct matrix {
  using column = __msl::vec<T, Rows>;
  column columns[Columns];

  matrix() = default;
  explicit matrix(T diagonal) {
    for (int c = 0; c < Columns; ++c) {
      columns[c] = (column)(T)0;
      if (c < Rows) columns[c][c] = diagonal;
    }
  }
  template <class U>
  explicit matrix(matrix<U, Columns, Rows> other) {
    for (int c = 0; c < Columns; ++c)
      columns[c] = __msl::make<column>(other.columns[c]);
  }
  // From its columns, or from all components in the order of columns.
  template <class A, class B, class... Rest>
  matrix(A a, B b, Rest... rest) {
    constexpr int given = __msl::width<A>() + __msl::width<B>() +
                          (0 + ... + __msl::width<Rest>());
    static_assert(given == Columns * Rows,
                  "a matrix needs exactly as many components as it has");
    T all[Columns * Rows];
    int position = 0;
    __msl::append<T>(all, position, a);
    __msl::append<T>(all, position, b);
    (__msl::append<T>(all, position, rest), ...);
    for (int c = 0; c < Columns; ++c)
      for (int r = 0; r < Rows; ++r) columns[c][r] = all[c * Rows + r];
  }

  // For matrices in any address space, and for temporaries, which have none.
  column &operator[](int c) { return columns[c]; }
  const column &operator[](int c) const { return columns[c]; }
};

template <class T, int C, int R>
MSL_INLINE matrix<T, C, R> operator+(matrix<T, C, R> a, matrix<T, C, R> b) {
  for (int c = 0; c < C; ++c) a.columns[c] += b.columns[c];
  return a;
}
template <class T, int C, int R>
MSL_INLINE matrix<T, C, R> operator-(matrix<T, C, R> a, matrix<T, C, R> b) {
  for (int c = 0; c < C; ++c) a.columns[c] -= b.columns[c];
  return a;
}
template <class T, int C, int R>
MSL_INLINE matrix<T, C, R> operator-(matrix<T, C, R> a) {
  for (int c = 0; c < C; ++c) a.columns[c] = -a.columns[c];
  return a;
}
template <class T, int C, int R>
MSL_INLINE matrix<T, C, R> operator*(matrix<T, C, R> a,
                                     __msl::identity_t<T> b) {
  for (int c = 0; c < C; ++c) a.columns[c] *= b;
  return a;
}
template <class T, int C, int R>
MSL_INLINE matrix<T, C, R> operator*(__msl::identity_t<T> a,
                                     matrix<T, C, R> b) {
  return b * a;
}
template <class T, int C, int R>
MSL_INLINE __msl::vec<T, R> operator*(matrix<T, C, R> a,
                                      __msl::identity_t<__msl::vec<T, C>> b) {
  __msl::vec<T, R> sum = a.columns[0] * b[0];
  for (int c = 1; c < C; ++c) sum += a.columns[c] * b[c];
  return sum;
}
template <class T, int C, int R>
MSL_INLINE __msl::vec<T, C> operator*(__msl::identity_t<__msl::vec<T, R>> a,
                                      matrix<T, C, R> b) {
  __msl::vec<T, C> result;
  for (int c = 0; c < C; ++c) result[c] = dot(a, b.columns[c]);
  return result;
}
template <class T, int C, int K, int R>
MSL_INLINE matrix<T, C, R> operator*(matrix<T, K, R> a, matrix<T, C, K> b) {
  matrix<T, C, R> result;
  for (int c = 0; c < C; ++c) result.columns[c] = a * b.columns[c];
  return result;
}

template <class T, int C, int R>
MSL_INLINE matrix<T, R, C> transpose(matrix<T, C, R> a) {
  matrix<T, R, C> result;
  for (int c = 0; c < C; ++c)
    for (int r = 0; r < R; ++r) result.columns[r][c] = a.columns[c][r];
  return result;
}
template <class T>
MSL_INLINE T determinant(matrix<T, 2, 2> a) {
  return a.columns[0].x * a.columns[1].y - a.columns[1].x * a.columns[0].y;
}
template <class T>
MSL_INLINE T determinant(matrix<T, 3, 3> a) {
  return dot(a.columns[0], cross(a.columns[1], a.columns[2]));
}
template <class T>
MSL_INLINE T determinant(matrix<T, 4, 4> a) {
  T sum = 0;
  for (int c = 0; c < 4; ++c) {
    matrix<T, 3, 3> minor;
    for (int k = 0, m = 0; k < 4; ++k)
      if (k != c) minor.columns[m++] = a.columns[k].yzw;
    T term = a.columns[c].x * determinant(minor);
    sum = c % 2 == 0 ? sum + term : sum - term;
  }
  return sum;
}

}  // namespace metal

#define MSL_MATRIX_SIZES(X) \
  X(2, 2) X(2, 3) X(2, 4) X(3, 2) X(3, 3) X(3, 4) X(4, 2) X(4, 3) X(4, 4)
#define MSL_MATRIX_NAMES(C, R)                     \
  typedef metal::matrix<half, C, R> half##C##x##R; \
  typedef metal::matrix<float, C, R> float##C##x##R;
MSL_MATRIX_SIZES(MSL_MATRIX_NAMES)
namespace metal {
MSL_MATRIX_SIZES(MSL_MATRIX_NAMES)
}  // namespace metal
#undef MSL_MATRIX_NAMES

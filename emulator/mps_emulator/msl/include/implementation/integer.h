// <metal_integer>.
#pragma once

namespace metal {

// The functions below are overloads, not templates, because a program can call
// them with arguments of different types.  As in Metal, such a call converts
// the arguments or is ambiguous.
#define MSL_INTEGER(T)                                            \
  MSL_INLINE T max(T a, T b) { return a < b ? b : a; }            \
  MSL_INLINE T min(T a, T b) { return b < a ? b : a; }            \
  MSL_INLINE T clamp(T a, T b, T c) { return min(max(a, b), c); } \
  MSL_INLINE T abs(T a) { return a < (T)0 ? (T) - a : a; }        \
  MSL_VECTORS(2, T, max)                                          \
  MSL_VECTORS(2, T, min)                                          \
  MSL_VECTORS(3, T, clamp)                                        \
  MSL_VECTORS(1, T, abs)
MSL_INTEGERS(MSL_INTEGER)
#undef MSL_INTEGER

}  // namespace metal

namespace __msl {

template <class T>
using unsigned_of = __make_unsigned(T);
template <class T>
constexpr int bits() {
  return sizeof(T) * 8;
}

struct integer_scalar {
  template <class T>
  static T leading_zeros(T x) {
    using U = unsigned_of<T>;
    if (x == 0) return (T)bits<T>();
    return (T)(__builtin_clzl((ulong)(U)x) - (64 - bits<T>()));
  }
  template <class T>
  static T trailing_zeros(T x) {
    using U = unsigned_of<T>;
    return x == 0 ? (T)bits<T>() : (T)__builtin_ctzl((ulong)(U)x);
  }
  template <class T>
  static T population(T x) {
    using U = unsigned_of<T>;
    return (T)__builtin_popcountl((ulong)(U)x);
  }
};

}  // namespace __msl

namespace metal {

// The functions below return the type of their first argument.
#define MSL_INTEGER_1(name, implementation)                             \
  template <class T, class = enable_if_t<is_integral<T>::value>>        \
  MSL_INLINE T name(T a) {                                              \
    return __msl::integer_scalar::implementation(a);                    \
  }                                                                     \
  template <class T, int N, class = enable_if_t<is_integral<T>::value>> \
  MSL_INLINE __msl::vec<T, N> name(__msl::vec<T, N> a) {                \
    for (int i = 0; i < N; ++i)                                         \
      a[i] = __msl::integer_scalar::implementation((T)a[i]);            \
    return a;                                                           \
  }
MSL_INTEGER_1(clz, leading_zeros)
MSL_INTEGER_1(ctz, trailing_zeros)
MSL_INTEGER_1(popcount, population)
#undef MSL_INTEGER_1

#undef MSL_FLOAT_1
#undef MSL_FLOAT_2
#undef MSL_FLOAT_3
#undef MSL_HALF_1
#undef MSL_HALF_2
#undef MSL_HALF_3
#undef MSL_MATH_1
#undef MSL_MATH_2
#undef MSL_MATH_3

}  // namespace metal

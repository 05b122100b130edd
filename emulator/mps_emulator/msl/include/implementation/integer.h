// <metal_integer>.
#pragma once

namespace metal {

// Programs call these functions with arguments of mixed types, so they are
// overloads: a call converts its arguments, or is ambiguous, as in Metal.
#define MSL_INTEGER(T)                                            \
  MSL_INLINE T max(T a, T b) { return a < b ? b : a; }            \
  MSL_INLINE T min(T a, T b) { return b < a ? b : a; }            \
  MSL_INLINE T clamp(T a, T b, T c) { return min(max(a, b), c); } \
  MSL_INLINE T abs(T a) { return a < (T)0 ? (T) - a : a; }        \
  MSL_VECTORS_2(T, max)                                           \
  MSL_VECTORS_2(T, min)                                           \
  MSL_VECTORS_3(T, clamp)                                         \
  MSL_VECTORS_1(T, abs)
MSL_INTEGERS(MSL_INTEGER)
#undef MSL_INTEGER

}  // namespace metal

namespace __msl {

template <class T>
using unsigned_of = __make_unsigned(T);
template <class T>
struct wider_of;
#define MSL_WIDER(T, W) \
  template <>           \
  struct wider_of<T> {  \
    using type = W;     \
  };
MSL_WIDER(char, short)
MSL_WIDER(uchar, ushort)
MSL_WIDER(short, int)
MSL_WIDER(ushort, uint)
MSL_WIDER(int, long)
MSL_WIDER(uint, ulong)
MSL_WIDER(long, __int128)
MSL_WIDER(ulong, unsigned __int128)
#undef MSL_WIDER

template <class T>
constexpr int bits() {
  return sizeof(T) * 8;
}

struct integer_scalar {
  // `value`, or the value of T nearest to it.
  template <class T, class W>
  static T saturated(W value) {
    constexpr bool is_signed = (T)-1 < (T)0;
    constexpr W largest = ((W)1 << (bits<T>() - is_signed)) - 1;
    constexpr W smallest = is_signed ? -largest - 1 : (W)0;
    return (T)(value > largest ? largest : value < smallest ? smallest : value);
  }
  template <class T>
  static T add_saturated(T a, T b) {
    using W = typename wider_of<T>::type;
    return saturated<T>((W)((W)a + (W)b));
  }
  template <class T>
  static T sub_saturated(T a, T b) {
    if constexpr ((T)-1 < (T)0) {
      using W = typename wider_of<T>::type;
      return saturated<T>((W)((W)a - (W)b));
    } else {
      return a > b ? (T)(a - b) : (T)0;
    }
  }
  template <class T>
  static unsigned_of<T> difference(T a, T b) {
    using U = unsigned_of<T>;
    return a < b ? (U)((U)b - (U)a) : (U)((U)a - (U)b);
  }
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
  template <class T>
  static T reversed(T x) {
    using U = unsigned_of<T>;
    if constexpr (sizeof(T) == 1) return (T)__builtin_bitreverse8((U)x);
    if constexpr (sizeof(T) == 2) return (T)__builtin_bitreverse16((U)x);
    if constexpr (sizeof(T) == 4) return (T)__builtin_bitreverse32((U)x);
    if constexpr (sizeof(T) == 8) return (T)__builtin_bitreverse64((U)x);
  }
  template <class T>
  static T half_sum(T a, T b) {
    return (T)((a >> 1) + (b >> 1) + (a & b & 1));
  }
  template <class T>
  static T rounded_half_sum(T a, T b) {
    return (T)((a >> 1) + (b >> 1) + ((a | b) & 1));
  }
  template <class T>
  static T high_product(T a, T b) {
    using W = typename wider_of<T>::type;
    return (T)((W)a * (W)b >> bits<T>());
  }
  template <class T>
  static T multiply_add_saturated(T a, T b, T c) {
    using W = typename wider_of<T>::type;
    return saturated<T>((W)((W)a * (W)b + (W)c));
  }
  template <class T>
  static T rotated(T v, T i) {
    using U = unsigned_of<T>;
    uint n = (uint)i & (bits<T>() - 1);
    if (n == 0) return v;
    return (T)(U)((U)((U)v << n) | (U)((U)v >> (bits<T>() - n)));
  }
  template <class T>
  static T extracted(T x, uint offset, uint count) {
    if (count == 0) return (T)0;
    uint above = bits<T>() - offset - count;
    return (T)((T)((unsigned_of<T>)x << above) >> (bits<T>() - count));
  }
  template <class T>
  static T inserted(T base, T insert, uint offset, uint count) {
    using U = unsigned_of<T>;
    if (count == 0) return base;
    U mask = (U)((U)((U) ~(U)0 >> (bits<T>() - count)) << offset);
    return (T)(((U)base & (U)~mask) | ((U)((U)insert << offset) & mask));
  }
};

}  // namespace __msl

namespace metal {

// The first argument gives the type of these functions.
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
#define MSL_INTEGER_2(name, implementation)                                \
  template <class T, class = enable_if_t<is_integral<T>::value>>           \
  MSL_INLINE auto name(T a, __msl::identity_t<T> b) {                      \
    return __msl::integer_scalar::implementation(a, b);                    \
  }                                                                        \
  template <class T, int N, class = enable_if_t<is_integral<T>::value>>    \
  MSL_INLINE auto name(__msl::vec<T, N> a,                                 \
                       __msl::identity_t<__msl::vec<T, N>> b) {            \
    __msl::vec<decltype(name((T)0, (T)0)), N> result;                      \
    for (int i = 0; i < N; ++i)                                            \
      result[i] = __msl::integer_scalar::implementation((T)a[i], (T)b[i]); \
    return result;                                                         \
  }
MSL_INTEGER_1(clz, leading_zeros)
MSL_INTEGER_1(ctz, trailing_zeros)
MSL_INTEGER_1(popcount, population)
MSL_INTEGER_1(reverse_bits, reversed)
MSL_INTEGER_2(addsat, add_saturated)
MSL_INTEGER_2(subsat, sub_saturated)
MSL_INTEGER_2(absdiff, difference)
MSL_INTEGER_2(hadd, half_sum)
MSL_INTEGER_2(rhadd, rounded_half_sum)
MSL_INTEGER_2(mulhi, high_product)
MSL_INTEGER_2(rotate, rotated)
#undef MSL_INTEGER_1
#undef MSL_INTEGER_2

template <class T, class = enable_if_t<is_integral<T>::value>>
MSL_INLINE T extract_bits(T x, uint offset, uint bits) {
  return __msl::integer_scalar::extracted(x, offset, bits);
}
template <class T, int N, class = enable_if_t<is_integral<T>::value>>
MSL_INLINE __msl::vec<T, N> extract_bits(__msl::vec<T, N> x, uint offset,
                                         uint bits) {
  for (int i = 0; i < N; ++i)
    x[i] = __msl::integer_scalar::extracted((T)x[i], offset, bits);
  return x;
}
template <class T, class = enable_if_t<is_integral<T>::value>>
MSL_INLINE T insert_bits(T base, __msl::identity_t<T> insert, uint offset,
                         uint bits) {
  return __msl::integer_scalar::inserted(base, insert, offset, bits);
}
template <class T, int N, class = enable_if_t<is_integral<T>::value>>
MSL_INLINE __msl::vec<T, N> insert_bits(
    __msl::vec<T, N> base, __msl::identity_t<__msl::vec<T, N>> insert,
    uint offset, uint bits) {
  for (int i = 0; i < N; ++i)
    base[i] =
        __msl::integer_scalar::inserted((T)base[i], (T)insert[i], offset, bits);
  return base;
}

#define MSL_INTEGER_3(name, ...)                                           \
  template <class T,                                                       \
            class = enable_if_t<is_integral<__msl::element_of<T>>::value>> \
  MSL_INLINE T name(T a, __msl::identity_t<T> b, __msl::identity_t<T> c) { \
    return __VA_ARGS__;                                                    \
  }
MSL_INTEGER_3(madhi, mulhi(a, b) + c)
MSL_INTEGER_3(max3, max(a, max(b, c)))
MSL_INTEGER_3(min3, min(a, min(b, c)))
MSL_INTEGER_3(median3, max(min(a, b), min(max(a, b), c)))
#undef MSL_INTEGER_3

template <class T, class = enable_if_t<is_integral<T>::value>>
MSL_INLINE T madsat(T a, __msl::identity_t<T> b, __msl::identity_t<T> c) {
  return __msl::integer_scalar::multiply_add_saturated(a, b, c);
}
template <class T, int N, class = enable_if_t<is_integral<T>::value>>
MSL_INLINE __msl::vec<T, N> madsat(__msl::vec<T, N> a,
                                   __msl::identity_t<__msl::vec<T, N>> b,
                                   __msl::identity_t<__msl::vec<T, N>> c) {
  for (int i = 0; i < N; ++i)
    a[i] = __msl::integer_scalar::multiply_add_saturated((T)a[i], (T)b[i],
                                                         (T)c[i]);
  return a;
}

// The product of the low 24 bits of each factor.
template <class T,
          class = enable_if_t<is_same<__msl::element_of<T>, int>::value ||
                              is_same<__msl::element_of<T>, uint>::value>>
MSL_INLINE T mul24(T a, __msl::identity_t<T> b) {
  return (a << 8 >> 8) * (b << 8 >> 8);
}
template <class T,
          class = enable_if_t<is_same<__msl::element_of<T>, int>::value ||
                              is_same<__msl::element_of<T>, uint>::value>>
MSL_INLINE T mad24(T a, __msl::identity_t<T> b, __msl::identity_t<T> c) {
  return mul24(a, b) + c;
}

#undef MSL_VECTORS_1
#undef MSL_VECTORS_2
#undef MSL_VECTORS_3
#undef MSL_HALF_1
#undef MSL_HALF_2
#undef MSL_HALF_3
#undef MSL_MATH_1
#undef MSL_MATH_2
#undef MSL_MATH_3

}  // namespace metal

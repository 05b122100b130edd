// <metal_compute> and <metal_simdgroup>.
#pragma once

// The last parameter of every function that waits for other threads.  Programs
// do not pass this argument: its default value is the site, the place of the
// call in the source.  The executor needs the site because threads meet only at
// the same call.
#define MSL_SITE \
  ulong site = (ulong) __builtin_LINE() << 32 | (uint) __builtin_COLUMN()
// The annotation of functions that wait for other threads.  From this
// annotation, the front end knows which kernels need fibers.
#define MSL_SUSPENDS MSL_NOTE("msl.suspends")

namespace metal {

MSL_SUSPENDS MSL_INLINE void threadgroup_barrier(mem_flags flags, MSL_SITE) {
  __msl::target::threadgroup_barrier((uint)flags, site);
}
MSL_SUSPENDS MSL_INLINE void simdgroup_barrier(mem_flags flags, MSL_SITE) {
  __msl::target::simdgroup_barrier((uint)flags, site);
}

}  // namespace metal

namespace __msl {

#define MSL_OPERATION(name, ...) \
  struct name {                  \
    template <class T>           \
    static T apply(T a, T b) {   \
      return __VA_ARGS__;        \
    }                            \
  };
MSL_OPERATION(sum_of, a + b)
MSL_OPERATION(product_of, a *b)
MSL_OPERATION(least_of, metal::min(a, b))
MSL_OPERATION(greatest_of, metal::max(a, b))
MSL_OPERATION(and_of, a &b)
MSL_OPERATION(or_of, a | b)
MSL_OPERATION(xor_of, a ^ b)
#undef MSL_OPERATION

// min and max have no overload for bfloat.
template <>
MSL_INLINE bfloat least_of::apply(bfloat a, bfloat b) {
  return (bfloat)metal::min((float)a, (float)b);
}
template <>
MSL_INLINE bfloat greatest_of::apply(bfloat a, bfloat b) {
  return (bfloat)metal::max((float)a, (float)b);
}

// Whether the lanes of a simdgroup can exchange values of type T.  T must be a
// floating-point number, an integer of up to 32 bits, or a vector of these.
template <class T>
constexpr bool exchangeable() {
  using E = element_of<T>;
  return __is_arithmetic(E) && !__is_same(E, bool) && sizeof(E) <= 4;
}
template <class T>
MSL_INLINE T largest_value() {
  using E = element_of<T>;
  if constexpr (__is_integral(E))
    return (T)metal::numeric_limits<E>::max();
  else
    return (T)metal::numeric_limits<E>::infinity();
}
template <class T>
MSL_INLINE T smallest_value() {
  using E = element_of<T>;
  if constexpr (__is_integral(E))
    return (T)metal::numeric_limits<E>::lowest();
  else
    return (T)(E)-metal::numeric_limits<E>::infinity();
}

}  // namespace __msl

namespace metal {

// The macros define functions for the types T that lanes can exchange.
#define MSL_REDUCTION(name, operation, neutral)                          \
  template <class T, class = enable_if_t<__msl::exchangeable<T>()>>      \
  MSL_SUSPENDS MSL_INLINE T simd_##name(T data, MSL_SITE) {              \
    return __msl::target::reduce<__msl::operation>(data, neutral, site); \
  }
#define MSL_BITWISE(name, operation, neutral)                                  \
  template <class T, class = enable_if_t<__msl::exchangeable<T>() &&           \
                                         __is_integral(__msl::element_of<T>)>> \
  MSL_SUSPENDS MSL_INLINE T simd_##name(T data, MSL_SITE) {                    \
    return __msl::target::reduce<__msl::operation>(data, neutral, site);       \
  }
#define MSL_SCAN(name, operation, inclusive, neutral)               \
  template <class T, class = enable_if_t<__msl::exchangeable<T>()>> \
  MSL_SUSPENDS MSL_INLINE T simd_prefix_##name(T data, MSL_SITE) {  \
    return __msl::target::scan<__msl::operation, inclusive>(        \
        data, (T)(__msl::element_of<T>)neutral, site);              \
  }
// Defines a function that returns the data of lane `lane`.  `lane` and `inside`
// are expressions that can use `delta` and `own`; `own` is the index of the
// calling lane.  A lane for which `inside` is false gets its own data.
#define MSL_SHUFFLE(name, inside, lane)                                       \
  template <class T, class = enable_if_t<__msl::exchangeable<T>()>>           \
  MSL_SUSPENDS MSL_INLINE T simd_##name(T data, ushort delta, MSL_SITE) {     \
    uint own = __msl::target::simd_lane();                                    \
    return __msl::target::shuffle(data, (inside) ? (uint)(lane) : own, site); \
  }
#define MSL_FILL(name, lane, from_filling)                                    \
  template <class T, class = enable_if_t<__msl::exchangeable<T>()>>           \
  MSL_SUSPENDS MSL_INLINE T simd_shuffle_and_fill_##name(                     \
      T data, __msl::identity_t<T> filling, ushort delta, ushort modulo = 32, \
      MSL_SITE) {                                                             \
    uint whole = __msl::target::simd_lane();                                  \
    uint segment = whole / modulo * modulo;                                   \
    uint own = whole % modulo;                                                \
    return __msl::target::shuffle_two(data, filling, from_filling,            \
                                      segment + (uint)(lane) % modulo, site); \
  }

MSL_REDUCTION(sum, sum_of, (T)(__msl::element_of<T>)0)
MSL_REDUCTION(product, product_of, (T)(__msl::element_of<T>)1)
MSL_REDUCTION(min, least_of, __msl::largest_value<T>())
MSL_REDUCTION(max, greatest_of, __msl::smallest_value<T>())
MSL_BITWISE(and, and_of, (T)(__msl::element_of<T>)-1)
MSL_BITWISE(or, or_of, (T)(__msl::element_of<T>)0)
MSL_BITWISE(xor, xor_of, (T)(__msl::element_of<T>)0)
MSL_SCAN(inclusive_sum, sum_of, true, 0)
MSL_SCAN(exclusive_sum, sum_of, false, 0)
MSL_SCAN(inclusive_product, product_of, true, 1)
MSL_SCAN(exclusive_product, product_of, false, 1)
MSL_SHUFFLE(shuffle, true, delta)
MSL_SHUFFLE(shuffle_xor, true, own ^ delta)
MSL_SHUFFLE(shuffle_up, own >= delta, own - delta)
MSL_SHUFFLE(shuffle_down, own + delta < 32, own + delta)
MSL_SHUFFLE(shuffle_rotate_up, true, (own - delta) % 32)
MSL_SHUFFLE(shuffle_rotate_down, true, (own + delta) % 32)
MSL_FILL(up, own - delta, own < delta)
MSL_FILL(down, own + delta, own + delta >= modulo)

#undef MSL_BITWISE
#undef MSL_FILL
#undef MSL_REDUCTION
#undef MSL_SCAN
#undef MSL_SHUFFLE

template <class T, class = enable_if_t<__msl::exchangeable<T>()>>
MSL_SUSPENDS MSL_INLINE T simd_broadcast(T data, ushort lane, MSL_SITE) {
  return __msl::target::broadcast(data, (uint)lane, site);
}

class simd_vote {
 public:
  using vote_t = ulong;
  explicit constexpr simd_vote(vote_t v = 0) : votes(v) {}
  explicit constexpr operator vote_t() const { return votes; }
  bool all() const { return (uint)votes == 0xffffffffu; }
  bool any() const { return (uint)votes != 0; }

 private:
  vote_t votes;
};

MSL_SUSPENDS MSL_INLINE simd_vote simd_ballot(bool expr, MSL_SITE) {
  return simd_vote(__msl::target::ballot(expr, site));
}
MSL_SUSPENDS MSL_INLINE bool simd_all(bool expr, MSL_SITE) {
  return __msl::target::ballot(!expr, site) == 0;
}
MSL_SUSPENDS MSL_INLINE bool simd_any(bool expr, MSL_SITE) {
  return __msl::target::ballot(expr, site) != 0;
}

}  // namespace metal

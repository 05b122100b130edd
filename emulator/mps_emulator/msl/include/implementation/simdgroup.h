// <metal_compute>, <metal_simdgroup> and <metal_quadgroup>.
#pragma once

// The last parameter of every function that waits for other threads: the place
// of the call, by default, because threads meet only at the same call. Programs
// do not pass this parameter.
#define MSL_SITE \
  ulong site = (ulong) __builtin_LINE() << 32 | (uint) __builtin_COLUMN()
// The front end looks for functions with this annotation.
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

#if __METAL_VERSION__ >= 310
// min and max have no overload for bfloat.
template <>
MSL_INLINE bfloat least_of::apply(bfloat a, bfloat b) {
  return (bfloat)metal::min((float)a, (float)b);
}
template <>
MSL_INLINE bfloat greatest_of::apply(bfloat a, bfloat b) {
  return (bfloat)metal::max((float)a, (float)b);
}
#endif

// The types that lanes of a SIMD group exchange: scalars and vectors of
// integers of up to 32 bits, and of floating-point numbers.
template <class T>
constexpr bool exchangeable() {
  using E = element_of<T>;
  return __is_arithmetic(E) && !__is_same(E, bool) && sizeof(E) <= 4;
}
// Quadgroups exchange 64-bit integers as well.
template <class T>
constexpr bool quad_exchangeable() {
  using E = element_of<T>;
  return __is_arithmetic(E) && !__is_same(E, bool);
}
template <class T>
constexpr bool integral_components() {
  return __is_integral(element_of<T>);
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

// The lane that a shuffle reads, for groups of `width` lanes.
template <uint width>
struct lane_of {
  static uint first() { return target::simd_lane() / width * width; }
  static uint own() { return target::simd_lane() % width; }
  static uint index(uint i) { return first() + i % width; }
};

// Bit i: lane i of this lane's group is active and its `condition` holds.
template <uint width>
MSL_INLINE uint group_ballot(bool condition, ulong site) {
  uint votes = target::ballot(condition, site);
  if constexpr (width == 32)
    return votes;
  else
    return votes >> lane_of<width>::first() & ((1u << width) - 1);
}

}  // namespace __msl

namespace metal {

// `group` is simd or quad, `width` its number of lanes, `accepted` the trait of
// the types that its lanes exchange.
#define MSL_GROUP_REDUCTION(group, width, accepted, name, operation, neutral) \
  template <class T, class = enable_if_t<__msl::accepted<T>()>>               \
  MSL_SUSPENDS MSL_INLINE T group##_##name(T data, MSL_SITE) {                \
    return __msl::target::reduce<__msl::operation, width>(data, neutral,      \
                                                          site);              \
  }
#define MSL_GROUP_BITWISE(group, width, accepted, name, operation, neutral) \
  template <class T, class = enable_if_t<__msl::accepted<T>() &&            \
                                         __msl::integral_components<T>()>>  \
  MSL_SUSPENDS MSL_INLINE T group##_##name(T data, MSL_SITE) {              \
    return __msl::target::reduce<__msl::operation, width>(data, neutral,    \
                                                          site);            \
  }
#define MSL_GROUP_SCAN(group, width, accepted, name, operation, inclusive, \
                       neutral)                                            \
  template <class T, class = enable_if_t<__msl::accepted<T>()>>            \
  MSL_SUSPENDS MSL_INLINE T group##_prefix_##name(T data, MSL_SITE) {      \
    return __msl::target::scan<__msl::operation, width, inclusive>(        \
        data, neutral, site);                                              \
  }
// A shuffle from lane `lane`, an expression of `delta` and own(), the index of
// this lane in its group.  Lanes for which `inside` is false keep their data.
#define MSL_GROUP_SHUFFLE(group, width, accepted, name, inside, lane)        \
  template <class T, class = enable_if_t<__msl::accepted<T>()>>              \
  MSL_SUSPENDS MSL_INLINE T group##_##name(T data, ushort delta, MSL_SITE) { \
    using group_lane = __msl::lane_of<width>;                                \
    uint own = group_lane::own();                                            \
    return __msl::target::shuffle(                                           \
        data, group_lane::index((inside) ? (uint)(lane) : own), site);       \
  }
#define MSL_GROUP_FILL(group, width, accepted, name, lane, from_filling) \
  template <class T, class = enable_if_t<__msl::accepted<T>()>>          \
  MSL_SUSPENDS MSL_INLINE T group##_shuffle_and_fill_##name(             \
      T data, __msl::identity_t<T> filling, ushort delta,                \
      ushort modulo = width, MSL_SITE) {                                 \
    using group_lane = __msl::lane_of<width>;                            \
    uint whole = group_lane::own();                                      \
    uint segment = whole / modulo * modulo;                              \
    uint own = whole % modulo;                                           \
    return __msl::target::shuffle_two(                                   \
        data, filling, from_filling,                                     \
        group_lane::index(segment + (uint)(lane) % modulo), site);       \
  }
#define MSL_GROUP(group, width, accepted)                                      \
  MSL_GROUP_REDUCTION(group, width, accepted, sum, sum_of,                     \
                      (T)(__msl::element_of<T>)0)                              \
  MSL_GROUP_REDUCTION(group, width, accepted, product, product_of,             \
                      (T)(__msl::element_of<T>)1)                              \
  MSL_GROUP_REDUCTION(group, width, accepted, min, least_of,                   \
                      __msl::largest_value<T>())                               \
  MSL_GROUP_REDUCTION(group, width, accepted, max, greatest_of,                \
                      __msl::smallest_value<T>())                              \
  MSL_GROUP_BITWISE(group, width, accepted, and, and_of,                       \
                    (T)(__msl::element_of<T>)-1)                               \
  MSL_GROUP_BITWISE(group, width, accepted, or, or_of,                         \
                    (T)(__msl::element_of<T>)0)                                \
  MSL_GROUP_BITWISE(group, width, accepted, xor, xor_of,                       \
                    (T)(__msl::element_of<T>)0)                                \
  MSL_GROUP_SCAN(group, width, accepted, inclusive_sum, sum_of, true,          \
                 (T)(__msl::element_of<T>)0)                                   \
  MSL_GROUP_SCAN(group, width, accepted, exclusive_sum, sum_of, false,         \
                 (T)(__msl::element_of<T>)0)                                   \
  MSL_GROUP_SCAN(group, width, accepted, inclusive_product, product_of, true,  \
                 (T)(__msl::element_of<T>)1)                                   \
  MSL_GROUP_SCAN(group, width, accepted, exclusive_product, product_of, false, \
                 (T)(__msl::element_of<T>)1)                                   \
  MSL_GROUP_SHUFFLE(group, width, accepted, shuffle, true, delta)              \
  MSL_GROUP_SHUFFLE(group, width, accepted, shuffle_xor, true, own ^ delta)    \
  MSL_GROUP_SHUFFLE(group, width, accepted, shuffle_up, own >= delta,          \
                    own - delta)                                               \
  MSL_GROUP_SHUFFLE(group, width, accepted, shuffle_down, own + delta < width, \
                    own + delta)                                               \
  MSL_GROUP_SHUFFLE(group, width, accepted, shuffle_rotate_up, true,           \
                    own - delta)                                               \
  MSL_GROUP_SHUFFLE(group, width, accepted, shuffle_rotate_down, true,         \
                    own + delta)                                               \
  MSL_GROUP_SHUFFLE(group, width, accepted, broadcast, true, delta)            \
  MSL_GROUP_FILL(group, width, accepted, up, own - delta, own < delta)         \
  MSL_GROUP_FILL(group, width, accepted, down, own + delta,                    \
                 own + delta >= modulo)                                        \
  template <class T, class = enable_if_t<__msl::accepted<T>()>>                \
  MSL_SUSPENDS MSL_INLINE T group##_broadcast_first(T data, MSL_SITE) {        \
    uint first = ctz(__msl::group_ballot<width>(true, site));                  \
    return __msl::target::shuffle(data, __msl::lane_of<width>::index(first),   \
                                  site);                                       \
  }

MSL_GROUP(simd, 32, exchangeable)
MSL_GROUP(quad, 4, quad_exchangeable)

#undef MSL_GROUP
#undef MSL_GROUP_BITWISE
#undef MSL_GROUP_FILL
#undef MSL_GROUP_REDUCTION
#undef MSL_GROUP_SCAN
#undef MSL_GROUP_SHUFFLE

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

class quad_vote {
 public:
  using vote_t = uint;
  explicit constexpr quad_vote(vote_t v = 0) : votes(v & 15) {}
  explicit constexpr operator vote_t() const { return votes; }
  bool all() const { return votes == 15; }
  bool any() const { return votes != 0; }

 private:
  vote_t votes;
};

#define MSL_VOTES(group, width)                                                \
  MSL_SUSPENDS MSL_INLINE group##_vote group##_ballot(bool expr, MSL_SITE) {   \
    return group##_vote(__msl::group_ballot<width>(expr, site));               \
  }                                                                            \
  MSL_SUSPENDS MSL_INLINE group##_vote group##_active_threads_mask(MSL_SITE) { \
    return group##_vote(__msl::group_ballot<width>(true, site));               \
  }                                                                            \
  MSL_SUSPENDS MSL_INLINE bool group##_all(bool expr, MSL_SITE) {              \
    return __msl::group_ballot<width>(!expr, site) == 0;                       \
  }                                                                            \
  MSL_SUSPENDS MSL_INLINE bool group##_any(bool expr, MSL_SITE) {              \
    return __msl::group_ballot<width>(expr, site) != 0;                        \
  }                                                                            \
  MSL_SUSPENDS MSL_INLINE bool group##_is_first(MSL_SITE) {                    \
    return (uint)ctz(__msl::group_ballot<width>(true, site)) ==                \
           __msl::lane_of<width>::own();                                       \
  }
MSL_VOTES(simd, 32)
MSL_VOTES(quad, 4)
#undef MSL_VOTES

// The compiler's builtins behind simd_and, _or and _xor take a float too.
#define MSL_OF_BITS(name)                                          \
  template <class T>                                               \
  MSL_SUSPENDS MSL_INLINE T __##name##_of_bits(T data, MSL_SITE) { \
    if constexpr (is_same<T, float>::value)                        \
      return as_type<T>(::metal::name(as_type<uint>(data), site)); \
    else                                                           \
      return ::metal::name(data, site);                            \
  }
MSL_OF_BITS(simd_and)
MSL_OF_BITS(simd_or)
MSL_OF_BITS(simd_xor)
#undef MSL_OF_BITS

}  // namespace metal

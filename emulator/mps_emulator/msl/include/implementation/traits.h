// <metal_type_traits> and <metal_limits>.
#pragma once

namespace metal {

template <class T, T v>
struct integral_constant {
  static constexpr MSL_CONSTANT T value = v;
  using value_type = T;
  using type = integral_constant;
  constexpr operator T() const { return v; }
  constexpr T operator()() const { return v; }
};
template <bool b>
using bool_constant = integral_constant<bool, b>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

template <bool condition, class T = void>
using enable_if = __msl::enable_if<condition, T>;
template <bool condition, class T = void>
using enable_if_t = __msl::enable_if_t<condition, T>;

template <bool condition, class T, class F>
struct conditional {
  using type = T;
};
template <class T, class F>
struct conditional<false, T, F> {
  using type = F;
};
template <bool condition, class T, class F>
using conditional_t = typename conditional<condition, T, F>::type;

template <class T, class U>
struct is_same : bool_constant<__is_same(T, U)> {};
template <class From, class To>
struct is_convertible : bool_constant<__is_convertible_to(From, To)> {};
#define MSL_REMOVE(name)      \
  template <class T>          \
  struct name {               \
    using type = __##name(T); \
  };                          \
  template <class T>          \
  using name##_t = typename name<T>::type;
MSL_REMOVE(remove_const)
MSL_REMOVE(remove_volatile)
MSL_REMOVE(remove_cv)
#undef MSL_REMOVE
#define MSL_TRAIT(name) \
  template <class T>    \
  struct name : bool_constant<__##name(T)> {};
MSL_TRAIT(is_pointer)
MSL_TRAIT(is_enum)
MSL_TRAIT(is_integral)
MSL_TRAIT(is_floating_point)
MSL_TRAIT(is_signed)
MSL_TRAIT(is_unsigned)
#undef MSL_TRAIT

template <class T>
struct is_arithmetic
    : bool_constant<is_integral<T>::value || is_floating_point<T>::value> {};
template <class T>
struct is_scalar : bool_constant<is_arithmetic<T>::value || is_enum<T>::value ||
                                 is_pointer<T>::value> {};
// Apple's names for the conjunction and the disjunction of traits begin with an
// underscore.
template <class... T>
struct _conjunction : bool_constant<(true && ... && T::value)> {};
template <class... T>
struct _disjunction : bool_constant<(false || ... || T::value)> {};
template <class T>
struct is_vector : bool_constant<__msl::components<T>::count != 0> {};

template <class T, class U>
constexpr MSL_CONSTANT bool is_same_v = is_same<T, U>::value;
template <class From, class To>
constexpr MSL_CONSTANT bool is_convertible_v = is_convertible<From, To>::value;
#define MSL_TRAIT_VALUE(name) \
  template <class T>          \
  constexpr MSL_CONSTANT bool name##_v = name<T>::value;
MSL_TRAIT_VALUE(is_integral)
MSL_TRAIT_VALUE(is_floating_point)
MSL_TRAIT_VALUE(is_arithmetic)
MSL_TRAIT_VALUE(is_signed)
MSL_TRAIT_VALUE(is_unsigned)
MSL_TRAIT_VALUE(is_scalar)
#undef MSL_TRAIT_VALUE

template <class T>
struct numeric_limits;

#define MSL_INTEGER_LIMITS(T, smallest, largest)     \
  template <>                                        \
  struct numeric_limits<T> {                         \
    static constexpr T min() { return smallest; }    \
    static constexpr T max() { return largest; }     \
    static constexpr T lowest() { return smallest; } \
  };
MSL_INTEGER_LIMITS(bool, false, true)
MSL_INTEGER_LIMITS(char, -128, 127)
MSL_INTEGER_LIMITS(signed char, -128, 127)
MSL_INTEGER_LIMITS(uchar, 0, 255)
MSL_INTEGER_LIMITS(short, -32768, 32767)
MSL_INTEGER_LIMITS(ushort, 0, 65535)
MSL_INTEGER_LIMITS(int, -2147483647 - 1, 2147483647)
MSL_INTEGER_LIMITS(uint, 0, 0xffffffffu)
MSL_INTEGER_LIMITS(long, -0x7fffffffffffffffl - 1, 0x7fffffffffffffffl)
MSL_INTEGER_LIMITS(ulong, 0, 0xfffffffffffffffful)
#undef MSL_INTEGER_LIMITS

#define MSL_FLOAT_LIMITS(T, smallest, largest, epsilon_)             \
  template <>                                                        \
  struct numeric_limits<T> {                                         \
    static constexpr T min() { return (T)smallest; }                 \
    static constexpr T max() { return (T)largest; }                  \
    static constexpr T lowest() { return (T) - largest; }            \
    static constexpr T epsilon() { return (T)epsilon_; }             \
    static constexpr T infinity() { return (T)__builtin_inff(); }    \
    static constexpr T quiet_NaN() { return (T)__builtin_nanf(""); } \
  };
MSL_FLOAT_LIMITS(float, 0x1p-126f, 0x1.fffffep127f, 0x1p-23f)
MSL_FLOAT_LIMITS(half, 0x1p-14f, 0x1.ffcp15f, 0x1p-10f)
MSL_FLOAT_LIMITS(bfloat, 0x1p-126f, 0x1.fep127f, 0x1p-7f)
#undef MSL_FLOAT_LIMITS

template <class T>
T declval();

}  // namespace metal

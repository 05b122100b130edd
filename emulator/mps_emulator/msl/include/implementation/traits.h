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

template <class...>
struct _disjunction : false_type {};
template <class T, class... Rest>
struct _disjunction<T, Rest...>
    : conditional_t<T::value, T, _disjunction<Rest...>> {};
template <class...>
struct _conjunction : true_type {};
template <class T, class... Rest>
struct _conjunction<T, Rest...>
    : conditional_t<T::value, _conjunction<Rest...>, T> {};
template <class T>
struct _negation : bool_constant<!T::value> {};

template <class T, class U>
struct is_same : bool_constant<__is_same(T, U)> {};
template <class T>
struct is_const : bool_constant<__is_const(T)> {};
template <class T>
struct is_volatile : bool_constant<__is_volatile(T)> {};
template <class T>
struct is_void : bool_constant<__is_void(T)> {};
template <class T>
struct is_array : bool_constant<__is_array(T)> {};
template <class T>
struct is_pointer : bool_constant<__is_pointer(T)> {};
template <class T>
struct is_reference : bool_constant<__is_reference(T)> {};
template <class T>
struct is_lvalue_reference : bool_constant<__is_lvalue_reference(T)> {};
template <class T>
struct is_rvalue_reference : bool_constant<__is_rvalue_reference(T)> {};
template <class T>
struct is_enum : bool_constant<__is_enum(T)> {};
template <class T>
struct is_class : bool_constant<__is_class(T)> {};
template <class T>
struct is_union : bool_constant<__is_union(T)> {};
template <class T>
struct is_function : bool_constant<__is_function(T)> {};
template <class T>
struct is_trivially_copyable : bool_constant<__is_trivially_copyable(T)> {};
template <class B, class D>
struct is_base_of : bool_constant<__is_base_of(B, D)> {};
template <class From, class To>
struct is_convertible : bool_constant<__is_convertible(From, To)> {};

template <class T>
struct remove_const {
  using type = __remove_const(T);
};
template <class T>
struct remove_volatile {
  using type = __remove_volatile(T);
};
template <class T>
struct remove_cv {
  using type = __remove_cv(T);
};
template <class T>
struct remove_reference {
  using type = __remove_reference_t(T);
};
template <class T>
struct remove_pointer {
  using type = __remove_pointer(T);
};
template <class T>
struct remove_extent {
  using type = __remove_extent(T);
};
template <class T>
struct decay {
  using type = __decay(T);
};
template <class T>
struct underlying_type {
  using type = __underlying_type(T);
};
template <class T>
struct make_signed {
  using type = __make_signed(T);
};
template <class T>
struct make_unsigned {
  using type = __make_unsigned(T);
};
// The type without the address space that it may stand in.
template <class T>
struct remove_address_space {
  using type = T;
};
template <class T>
struct remove_address_space<MSL_DEVICE T> {
  using type = T;
};
template <class T>
struct remove_address_space<__global T> {
  using type = T;
};
template <class T>
struct remove_address_space<MSL_THREADGROUP T> {
  using type = T;
};
template <class T>
struct remove_address_space<MSL_THREAD T> {
  using type = T;
};
template <class T>
using remove_const_t = typename remove_const<T>::type;
template <class T>
using remove_volatile_t = typename remove_volatile<T>::type;
template <class T>
using remove_cv_t = typename remove_cv<T>::type;
template <class T>
using remove_reference_t = typename remove_reference<T>::type;
template <class T>
using remove_pointer_t = typename remove_pointer<T>::type;
template <class T>
using remove_extent_t = typename remove_extent<T>::type;
template <class T>
using decay_t = typename decay<T>::type;
template <class T>
using underlying_type_t = typename underlying_type<T>::type;
template <class T>
using make_signed_t = typename make_signed<T>::type;
template <class T>
using make_unsigned_t = typename make_unsigned<T>::type;
template <class T>
using remove_address_space_t = typename remove_address_space<T>::type;
template <class T>
using remove_addrspace = remove_address_space<T>;
template <class T>
using remove_addrspace_t = remove_address_space_t<T>;

// A value that is the same in all threads of a simdgroup or threadgroup; that
// it is, is for the program to see to.
template <class T>
using uniform = T;
template <class T>
constexpr T make_uniform(T value) {
  return value;
}

template <class T>
struct is_integral : bool_constant<__is_integral(T)> {};
template <class T>
struct is_floating_point : bool_constant<__is_floating_point(T)> {};
template <class T>
struct is_arithmetic
    : bool_constant<is_integral<T>::value || is_floating_point<T>::value> {};
template <class T>
struct is_signed : bool_constant<__is_signed(T)> {};
template <class T>
struct is_unsigned : bool_constant<__is_unsigned(T)> {};
template <class T>
struct is_scalar : bool_constant<is_arithmetic<T>::value || is_enum<T>::value ||
                                 is_pointer<T>::value> {};
template <class T>
struct is_vector : bool_constant<__msl::components<T>::count != 0> {};

template <class T, class U>
constexpr MSL_CONSTANT bool is_same_v = is_same<T, U>::value;
template <class T>
constexpr MSL_CONSTANT bool is_integral_v = is_integral<T>::value;
template <class T>
constexpr MSL_CONSTANT bool is_floating_point_v = is_floating_point<T>::value;
template <class T>
constexpr MSL_CONSTANT bool is_arithmetic_v = is_arithmetic<T>::value;
template <class T>
constexpr MSL_CONSTANT bool is_signed_v = is_signed<T>::value;
template <class T>
constexpr MSL_CONSTANT bool is_unsigned_v = is_unsigned<T>::value;
template <class T>
constexpr MSL_CONSTANT bool is_enum_v = is_enum<T>::value;
template <class T>
constexpr MSL_CONSTANT bool is_pointer_v = is_pointer<T>::value;
template <class T>
constexpr MSL_CONSTANT bool is_scalar_v = is_scalar<T>::value;
template <class From, class To>
constexpr MSL_CONSTANT bool is_convertible_v = is_convertible<From, To>::value;

template <class T>
struct numeric_limits {
  static constexpr MSL_CONSTANT bool is_specialized = false;
};

#define MSL_INTEGER_LIMITS(T, smallest, largest, bits)                  \
  template <>                                                           \
  struct numeric_limits<T> {                                            \
    static constexpr MSL_CONSTANT bool is_specialized = true;           \
    static constexpr MSL_CONSTANT bool is_signed = (T) - 1 < (T)0;      \
    static constexpr MSL_CONSTANT bool is_integer = true;               \
    static constexpr MSL_CONSTANT bool is_exact = true;                 \
    static constexpr MSL_CONSTANT bool has_infinity = false;            \
    static constexpr MSL_CONSTANT bool has_quiet_NaN = false;           \
    static constexpr MSL_CONSTANT int digits = bits;                    \
    static constexpr MSL_CONSTANT int digits10 = bits * 30103 / 100000; \
    static constexpr MSL_CONSTANT int radix = 2;                        \
    static constexpr T min() { return smallest; }                       \
    static constexpr T max() { return largest; }                        \
    static constexpr T lowest() { return smallest; }                    \
  };
MSL_INTEGER_LIMITS(bool, false, true, 1)
MSL_INTEGER_LIMITS(char, -128, 127, 7)
MSL_INTEGER_LIMITS(signed char, -128, 127, 7)
MSL_INTEGER_LIMITS(uchar, 0, 255, 8)
MSL_INTEGER_LIMITS(short, -32768, 32767, 15)
MSL_INTEGER_LIMITS(ushort, 0, 65535, 16)
MSL_INTEGER_LIMITS(int, -2147483647 - 1, 2147483647, 31)
MSL_INTEGER_LIMITS(uint, 0, 0xffffffffu, 32)
MSL_INTEGER_LIMITS(long, -0x7fffffffffffffffl - 1, 0x7fffffffffffffffl, 63)
MSL_INTEGER_LIMITS(ulong, 0, 0xfffffffffffffffful, 64)
#undef MSL_INTEGER_LIMITS

#define MSL_FLOAT_LIMITS(T, smallest, largest, epsilon_, denormal, bits,      \
                         exponent)                                            \
  template <>                                                                 \
  struct numeric_limits<T> {                                                  \
    static constexpr MSL_CONSTANT bool is_specialized = true;                 \
    static constexpr MSL_CONSTANT bool is_signed = true;                      \
    static constexpr MSL_CONSTANT bool is_integer = false;                    \
    static constexpr MSL_CONSTANT bool is_exact = false;                      \
    static constexpr MSL_CONSTANT bool has_infinity = true;                   \
    static constexpr MSL_CONSTANT bool has_quiet_NaN = true;                  \
    static constexpr MSL_CONSTANT int digits = bits;                          \
    static constexpr MSL_CONSTANT int digits10 = (bits - 1) * 30103 / 100000; \
    static constexpr MSL_CONSTANT int max_exponent = exponent;                \
    static constexpr MSL_CONSTANT int min_exponent = 3 - exponent;            \
    static constexpr MSL_CONSTANT int radix = 2;                              \
    static constexpr T min() { return (T)smallest; }                          \
    static constexpr T max() { return (T)largest; }                           \
    static constexpr T lowest() { return (T) - largest; }                     \
    static constexpr T epsilon() { return (T)epsilon_; }                      \
    static constexpr T round_error() { return (T)0.5f; }                      \
    static constexpr T denorm_min() { return (T)denormal; }                   \
    static constexpr T infinity() { return (T)__builtin_inff(); }             \
    static constexpr T quiet_NaN() { return (T)__builtin_nanf(""); }          \
    static constexpr T signaling_NaN() { return (T)__builtin_nanf(""); }      \
  };
MSL_FLOAT_LIMITS(float, 0x1p-126f, 0x1.fffffep127f, 0x1p-23f, 0x1p-149f, 24,
                 128)
MSL_FLOAT_LIMITS(half, 0x1p-14f, 0x1.ffcp15f, 0x1p-10f, 0x1p-24f, 11, 16)
#if __METAL_VERSION__ >= 310
MSL_FLOAT_LIMITS(bfloat, 0x1p-126f, 0x1.fep127f, 0x1p-7f, 0x1p-133f, 8, 128)
#endif
#undef MSL_FLOAT_LIMITS

template <class T>
T declval();

}  // namespace metal

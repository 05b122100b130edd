// Metal's scalar and vector types, which a program can use without any
// #include, and functions that only the rewritten text calls.  The language is
// C++ for OpenCL, which clang can compile for any target.
#pragma once

#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable

// Metal's address spaces.  Pointers to `device` and to `constant` memory must
// have different types.  Both types must convert to a pointer to the generic
// address space, because the argument of an implicit copy constructor is in
// that address space.  clang does not convert __constant pointers, so
// `constant` is not __constant here.  With this definition of `constant`, clang
// also converts `device` pointers to `constant` pointers, but the front end
// refuses this conversion.
#define MSL_DEVICE __attribute__((opencl_global_device))
#define MSL_CONSTANT const __global
#define MSL_THREADGROUP __local
#define MSL_THREAD __private

// An annotation that the front end reads from clang's AST.  Compiled code has
// no annotations, because an annotation prevents clang from keeping the
// annotated variable in a register.
#ifdef MSL_CODE
#define MSL_NOTE(text)
#define MSL_PARAMETER_NOTE(text)
#else
#define MSL_NOTE(text) __attribute__((annotate(text)))
#define MSL_PARAMETER_NOTE(text) [[clang::annotate(text)]]
#endif

#define MSL_INLINE inline __attribute__((always_inline))

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef __bf16 bfloat;

// MSL_NUMBERS applies the macro X to each type that can be a vector's
// component, except bool.  MSL_INTEGERS applies X to the integers among these
// types.
#define MSL_INTEGERS(X) \
  X(char) X(uchar) X(short) X(ushort) X(int) X(uint) X(long) X(ulong)
#define MSL_NUMBERS(X) MSL_INTEGERS(X) X(half) X(float) X(bfloat)

namespace __msl {

template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));

template <int N>
struct bool_vector;

// The vector of N components of type T.  T may be bool.
template <class T, int N>
struct any_vector {
  using type = vec<T, N>;
};
template <int N>
struct any_vector<bool, N> {
  using type = bool_vector<N>;
};

// The number and the type of a vector's components.  The number is 0 for
// scalars and for classes other than bool_vector.
template <class T>
struct components {
  enum { count = 0 };
  using element = T;
};
template <class T, int N>
struct components<T __attribute__((ext_vector_type(N)))> {
  enum { count = N };
  using element = T;
};
template <int N>
struct components<bool_vector<N>> {
  enum { count = N };
  using element = bool;
};
template <class T>
using element_of = typename components<T>::element;

template <bool condition, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  using type = T;
};
template <bool condition, class T = void>
using enable_if_t = typename enable_if<condition, T>::type;

// A parameter of type identity_t<T> takes no part in the deduction of T.
template <class T>
struct identity {
  using type = T;
};
template <class T>
using identity_t = typename identity<T>::type;

// Converts a scalar.  clang cannot convert between half and bfloat.
template <class To, class From>
constexpr To cast(From from) {
  if constexpr ((__is_same(To, half) && __is_same(From, __bf16)) ||
                (__is_same(To, __bf16) && __is_same(From, half)))
    return (To)(float)from;
  else
    return (To)from;
}

// Stores a scalar or the components of a vector in result[position],
// result[position + 1], ...  Adds the number of stored elements to `position`.
template <class E, class V, class A>
MSL_INLINE void append(MSL_THREAD V &result, MSL_THREAD int &position, A a) {
  if constexpr (components<A>::count == 0) {
    result[position++] = cast<E>(a);
  } else {
    for (int i = 0; i < (int)components<A>::count; ++i)
      result[position++] = cast<E>((element_of<A>)a[i]);
  }
}

template <class A>
constexpr int width() {
  return components<A>::count == 0 ? 1 : (int)components<A>::count;
}

// Returns V(a), V(a, b), and so on.  The arguments of a vector's constructor
// are a scalar for all components, or scalars and vectors that together have as
// many components as V.  For a type that is not a vector, make() calls the
// type's constructor.
template <class V, class... A>
constexpr V make(A... a) {
  constexpr int count = components<V>::count;
  if constexpr (__is_same(V, half) || __is_same(V, __bf16)) {
    return (V(0), ..., cast<V>(a));
  } else if constexpr (count == 0) {
    return V(a...);
  } else {
    using E = element_of<V>;
    if constexpr (sizeof...(A) == 0) {
      return V((E)0);
    } else {
      constexpr int given = (0 + ... + width<A>());
      constexpr bool scalars = (true && ... && (components<A>::count == 0));
      constexpr bool splat = scalars && sizeof...(A) == 1;
      static_assert(splat || given == count,
                    "the arguments of a vector must be one scalar, or have "
                    "exactly as many components as the vector");
      if constexpr (splat) {
        return V(cast<E>(a)...);
      } else if constexpr (given != count) {
        return V((E)0);  // the assertion refuses this
      } else if constexpr (scalars) {
        return V{cast<E>(a)...};
      } else if constexpr ((true && ... && __is_same(A, V))) {
        return (a, ...);
      } else {
        V result;
        int position = 0;
        (append<E>(result, position, a), ...);
        return result;
      }
    }
  }
}

// Converts a comparison's result to type V.  A comparison of vectors gives -1
// for true in clang, and 1 in MSL.
template <class V, class A>
constexpr V make_from_condition(A a) {
  constexpr bool is_vector_of_clang =
      components<A>::count != 0 && !__is_class(A);
  if constexpr (is_vector_of_clang)
    return make<V>(a & (element_of<A>)1);
  else
    return make<V>(a);
}

// Implements static_cast<To>(from) and (To)from.  In Metal both casts convert a
// vector component by component.
template <class To, class From>
constexpr To convert(From from) {
  if constexpr (components<To>::count != 0 || components<From>::count != 0)
    return make<To>(from);
  else
    return cast<To>(from);
}

// Returns a copy of an object.  The copy is in no address space, whatever the
// object's address space is.
template <class T>
constexpr T value(T object) {
  return object;
}

}  // namespace __msl

#define MSL_VECTOR_NAMES(T)      \
  typedef __msl::vec<T, 2> T##2; \
  typedef __msl::vec<T, 3> T##3; \
  typedef __msl::vec<T, 4> T##4;
MSL_NUMBERS(MSL_VECTOR_NAMES)
#undef MSL_VECTOR_NAMES

namespace __msl {

// The base class of bool_vector, with the components as members.
template <class T, int N>
struct named_components;
template <class T>
struct named_components<T, 2> {
  T x, y;
};
template <class T>
struct named_components<T, 3> : named_components<T, 2> {
  T z;
};
template <class T>
struct named_components<T, 4> : named_components<T, 3> {
  T w;
};

// bool2, bool3 and bool4.  They have the size and the alignment of char2, char3
// and char4, with one byte for each component.  The result of a comparison of
// clang's vectors is an integer vector, which converts to a bool_vector.
template <int N>
struct alignas(N == 2 ? 2 : 4) bool_vector : named_components<bool, N> {
  bool_vector() = default;
  constexpr bool_vector(bool value) {
    for (int i = 0; i < N; ++i) (*this)[i] = value;
  }
  template <class... B, class = enable_if_t<sizeof...(B) == N && (N > 1)>>
  constexpr bool_vector(B... b) {
    bool values[N] = {(bool)b...};
    for (int i = 0; i < N; ++i) (*this)[i] = values[i];
  }
  template <class T>
  constexpr bool_vector(__msl::vec<T, N> condition) {
    for (int i = 0; i < N; ++i) (*this)[i] = condition[i] != 0;
  }

  bool operator[](int i) const { return ((const bool *)this)[i]; }
  bool &operator[](int i) { return ((bool *)this)[i]; }
};

template <int N>
MSL_INLINE bool_vector<N> operator!(bool_vector<N> a) {
  for (int i = 0; i < N; ++i) a[i] = !a[i];
  return a;
}

// Operators with a boolean vector as one operand.  The other operand is a
// boolean vector, or the result of a comparison of clang's vectors.
#define MSL_BOOL_VECTOR_OPERATOR(symbol)                          \
  template <int N>                                                \
  MSL_INLINE bool_vector<N> operator symbol(bool_vector<N> a,     \
                                            bool_vector<N> b) {   \
    for (int i = 0; i < N; ++i) a[i] = a[i] symbol b[i];          \
    return a;                                                     \
  }                                                               \
  template <int N, class T>                                       \
  MSL_INLINE bool_vector<N> operator symbol(bool_vector<N> a,     \
                                            __msl::vec<T, N> b) { \
    return a symbol bool_vector<N>(b);                            \
  }                                                               \
  template <int N, class T>                                       \
  MSL_INLINE bool_vector<N> operator symbol(__msl::vec<T, N> a,   \
                                            bool_vector<N> b) {   \
    return bool_vector<N>(a) symbol b;                            \
  }
MSL_BOOL_VECTOR_OPERATOR(&&)
MSL_BOOL_VECTOR_OPERATOR(||)
MSL_BOOL_VECTOR_OPERATOR(==)
MSL_BOOL_VECTOR_OPERATOR(!=)
MSL_BOOL_VECTOR_OPERATOR(&)
MSL_BOOL_VECTOR_OPERATOR(|)
MSL_BOOL_VECTOR_OPERATOR(^)
#undef MSL_BOOL_VECTOR_OPERATOR

}  // namespace __msl

typedef __msl::bool_vector<2> bool2;
typedef __msl::bool_vector<3> bool3;
typedef __msl::bool_vector<4> bool4;

// as_type<To>(from) returns the bits of `from` as an object of type To.  The
// types From and To must have the same size.  So as_type also converts between
// vectors of three and of four components.
template <class To, class From>
constexpr To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From),
                "as_type needs two types of the same size");
  if constexpr (sizeof(To) == sizeof(From)) return __builtin_bit_cast(To, from);
}

// The primitives that all targets share.  A target's file includes this file
// after its own primitives and after these macros:
//
//   MSL_LIBRARY(name)            the C function `name` for float
//   MSL_ATOMIC_ACCESS(p, flags)  a call that announces an atomic access to the
//                                executor; empty if the target checks no races

// clang-format off
#define MSL_FUNCTIONS_OF_ONE(X)                      \
  X(acos) X(acosh) X(asin) X(asinh) X(atan) X(atanh) \
  X(cos) X(cosh) X(sin) X(sinh) X(tan) X(tanh)       \
  X(exp) X(exp2) X(exp10) X(log) X(log2) X(log10)
// clang-format on
#define MSL_FUNCTIONS_OF_TWO(X) X(atan2) X(fmod) X(nextafter) X(pow)
#define MSL_FETCH_OPERATIONS(X) X(add) X(sub) X(and) X(or) X(xor) X(max) X(min)

extern "C" {
#define MSL_DECLARE(name) float MSL_LIBRARY(name)(float);
MSL_FUNCTIONS_OF_ONE(MSL_DECLARE)
#undef MSL_DECLARE
#define MSL_DECLARE(name) float MSL_LIBRARY(name)(float, float);
MSL_FUNCTIONS_OF_TWO(MSL_DECLARE)
#undef MSL_DECLARE
}

namespace __msl {

// The address of a buffer.  It converts to the type of the kernel's parameter,
// a pointer or a reference.
struct buffer_pointer {
  void *address;
  template <class T>
  MSL_INLINE operator T *() const {
    return (T *)address;
  }
};
struct buffer_reference {
  void *address;
  template <class T>
  MSL_INLINE operator T &() const {
    return *(T *)address;
  }
};

namespace target {

// ---- Mathematics, in single precision

#define MSL_DEFINE(name) \
  MSL_INLINE float name(float x) { return MSL_LIBRARY(name)(x); }
MSL_FUNCTIONS_OF_ONE(MSL_DEFINE)
#undef MSL_DEFINE
#define MSL_DEFINE(name) \
  MSL_INLINE float name(float x, float y) { return MSL_LIBRARY(name)(x, y); }
MSL_FUNCTIONS_OF_TWO(MSL_DEFINE)
#undef MSL_DEFINE

// ---- Calls of functions that suspend

// Announces the end of a call and returns the call's result.  In the rewritten
// text the first argument is enter_call(), and clang evaluates the first
// argument before the second argument.
template <class T>
MSL_INLINE T leave_call(int, T result) {
  leave_call();
  return result;
}

// ---- Simdgroups

// Combines the values of the active lanes below this lane.  If `inclusive` is
// true, also combines this lane's value.
template <class Operation, bool inclusive, class T>
MSL_INLINE T scan(T value, T neutral, ulong site) {
#ifdef MSL_SCANS_WHOLE_SIMDGROUPS
  if (__is_integral(element_of<T>) && active_lanes() == 0xffffffffu)
    return scan_whole<Operation, inclusive>(value, neutral);
#endif
  lanes<T> all = exchange(value, site);
  uint end = simd_lane() + inclusive;
  T result = neutral;
  for (uint i = 0; i < end; ++i)
    if (all.takes_part(i)) result = Operation::apply(result, all.values[i]);
  return result;
}

// ---- Atomic operations.  P is the type of a pointer to a scalar.

template <class P>
MSL_INLINE auto atomic_load(P p) {
  MSL_ATOMIC_ACCESS(p, 0);
  return __atomic_load_n(p, __ATOMIC_RELAXED);
}
template <class P, class T>
MSL_INLINE void atomic_store(P p, T value) {
  MSL_ATOMIC_ACCESS(p, kMpsEmulatorMslWrite | kMpsEmulatorMslStore);
  __atomic_store_n(p, value, __ATOMIC_RELAXED);
}
template <class P, class T>
MSL_INLINE T atomic_exchange(P p, T value) {
  MSL_ATOMIC_ACCESS(p, kMpsEmulatorMslWrite);
  return __atomic_exchange_n(p, value, __ATOMIC_RELAXED);
}
template <class P, class T>
MSL_INLINE bool atomic_compare_exchange(P p, MSL_THREAD T *expected,
                                        T desired) {
  MSL_ATOMIC_ACCESS(p, kMpsEmulatorMslWrite);
  T found = *expected;
  bool equal = __atomic_compare_exchange_n(p, &found, desired, false,
                                           __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  *expected = found;
  return equal;
}
#define MSL_DEFINE(name)                                      \
  template <class P, class T>                                 \
  MSL_INLINE T atomic_fetch_##name(P p, T value) {            \
    MSL_ATOMIC_ACCESS(p, kMpsEmulatorMslWrite);               \
    return __atomic_fetch_##name(p, value, __ATOMIC_RELAXED); \
  }
MSL_FETCH_OPERATIONS(MSL_DEFINE)
#undef MSL_DEFINE

}  // namespace target
}  // namespace __msl

#undef MSL_FUNCTIONS_OF_ONE
#undef MSL_FUNCTIONS_OF_TWO
#undef MSL_FETCH_OPERATIONS
#undef MSL_LIBRARY
#undef MSL_ATOMIC_ACCESS

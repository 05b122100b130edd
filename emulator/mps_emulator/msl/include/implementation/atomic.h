// <metal_atomic>.
#pragma once

namespace metal {

enum memory_order { memory_order_relaxed = 0, memory_order_seq_cst = 5 };

enum class mem_flags : uint {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2
};
constexpr mem_flags operator|(mem_flags a, mem_flags b) {
  return (mem_flags)((uint)a | (uint)b);
}
constexpr mem_flags operator&(mem_flags a, mem_flags b) {
  return (mem_flags)((uint)a & (uint)b);
}

enum thread_scope {
  thread_scope_thread = 0,
  thread_scope_simdgroup = 1,
  thread_scope_threadgroup = 2,
  thread_scope_device = 3
};

// Programs access an atomic object only through the atomic functions.
template <class T>
struct _atomic {
  static_assert(is_same<T, int>::value || is_same<T, uint>::value ||
                    is_same<T, bool>::value || is_same<T, float>::value,
                "atomic<T> exists for int, uint, bool and float");
  _atomic() = default;
  _atomic(const _atomic &) = delete;
  _atomic &operator=(const _atomic &) = delete;
  T __value;
};
template <class T>
using atomic = _atomic<T>;

}  // namespace metal

// The front end renames atomic_int and the other atomic types to the names
// below, because clang uses Metal's names for OpenCL's types.
namespace metal {
using __msl_atomic_int = _atomic<int>;
using __msl_atomic_uint = _atomic<uint>;
using __msl_atomic_bool = _atomic<bool>;
using __msl_atomic_float = _atomic<float>;
}  // namespace metal

namespace metal {

#define MSL_RELAXED_ONLY(order)                                               \
  __attribute__((                                                             \
      diagnose_if(order != memory_order_relaxed,                              \
                  "atomic functions accept only memory_order_relaxed; other " \
                  "orders are for atomic_thread_fence",                       \
                  "error")))

// BITS: a type of T's size, through which the functions read and write a T.
#define MSL_ATOMIC_ACCESS(SPACE, T, BITS)                                      \
  MSL_INLINE T atomic_load_explicit(const volatile SPACE _atomic<T> *p,        \
                                    memory_order order)                        \
      MSL_RELAXED_ONLY(order) {                                                \
    return as_type<T>(                                                         \
        __msl::target::atomic_load((const volatile SPACE BITS *)&p->__value)); \
  }                                                                            \
  MSL_INLINE void atomic_store_explicit(volatile SPACE _atomic<T> *p,          \
                                        T desired, memory_order order)         \
      MSL_RELAXED_ONLY(order) {                                                \
    __msl::target::atomic_store((volatile SPACE BITS *)&p->__value,            \
                                as_type<BITS>(desired));                       \
  }
#define MSL_ATOMIC_EXCHANGE(SPACE, T, BITS)                                  \
  MSL_INLINE T atomic_exchange_explicit(volatile SPACE _atomic<T> *p,        \
                                        T desired, memory_order order)       \
      MSL_RELAXED_ONLY(order) {                                              \
    return as_type<T>(__msl::target::atomic_exchange(                        \
        (volatile SPACE BITS *)&p->__value, as_type<BITS>(desired)));        \
  }                                                                          \
  MSL_INLINE bool atomic_compare_exchange_weak_explicit(                     \
      volatile SPACE _atomic<T> *p, MSL_THREAD T *expected, T desired,       \
      memory_order order, memory_order failure_order)                        \
      MSL_RELAXED_ONLY(order) {                                              \
    BITS found = as_type<BITS>(*expected);                                   \
    bool equal = __msl::target::atomic_compare_exchange(                     \
        (volatile SPACE BITS *)&p->__value, &found, as_type<BITS>(desired)); \
    *expected = as_type<T>(found);                                           \
    return equal;                                                            \
  }
#define MSL_ATOMIC_FETCH(SPACE, T, key)                                     \
  MSL_INLINE T atomic_fetch_##key##_explicit(volatile SPACE _atomic<T> *p,  \
                                             T operand, memory_order order) \
      MSL_RELAXED_ONLY(order) {                                             \
    return __msl::target::atomic_fetch_##key(&p->__value, operand);         \
  }
#define MSL_ATOMIC_INTEGER(SPACE, T) \
  MSL_ATOMIC_ACCESS(SPACE, T, T)     \
  MSL_ATOMIC_EXCHANGE(SPACE, T, T)   \
  MSL_ATOMIC_FETCH(SPACE, T, add)    \
  MSL_ATOMIC_FETCH(SPACE, T, sub)    \
  MSL_ATOMIC_FETCH(SPACE, T, and)    \
  MSL_ATOMIC_FETCH(SPACE, T, or)     \
  MSL_ATOMIC_FETCH(SPACE, T, xor)    \
  MSL_ATOMIC_FETCH(SPACE, T, max)    \
  MSL_ATOMIC_FETCH(SPACE, T, min)

MSL_ATOMIC_INTEGER(MSL_DEVICE, int)
MSL_ATOMIC_INTEGER(MSL_DEVICE, uint)
MSL_ATOMIC_INTEGER(MSL_THREADGROUP, int)
MSL_ATOMIC_INTEGER(MSL_THREADGROUP, uint)
MSL_ATOMIC_ACCESS(MSL_DEVICE, bool, bool)
MSL_ATOMIC_EXCHANGE(MSL_DEVICE, bool, bool)
MSL_ATOMIC_ACCESS(MSL_THREADGROUP, bool, bool)
MSL_ATOMIC_EXCHANGE(MSL_THREADGROUP, bool, bool)

// atomic_float exists only in device memory.
MSL_ATOMIC_ACCESS(MSL_DEVICE, float, uint)
MSL_ATOMIC_EXCHANGE(MSL_DEVICE, float, uint)
MSL_ATOMIC_FETCH(MSL_DEVICE, float, add)
MSL_ATOMIC_FETCH(MSL_DEVICE, float, sub)

#undef MSL_ATOMIC_ACCESS
#undef MSL_ATOMIC_EXCHANGE
#undef MSL_ATOMIC_FETCH
#undef MSL_ATOMIC_INTEGER
#undef MSL_RELAXED_ONLY

MSL_INLINE void atomic_thread_fence(mem_flags flags, memory_order order,
                                    thread_scope scope = thread_scope_device) {
  if (order == memory_order_seq_cst) __msl::target::atomic_fence((uint)flags);
}

}  // namespace metal

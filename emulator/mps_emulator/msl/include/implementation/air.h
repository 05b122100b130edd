// The functions that kernels compiled by Apple call.  The label of a function
// is its name in AIR.  A function of vectors has no code here: air/lowering.py
// writes calls of the function of scalars.  A function that waits for other
// threads has a further parameter: the site, which is the place of the call.
#pragma once

// This file only declares the executor's functions.  The file that has the
// tables of codegen.tables() defines them.
#define MSL_RUNTIME_IS_ELSEWHERE
#include "prelude.h"
// clang-format off
#include "stdlib.h"
#include "thunk.h"
// clang-format on

#define AIR_JOIN_(a, b) a##b
#define AIR_JOIN(a, b) AIR_JOIN_(a, b)
#define AIR_NAMED(name, T, label, parameters)                      \
  __attribute__((always_inline)) T name parameters __asm__(label); \
  __attribute__((always_inline)) T name parameters
// Begins the definition of a function: T label parameters.
#define AIR(T, label, ...) \
  AIR_NAMED(AIR_JOIN(air_, __COUNTER__), T, label, (__VA_ARGS__))

// X(type, its name in AIR)
// clang-format off
#define AIR_SIGNED(X) X(char, "i8") X(short, "i16") X(int, "i32") X(long, "i64")
#define AIR_UNSIGNED(X) \
  X(uchar, "i8") X(ushort, "i16") X(uint, "i32") X(ulong, "i64")
#define AIR_EXCHANGED(X)                                    \
  X(float, "f32") X(half, "f16") X(bfloat, "bf16")          \
  X(char, "s.i8") X(short, "s.i16") X(int, "s.i32")         \
  X(uchar, "u.i8") X(ushort, "u.i16") X(uint, "u.i32")
// clang-format on

// ---- Mathematics.  Both variants of a function have the same code, as
// namespaces precise and fast have on the host.

#define AIR_MATH_1(name, ...)                                           \
  AIR(float, "air." #name ".f32", float x) { return __VA_ARGS__; }      \
  AIR(float, "air.fast_" #name ".f32", float x) { return __VA_ARGS__; } \
  AIR(half, "air." #name ".f16", half h) {                              \
    float x = (float)h;                                                 \
    return (half)(__VA_ARGS__);                                         \
  }                                                                     \
  AIR(bfloat, "air." #name ".bf16", bfloat h) {                         \
    float x = (float)h;                                                 \
    return (bfloat)(__VA_ARGS__);                                       \
  }
#define AIR_MATH_2(name, ...)                                               \
  AIR(float, "air." #name ".f32", float x, float y) { return __VA_ARGS__; } \
  AIR(float, "air.fast_" #name ".f32", float x, float y) {                  \
    return __VA_ARGS__;                                                     \
  }                                                                         \
  AIR(half, "air." #name ".f16", half h, half i) {                          \
    float x = (float)h, y = (float)i;                                       \
    return (half)(__VA_ARGS__);                                             \
  }                                                                         \
  AIR(bfloat, "air." #name ".bf16", bfloat h, bfloat i) {                   \
    float x = (float)h, y = (float)i;                                       \
    return (bfloat)(__VA_ARGS__);                                           \
  }
#define AIR_MATH_3(name, ...)                                       \
  AIR(float, "air." #name ".f32", float x, float y, float z) {      \
    return __VA_ARGS__;                                             \
  }                                                                 \
  AIR(float, "air.fast_" #name ".f32", float x, float y, float z) { \
    return __VA_ARGS__;                                             \
  }                                                                 \
  AIR(half, "air." #name ".f16", half h, half i, half j) {          \
    float x = (float)h, y = (float)i, z = (float)j;                 \
    return (half)(__VA_ARGS__);                                     \
  }                                                                 \
  AIR(bfloat, "air." #name ".bf16", bfloat h, bfloat i, bfloat j) { \
    float x = (float)h, y = (float)i, z = (float)j;                 \
    return (bfloat)(__VA_ARGS__);                                   \
  }
#define AIR_SAME_1(name) AIR_MATH_1(name, metal::name(x))
#define AIR_SAME_2(name) AIR_MATH_2(name, metal::name(x, y))
#define AIR_SAME_3(name) AIR_MATH_3(name, metal::name(x, y, z))

AIR_SAME_1(acos)
AIR_SAME_1(acosh)
AIR_SAME_1(asin)
AIR_SAME_1(asinh)
AIR_SAME_1(atan)
AIR_SAME_1(atanh)
AIR_SAME_1(ceil)
AIR_SAME_1(cos)
AIR_SAME_1(cosh)
AIR_SAME_1(cospi)
AIR_SAME_1(exp)
AIR_SAME_1(exp2)
AIR_SAME_1(exp10)
AIR_SAME_1(fabs)
AIR_SAME_1(floor)
AIR_SAME_1(fract)
AIR_SAME_1(log)
AIR_SAME_1(log2)
AIR_SAME_1(log10)
AIR_SAME_1(rint)
AIR_SAME_1(round)
AIR_SAME_1(rsqrt)
AIR_SAME_1(saturate)
AIR_SAME_1(sign)
AIR_SAME_1(sin)
AIR_SAME_1(sinh)
AIR_SAME_1(sinpi)
AIR_SAME_1(sqrt)
AIR_SAME_1(tan)
AIR_SAME_1(tanh)
AIR_SAME_1(tanpi)
AIR_SAME_1(trunc)
AIR_SAME_2(atan2)
AIR_SAME_2(copysign)
AIR_SAME_2(fmax)
AIR_SAME_2(fmin)
AIR_SAME_2(fmod)
AIR_SAME_2(nextafter)
AIR_SAME_2(pow)
AIR_SAME_2(powr)
AIR_SAME_2(step)
AIR_SAME_3(clamp)
AIR_SAME_3(fma)
AIR_SAME_3(fmax3)
AIR_SAME_3(fmedian3)
AIR_SAME_3(fmin3)
AIR_SAME_3(mix)

#define AIR_FLOAT(name, T, t)                          \
  AIR(T, "air.ldexp." t, T x, int exponent) {          \
    return (T)metal::ldexp((float)x, exponent);        \
  }                                                    \
  AIR(T, "air.frexp." t, T x, MSL_THREAD int *p) {     \
    return (T)metal::frexp((float)x, *p);              \
  }                                                    \
  AIR(T, "air.sincos." t, T x, MSL_THREAD T *cosine) { \
    *cosine = (T)metal::cos((float)x);                 \
    return (T)metal::sin((float)x);                    \
  }
AIR_FLOAT(, float, "f32")
AIR_FLOAT(, half, "f16")

// ---- Integers

#define AIR_INTEGER(s, T, t)                                                \
  AIR(T, "air.max." s t, T a, T b) { return metal::max(a, b); }             \
  AIR(T, "air.min." s t, T a, T b) { return metal::min(a, b); }             \
  AIR(T, "air.clamp." s t, T a, T b, T c) { return metal::clamp(a, b, c); } \
  AIR(T, "air.abs." s t, T a) { return metal::abs(a); }                     \
  AIR(T, "air.mul_hi." s t, T a, T b) {                                     \
    return (T)((__int128)a * b >> sizeof(T) * 8);                           \
  }
#define AIR_SIGNED_INTEGER(T, t) AIR_INTEGER("s.", T, t)
#define AIR_UNSIGNED_INTEGER(T, t)                                        \
  AIR_INTEGER("u.", T, t)                                                 \
  AIR(T, "air.clz." t, T a, bool) { return metal::clz(a); }               \
  AIR(T, "air.ctz." t, T a, bool) { return metal::ctz(a); }               \
  AIR(T, "air.popcount." t, T a) { return metal::popcount(a); }           \
  AIR(T, "air.rotate." t, T a, T n) {                                     \
    const T bits = sizeof(T) * 8;                                         \
    n %= bits;                                                            \
    return n == 0 ? a : (T)(a << n | a >> (bits - n));                    \
  }                                                                       \
  AIR(T, "air.reverse_bits." t, T a) {                                    \
    return (T)(__builtin_bitreverse64((ulong)a) >> (64 - sizeof(T) * 8)); \
  }
AIR_SIGNED(AIR_SIGNED_INTEGER)
AIR_UNSIGNED(AIR_UNSIGNED_INTEGER)

// ---- Conversions.  The name has the kinds and the types of the result and of
// the argument.

#define AIR_FROM(To, to, From, from) \
  AIR(To, "air.convert." to "." from, From x) { return __msl::cast<To>(x); }
#define AIR_CONVERSIONS(To, to)      \
  AIR_FROM(To, to, float, "f.f32")   \
  AIR_FROM(To, to, half, "f.f16")    \
  AIR_FROM(To, to, bfloat, "f.bf16") \
  AIR_FROM(To, to, bool, "u.i1")     \
  AIR_FROM(To, to, char, "s.i8")     \
  AIR_FROM(To, to, uchar, "u.i8")    \
  AIR_FROM(To, to, short, "s.i16")   \
  AIR_FROM(To, to, ushort, "u.i16")  \
  AIR_FROM(To, to, int, "s.i32")     \
  AIR_FROM(To, to, uint, "u.i32")    \
  AIR_FROM(To, to, long, "s.i64")    \
  AIR_FROM(To, to, ulong, "u.i64")
AIR_CONVERSIONS(float, "f.f32")
AIR_CONVERSIONS(half, "f.f16")
AIR_CONVERSIONS(bfloat, "f.bf16")
AIR_CONVERSIONS(bool, "u.i1")
AIR_CONVERSIONS(char, "s.i8")
AIR_CONVERSIONS(uchar, "u.i8")
AIR_CONVERSIONS(short, "s.i16")
AIR_CONVERSIONS(ushort, "u.i16")
AIR_CONVERSIONS(int, "s.i32")
AIR_CONVERSIONS(uint, "u.i32")
AIR_CONVERSIONS(long, "s.i64")
AIR_CONVERSIONS(ulong, "u.i64")

// ---- Threads

AIR(void, "air.wg.barrier", int flags, int, ulong site) {
  metal::threadgroup_barrier((metal::mem_flags)flags, site);
}
AIR(void, "air.simdgroup.barrier", int flags, int, ulong site) {
  metal::simdgroup_barrier((metal::mem_flags)flags, site);
}
AIR(short, "air.get_simdgroup_size.i16", ) { return 32; }
AIR(int, "air.get_simdgroup_size.i32", ) { return 32; }
AIR(bool, "air.is_uniform.i1", bool) { return false; }
AIR(bool, "air.is_uniform.i32", int) { return false; }

#define AIR_REDUCTION(name, T, t)                    \
  AIR(T, "air.simd_" #name "." t, T x, ulong site) { \
    return metal::simd_##name(x, site);              \
  }
#define AIR_SHUFFLE(name, T, t)                                \
  AIR(T, "air.simd_" #name "." t, T x, ushort n, ulong site) { \
    return metal::simd_##name(x, n, site);                     \
  }
#define AIR_FILL(name, T, t)                                               \
  AIR(T, "air.simd_" #name "." t, T x, T filling, ushort n, ushort modulo, \
      ulong site) {                                                        \
    return metal::simd_##name(x, filling, n, modulo, site);                \
  }
#define AIR_SIMDGROUP(T, t)                     \
  AIR_REDUCTION(max, T, t)                      \
  AIR_REDUCTION(min, T, t)                      \
  AIR_REDUCTION(prefix_exclusive_product, T, t) \
  AIR_REDUCTION(prefix_exclusive_sum, T, t)     \
  AIR_REDUCTION(prefix_inclusive_product, T, t) \
  AIR_REDUCTION(prefix_inclusive_sum, T, t)     \
  AIR_REDUCTION(product, T, t)                  \
  AIR_REDUCTION(sum, T, t)                      \
  AIR_SHUFFLE(broadcast, T, t)                  \
  AIR_SHUFFLE(shuffle, T, t)                    \
  AIR_SHUFFLE(shuffle_down, T, t)               \
  AIR_SHUFFLE(shuffle_rotate_down, T, t)        \
  AIR_SHUFFLE(shuffle_rotate_up, T, t)          \
  AIR_SHUFFLE(shuffle_up, T, t)                 \
  AIR_SHUFFLE(shuffle_xor, T, t)                \
  AIR_FILL(shuffle_and_fill_down, T, t)         \
  AIR_FILL(shuffle_and_fill_up, T, t)
AIR_EXCHANGED(AIR_SIMDGROUP)
#define AIR_BITWISE(T, t)  \
  AIR_REDUCTION(and, T, t) \
  AIR_REDUCTION(or, T, t)  \
  AIR_REDUCTION(xor, T, t)
AIR_BITWISE(int, "s.i32")
AIR_BITWISE(uint, "u.i32")
AIR(bool, "air.simd_all", bool x, ulong site) {
  return metal::simd_all(x, site);
}
AIR(bool, "air.simd_any", bool x, ulong site) {
  return metal::simd_any(x, site);
}
AIR(ulong, "air.simd_ballot.i64", bool x, ulong site) {
  return (ulong)metal::simd_ballot(x, site);
}

// ---- Atomic operations.  The last parameters are the order, the scope of
// threads, and whether the memory is volatile.

#define AIR_FETCH(space, name, T, t)                                          \
  AIR(T, "air.atomic." space "." #name "." t, MSL_DEVICE T *p, T x, int, int, \
      bool) {                                                                 \
    return __msl::target::atomic_fetch_##name(p, x);                          \
  }
#define AIR_ATOMIC(space, T, t, label) \
  AIR_FETCH(space, add, T, label)      \
  AIR_FETCH(space, max, T, label)      \
  AIR_FETCH(space, min, T, label)      \
  AIR_FETCH(space, sub, T, label)
#define AIR_OF_BITS(space, T, t)                                             \
  AIR(T, "air.atomic." space ".load." t, MSL_DEVICE T *p, int, int, bool) {  \
    return __msl::target::atomic_load(p);                                    \
  }                                                                          \
  AIR(void, "air.atomic." space ".store." t, MSL_DEVICE T *p, T x, int, int, \
      bool) {                                                                \
    __msl::target::atomic_store(p, x);                                       \
  }                                                                          \
  AIR(T, "air.atomic." space ".xchg." t, MSL_DEVICE T *p, T x, int, int,     \
      bool) {                                                                \
    return __msl::target::atomic_exchange(p, x);                             \
  }                                                                          \
  AIR(bool, "air.atomic." space ".cmpxchg.weak." t, MSL_DEVICE T *p,         \
      MSL_THREAD T *expected, T desired, int, int, int, bool) {              \
    return __msl::target::atomic_compare_exchange(p, expected, desired);     \
  }
#define AIR_ATOMICS(space)                \
  AIR_ATOMIC(space, int, "i32", "s.i32")  \
  AIR_ATOMIC(space, uint, "i32", "u.i32") \
  AIR_FETCH(space, and, uint, "u.i32")    \
  AIR_FETCH(space, or, uint, "u.i32")     \
  AIR_FETCH(space, xor, uint, "u.i32")    \
  AIR_FETCH(space, and, int, "s.i32")     \
  AIR_FETCH(space, or, int, "s.i32")      \
  AIR_FETCH(space, xor, int, "s.i32")     \
  AIR_FETCH(space, add, float, "f32")     \
  AIR_FETCH(space, sub, float, "f32")     \
  AIR_OF_BITS(space, uint, "i32")
AIR_ATOMICS("global")
AIR_ATOMICS("local")
AIR(void, "air.atomic.fence", int flags, int, int) {
  __msl::target::atomic_fence((uint)flags);
}

// ---- What the kernel's entry calls

AIR(void *, "air.threadgroup_variable", uint slot, ulong size,
    ulong alignment) {
  return mps_emulator_msl_runtime_in_use->threadgroup_variable(slot, size,
                                                               alignment);
}
#define AIR_BUILTIN(name)                                                \
  AIR(uint, "air.builtin." #name, const mps_emulator_msl_launch *launch, \
      uint x, uint y, uint z, int d) {                                   \
    __msl::built_ins at = {{launch, {x, y, z}}};                         \
    return at.name(d);                                                   \
  }
AIR_BUILTIN(dispatch_simdgroups_per_threadgroup)
AIR_BUILTIN(dispatch_threads_per_threadgroup)
AIR_BUILTIN(simdgroup_index_in_threadgroup)
AIR_BUILTIN(simdgroups_per_threadgroup)
AIR_BUILTIN(thread_execution_width)
AIR_BUILTIN(thread_index_in_simdgroup)
AIR_BUILTIN(thread_index_in_threadgroup)
AIR_BUILTIN(thread_position_in_grid)
AIR_BUILTIN(thread_position_in_threadgroup)
AIR_BUILTIN(threadgroup_position_in_grid)
AIR_BUILTIN(threadgroups_per_grid)
AIR_BUILTIN(threads_per_grid)
AIR_BUILTIN(threads_per_simdgroup)
AIR_BUILTIN(threads_per_threadgroup)

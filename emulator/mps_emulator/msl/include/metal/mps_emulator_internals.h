// Names of the compiler's builtins behind Metal's headers, which some programs
// call directly, for example MLX's kernels.  Here the names stand for the public
// functions.  implementation/stdlib.h has the builtins whose last argument is a
// mode of mathematics.
#pragma once

#define __METAL_FAST_MATH__ 1
#define __METAL_PRECISE_MATH__ 0
#define __METAL_MAYBE_FAST_MATH__ 2

#define __metal_fma(x, y, z) ::metal::fma(x, y, z)
#define __metal_ldexp(x, k, mode) ::metal::ldexp(x, k)
#define __metal_frexp(x, exponent) ::metal::frexp(x, *(exponent))
#define __metal_nextafter(x, y) ::metal::nextafter(x, y)
#define __metal_simd_sum(x) ::metal::simd_sum(x)
#define __metal_simd_product(x) ::metal::simd_product(x)
#define __metal_simd_min(x) ::metal::simd_min(x)
#define __metal_simd_max(x) ::metal::simd_max(x)
#define __metal_simd_and(x) ::metal::__simd_and_of_bits(x)
#define __metal_simd_or(x) ::metal::__simd_or_of_bits(x)
#define __metal_simd_xor(x) ::metal::__simd_xor_of_bits(x)
#define __metal_simd_prefix_inclusive_sum(x) ::metal::simd_prefix_inclusive_sum(x)
#define __metal_simd_prefix_exclusive_sum(x) ::metal::simd_prefix_exclusive_sum(x)
#define __metal_simd_prefix_inclusive_product(x) ::metal::simd_prefix_inclusive_product(x)
#define __metal_simd_prefix_exclusive_product(x) ::metal::simd_prefix_exclusive_product(x)
#define __metal_simd_shuffle(x, n) ::metal::simd_shuffle(x, n)
#define __metal_simd_shuffle_up(x, n) ::metal::simd_shuffle_up(x, n)
#define __metal_simd_shuffle_down(x, n) ::metal::simd_shuffle_down(x, n)
#define __metal_simd_shuffle_xor(x, n) ::metal::simd_shuffle_xor(x, n)
#define __metal_simd_shuffle_rotate_up(x, n) ::metal::simd_shuffle_rotate_up(x, n)
#define __metal_simd_shuffle_rotate_down(x, n) ::metal::simd_shuffle_rotate_down(x, n)
#define __metal_simd_broadcast(x, n) ::metal::simd_broadcast(x, n)
#define __metal_simd_shuffle_and_fill_up(x, y, ...) \
  ::metal::simd_shuffle_and_fill_up(x, y, __VA_ARGS__)
#define __metal_simd_shuffle_and_fill_down(x, y, ...) \
  ::metal::simd_shuffle_and_fill_down(x, y, __VA_ARGS__)
#define __metal_get_thread_index_in_simdgroup(...) \
  ::__msl::target::simd_lane()
#define __metal_get_simdgroup_size(...) 32

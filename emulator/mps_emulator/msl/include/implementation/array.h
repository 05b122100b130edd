// <metal_array>.
#pragma once

namespace metal {

template <class T, size_t N>
struct array {
  T __elements[N];

  constexpr size_t size() const MSL_THREAD { return N; }
  constexpr size_t size() const __global { return N; }
  constexpr size_t size() const __local { return N; }
  constexpr bool empty() const { return N == 0; }

  MSL_THREAD T &operator[](size_t i) MSL_THREAD { return __elements[i]; }
  const MSL_THREAD T &operator[](size_t i) const MSL_THREAD {
    return __elements[i];
  }
  MSL_THREADGROUP T &operator[](size_t i) __local { return __elements[i]; }
  const MSL_THREADGROUP T &operator[](size_t i) const __local {
    return __elements[i];
  }
  // The next two operators are for objects in `device` or `constant` memory.
  __global T &operator[](size_t i) __global { return __elements[i]; }
  const __global T &operator[](size_t i) const __global {
    return __elements[i];
  }
};

}  // namespace metal

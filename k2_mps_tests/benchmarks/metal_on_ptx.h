// The part of the Metal Shading Language that our kernels use, for clang's
// front end of C++ for OpenCL and its code generator for NVIDIA GPUs.
//
// ptx.py includes it before a .metal file.  Address spaces are OpenCL's, so
// clang checks them.  Functions of namespace `fast` are the GPU's approximate
// instructions, as in Metal; `precise` ones are those of CUDA's libdevice.
#pragma once

#define device __global
// Not OpenCL's: that is a memory of its own here, which a parameter is not in.
#define constant const __global
#define threadgroup __local
#define thread __private

typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned long ulong;
typedef unsigned long size_t;

typedef float float2 __attribute__((ext_vector_type(2)));
typedef float float4 __attribute__((ext_vector_type(4)));

// Metal's constructors of vectors; ptx.py renames them to these.
inline float2 make_float2(float x, float y) {
  float2 ans = {x, y};
  return ans;
}
inline float4 make_float4(float x, float y, float z, float w) {
  float4 ans = {x, y, z, w};
  return ans;
}

#define INFINITY (__builtin_inff())

extern "C" {
float __nv_expf(float);
float __nv_logf(float);
}

namespace metal {

namespace precise {
inline float exp(float x) { return __nv_expf(x); }
inline float log(float x) { return __nv_logf(x); }
}  // namespace precise

namespace fast {
inline float exp(float x) {
  return __nvvm_ex2_approx_ftz_f(x * 1.4426950408889634f);
}
}  // namespace fast

inline float abs(float x) { return __builtin_fabsf(x); }
inline float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline float max(float x, float y) { return __builtin_fmaxf(x, y); }
inline int max(int x, int y) { return x < y ? y : x; }
inline int min(int x, int y) { return x < y ? x : y; }
inline int clamp(int x, int low, int high) { return min(max(x, low), high); }

template <typename To, typename From>
inline To as_type(From from) {
  return __builtin_bit_cast(To, from);
}

enum memory_order { memory_order_relaxed };

// OpenCL has a type of that name; ptx.py renames Metal's to this.
struct metal_atomic_uint {
  uint value;
};
inline void atomic_store_explicit(threadgroup metal_atomic_uint *object,
                                  uint value, memory_order) {
  __atomic_store_n(&object->value, value, __ATOMIC_RELAXED);
}
inline uint atomic_load_explicit(threadgroup const metal_atomic_uint *object,
                                 memory_order) {
  return __atomic_load_n(&object->value, __ATOMIC_RELAXED);
}

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
inline mem_flags operator|(mem_flags a, mem_flags b) {
  return mem_flags(int(a) | int(b));
}

// It orders all memory, whatever the flags.
inline void threadgroup_barrier(mem_flags) { __syncthreads(); }

// For whole simdgroups.
inline float simd_shuffle_up(float x, ushort delta) {
  float ans;
  __asm__ volatile("shfl.sync.up.b32 %0, %1, %2, 0, -1;"
                   : "=f"(ans)
                   : "f"(x), "r"(uint(delta)));
  return ans;
}

// thread_index_in_simdgroup.  To the compiler it changes all the time, so that
// it makes no separate loops for the lanes of a simdgroup out of what depends
// on it inside of a loop.
inline uint LaneIndex() {
  uint ans;
  __asm__ volatile("mov.u32 %0, %%laneid;" : "=r"(ans));
  return ans;
}

}  // namespace metal

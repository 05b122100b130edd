// Stands in for HIP's runtime header, so that clang can check device code without ROCm.
//
// This file declares the names that k2's headers use.  It defines no function, because clang only
// checks the code and does not link.  The functions of the runtime have CUDA's names, which a HIP
// build maps to HIP's names.

#ifndef K2_MPS_TESTS_HIP_STAND_IN_HIP_RUNTIME_H_
#define K2_MPS_TESTS_HIP_STAND_IN_HIP_RUNTIME_H_

#include <cstddef>
#include <cstdint>

#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))

struct dim3 {
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1);
  unsigned x, y, z;
};

struct ThreadIndex {
  unsigned x, y, z;
};
extern __device__ const ThreadIndex threadIdx, blockIdx, blockDim, gridDim;

extern "C" __device__ int printf(const char *format, ...);
extern "C" __device__ void __assert_fail(const char *text, const char *file,
                                         unsigned line, const char *function);
__device__ void __syncthreads();
template <typename T, typename U>
__device__ T atomicAdd(T *address, U value);
template <typename T, typename U>
__device__ T atomicMax(T *address, U value);
template <typename T, typename U>
__device__ T atomicCAS(T *address, U compared, U value);

using cudaError_t = int;
using cudaEvent_t = void *;
using cudaStream_t = void *;
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice
};
constexpr cudaError_t cudaSuccess = 0;

const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaGetLastError();
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaStreamCreate(cudaStream_t *stream);

// At each launch of a kernel, clang generates a call of this function.
unsigned __hipPushCallConfiguration(dim3 grid, dim3 block, size_t bytes = 0,
                                    cudaStream_t stream = nullptr);

#endif  // K2_MPS_TESTS_HIP_STAND_IN_HIP_RUNTIME_H_

// The functions of HIP's device library that k2's device code calls.
#pragma once

#define K2_FLOAT_AND_DOUBLE(f) \
  __device__ float f(float);   \
  __device__ double f(double);
K2_FLOAT_AND_DOUBLE(fabs)
K2_FLOAT_AND_DOUBLE(exp)
K2_FLOAT_AND_DOUBLE(log)
K2_FLOAT_AND_DOUBLE(log1p)
K2_FLOAT_AND_DOUBLE(sqrt)
K2_FLOAT_AND_DOUBLE(floor)
K2_FLOAT_AND_DOUBLE(ceil)
__device__ float fabsf(float);
__device__ float expf(float);
__device__ float logf(float);
__device__ float log1pf(float);
__device__ float max(float, float);
__device__ float min(float, float);
__device__ int max(int, int);
__device__ int min(int, int);
__device__ bool isnan(float);
__device__ bool isinf(float);
__device__ double fmax(double, double);
__device__ double fmin(double, double);

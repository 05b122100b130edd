// In a build with K2_WITH_MPS, each of k2's C++ tests includes this file first.
// So GetCudaContext() in a test returns the context for mps.

#ifndef K2_MPS_TESTS_UPSTREAM_CPP_MPS_FOR_CUDA_H_
#define K2_MPS_TESTS_UPSTREAM_CPP_MPS_FOR_CUDA_H_

#include "k2/csrc/context.h"

namespace k2 {

// This header declares the function again, because the function's own header,
// k2/csrc/mps/mps_context.h, includes all of torch.
ContextPtr GetMpsContext();

inline ContextPtr GetMpsForCuda(int32_t = -1) { return GetMpsContext(); }

}  // namespace k2

#define GetCudaContext GetMpsForCuda

#endif  // K2_MPS_TESTS_UPSTREAM_CPP_MPS_FOR_CUDA_H_

// What the mps kernels of torch 2.13 on a Mac refuse and the CPU's kernels,
// which run here, would take.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace mps_emulator {

// Throws what the mps kernel of `op` throws on a Mac for arguments that it
// refuses.  `stack` ends with the arguments.
void CheckRefusals(const c10::OperatorHandle &op,
                   const torch::jit::Stack &stack);

// What convolutions refuse.
void CheckConvolution(const at::Tensor &input, bool transposed);

// Types that most of a Mac's kernels for floating-point numbers take.
bool IsFloatOrComplexOnMps(c10::ScalarType type);

}  // namespace mps_emulator

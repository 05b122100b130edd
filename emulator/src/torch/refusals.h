// Arguments that the mps kernels of torch 2.13 refuse on a Mac.  The CPU's
// kernels, which run here, would accept them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace mps_emulator {

// Throws the error of a Mac's mps kernel of `op` for arguments that it refuses.
// `stack` ends with the arguments.
void CheckRefusals(const c10::OperatorHandle &op,
                   const torch::jit::Stack &stack);

// The floating-point types that most of a Mac's kernels accept.
bool IsFloatOrComplexOnMps(c10::ScalarType type);

}  // namespace mps_emulator

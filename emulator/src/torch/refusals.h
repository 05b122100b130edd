// Arguments that torch's mps kernels refuse on a Mac.  The emulator runs the
// CPU's kernels, which would accept these arguments.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace mps_emulator {

// Throws the error that the mps kernel of `op` throws on a Mac, if that kernel
// refuses the arguments at the end of `stack`.
void CheckRefusals(const c10::OperatorHandle &op,
                   const torch::jit::Stack &stack);

// Returns whether `type` is one of the floating-point and complex types that
// most mps kernels accept on a Mac.
bool IsFloatOrComplexOnMps(c10::ScalarType type);

}  // namespace mps_emulator

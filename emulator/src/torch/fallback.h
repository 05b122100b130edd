// Runs operators of the mps device with the CPU's kernels.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>

namespace mps_emulator {

// Runs the CPU's kernel of `op` on the device copies of the arguments.  The
// arguments are at the end of `stack`, where the results replace them.
// Arguments of the dtype `to_widen` are converted to a wider dtype for the call
// (widening.h).
void RunOnHost(const c10::OperatorHandle &op, torch::jit::Stack *stack,
               std::optional<c10::ScalarType> to_widen = std::nullopt);

}  // namespace mps_emulator

// Operators of the mps device that run the CPU's kernels.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>

namespace mps_emulator {

// Runs `op` with the CPU's kernel on the device copies of its arguments.
// Arguments of the dtype `to_widen` get a wider dtype for the call.
void RunOnHost(const c10::OperatorHandle &op, torch::jit::Stack *stack,
               std::optional<c10::ScalarType> to_widen = std::nullopt);

}  // namespace mps_emulator

// Operators of the mps device that the CPU's kernels carry out.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>

namespace mps_emulator {

// Runs `op` with the CPU's kernel on the device copies of its arguments.
// Those of the dtype `to_widen` are taken to a wider one for the time.
void RunOnHost(const c10::OperatorHandle &op, torch::jit::Stack *stack,
               std::optional<c10::ScalarType> to_widen = std::nullopt);

}  // namespace mps_emulator

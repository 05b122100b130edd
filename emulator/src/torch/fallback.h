// Operators of the mps device that the CPU's kernels carry out.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace mps_emulator {

// Runs `op` with the CPU's kernel on the device copies of its arguments.
void RunOnHost(const c10::OperatorHandle &op, torch::jit::Stack *stack);

}  // namespace mps_emulator

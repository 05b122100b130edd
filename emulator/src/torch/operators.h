// Operators with an implementation of the emulated device's own.
#pragma once

#include <torch/library.h>

#include <algorithm>
#include <span>
#include <string_view>

namespace mps_emulator {

// One row of a table of implementations.
struct OwnKernel {
  std::string_view name;
  torch::CppFunction (*make)();
};

template <auto *function>
torch::CppFunction MakeKernel() {
  return torch::CppFunction(TORCH_FN(function));
}

// A function of the operator and torch's stack: it compiles faster.
template <c10::KernelFunction::BoxedKernelFunction *function>
torch::CppFunction MakeBoxedKernel() {
  return torch::CppFunction::makeFromBoxedFunction<function>();
}

inline bool Has(std::span<const OwnKernel> table, std::string_view name) {
  return std::ranges::find(table, name, &OwnKernel::name) != table.end();
}

// True if operators.cc or special_operators.cc implements aten's operator
// `name`, with its overload, e.g. "set_.source_Tensor".
bool HasOwnKernel(std::string_view name);

// The part of special_operators.cc.
bool HasSpecialKernel(std::string_view name);

}  // namespace mps_emulator

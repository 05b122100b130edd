// Operators that the emulated device implements itself.
#pragma once

#include <torch/library.h>

#include <algorithm>
#include <span>
#include <string_view>

namespace mps_emulator {

// A row of a table of implementations: an operator's name with its overload,
// and a function that makes the implementation.
struct OwnKernel {
  std::string_view name;
  torch::CppFunction (*make)();
};

template <auto *function>
torch::CppFunction MakeKernel() {
  return torch::CppFunction(TORCH_FN(function));
}

// Makes a kernel from a function that takes the operator and torch's stack.
// Such a function compiles faster than one that takes the operator's arguments.
template <c10::KernelFunction::BoxedKernelFunction *function>
torch::CppFunction MakeBoxedKernel() {
  return torch::CppFunction::makeFromBoxedFunction<function>();
}

inline bool Has(std::span<const OwnKernel> table, std::string_view name) {
  return std::ranges::find(table, name, &OwnKernel::name) != table.end();
}

// Returns whether operators.cc or special_operators.cc implements aten's
// operator `name`, with its overload, e.g. "set_.source_Tensor".
bool HasOwnKernel(std::string_view name);

// Like HasOwnKernel(), but only for special_operators.cc.
bool HasSpecialKernel(std::string_view name);

}  // namespace mps_emulator

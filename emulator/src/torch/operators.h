// Operators with an implementation of the emulated device's own.
#pragma once

#include <torch/library.h>

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

// True if operators.cc implements aten's operator `name`, with its overload,
// e.g. "set_.source_Tensor".
bool HasOwnKernel(std::string_view name);

// The same for sparse COO tensors (sparse.cc).
bool HasOwnSparseKernel(std::string_view name);

}  // namespace mps_emulator

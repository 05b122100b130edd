// Dtypes that a Mac's mps kernel has and the CPU's kernel lacks.  The operator
// then runs on copies of its tensors in a wider dtype.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string_view>
#include <vector>

namespace mps_emulator {

// True if the CPU's kernel of aten's operator `name`, with or without its
// overload, lacks a dtype that a Mac's kernel has.
bool IsWidened(std::string_view name);

// The promoted dtype of the arguments at the end of `stack`, if a Mac's kernel
// has this dtype and the CPU's lacks it.
std::optional<c10::ScalarType> DtypeToWiden(const c10::OperatorHandle &op,
                                            const torch::jit::Stack &stack);

// The copies of one call.
class Widening {
 public:
  explicit Widening(c10::ScalarType narrow);

  // Replaces the CPU tensors of the narrow dtype by copies.
  void WidenArguments(const c10::FunctionSchema &schema,
                      torch::jit::Stack *stack);

  // Copies the operator's writes back to the tensors, and converts its results
  // to the narrow dtype.
  void NarrowResults(const c10::FunctionSchema &schema,
                     torch::jit::Stack *stack) const;

 private:
  struct Copy {
    at::Tensor narrow;
    at::Tensor wide;
    bool written;
  };

  const c10::ScalarType narrow_;
  const c10::ScalarType wide_;
  std::vector<Copy> copies_;
};

}  // namespace mps_emulator

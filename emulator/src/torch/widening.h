// An operator's mps kernel on a Mac can support dtypes that the CPU's kernel
// lacks.  For such a dtype, the emulator runs the CPU's kernel on copies of the
// tensors in a wider dtype.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string_view>
#include <vector>

namespace mps_emulator {

// Returns whether the CPU's kernel of aten's operator `name` lacks a dtype that
// a Mac's kernel has.  `name` can have an overload.
bool IsWidened(std::string_view name);

// Returns the promoted dtype of the operator's arguments, which are at the end
// of `stack`, if a Mac's kernel has this dtype and the CPU's kernel lacks the
// dtype.  Otherwise returns nullopt.
std::optional<c10::ScalarType> DtypeToWiden(const c10::OperatorHandle &op,
                                            const torch::jit::Stack &stack);

// The wider copies of the tensors of one call.
class Widening {
 public:
  explicit Widening(c10::ScalarType narrow);

  // Replaces each CPU tensor of the narrow dtype in the arguments with a wider
  // copy.
  void WidenArguments(const c10::FunctionSchema &schema,
                      torch::jit::Stack *stack);

  // For each wider copy to which the operator has written, converts the values
  // to the narrow dtype and writes them to the original tensor.  Converts the
  // operator's results to the narrow dtype too.
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

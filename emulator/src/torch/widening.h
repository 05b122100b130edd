// Dtypes that an mps kernel has on a Mac and the CPU's kernel lacks: the
// operator runs on copies of its tensors in a wider one.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string_view>
#include <vector>

namespace mps_emulator {

// True if the CPU's kernel of aten's operator `name`, with or without its
// overload, lacks a dtype that a Mac's has.
bool IsWidened(std::string_view name);

// The dtype that the arguments at the end of `stack` are promoted to, if the
// CPU's kernel lacks that dtype and a Mac's has it.
std::optional<c10::ScalarType> DtypeToWiden(const c10::OperatorHandle &op,
                                            const torch::jit::Stack &stack);

// The copies for one call.
class Widening {
 public:
  explicit Widening(c10::ScalarType narrow);

  // Puts copies in the place of the CPU tensors of the narrow dtype.
  void WidenArguments(const c10::FunctionSchema &schema,
                      torch::jit::Stack *stack);

  // Writes to the tensors what the operator wrote to their copies, and gives
  // its results the narrow dtype.
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

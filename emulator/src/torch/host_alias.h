// CPU tensors over the device copies of mps tensors: how the CPU's operators
// work on the emulated device's memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <utility>
#include <vector>

#include "core/memory.h"

namespace mps_emulator {

// Raises torch's own TypeError for the types that the mps device lacks.
void CheckDtype(c10::ScalarType dtype);

// The aliases that one operator uses, inside an OperatorScope; the tensors it
// hands out must not be used after that scope.
//
// Make it before that scope, with the operator's tensors, or have the caller
// hold the tensors until after the scope.  C++'s first reference to a tensor of
// Python's takes the GIL, and so does dropping the last one; a thread that
// holds the GIL may be waiting for the queue that the scope is in.
class HostAliases {
 public:
  explicit HostAliases(std::initializer_list<at::Tensor> operands = {})
      : operands_(operands) {}

  // A CPU tensor with the memory, sizes, strides and flags of `tensor`, a
  // strided or sparse COO tensor on mps.  `writes`: the operator writes to it.
  // `overwrites_all`: it writes every byte of the storage and reads none.
  // If the operator resizes the alias, Settle() resizes `tensor` likewise.
  at::Tensor Make(const at::Tensor &tensor, bool writes,
                  bool overwrites_all = false);

  // True if one of the tensors so far was sparse.
  bool any_sparse() const { return !sparse_.empty(); }

  // Brings the tensors whose aliases were resized, or whose sparse parts were
  // replaced, up to date.
  void Settle();

  // The mps tensor for a result of the operator: the argument itself where
  // `result` is its alias, a view where it shares an argument's memory, and
  // else a new tensor with a copy of the data.
  at::Tensor ToDevice(const at::Tensor &result);

 private:
  struct StorageAlias {
    c10::Storage device;
    c10::Storage host;
    bool written;
  };
  struct TensorAlias {
    at::Tensor device;
    at::Tensor host;
  };
  struct SparseAlias {
    at::Tensor device;
    at::Tensor host;
    bool written;
  };

  at::Tensor MakeSparse(const at::Tensor &tensor, bool writes);

  const c10::Storage &AliasStorage(const c10::Storage &storage, bool writes,
                                   bool overwrites_all);

  std::vector<at::Tensor> operands_;
  std::vector<StorageAlias> storages_;
  std::vector<TensorAlias> tensors_;
  std::vector<SparseAlias> sparse_;
};

// A new mps tensor with the sizes, strides and data of a CPU tensor, made
// inside an operator: not a copy that the program asked for.
at::Tensor CopyResultToDevice(const at::Tensor &cpu);

// A new, uninitialised strided tensor on mps.
at::Tensor EmptyStrided(at::IntArrayRef sizes, at::IntArrayRef strides,
                        c10::ScalarType dtype);

}  // namespace mps_emulator

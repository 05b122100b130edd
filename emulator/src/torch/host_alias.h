// CPU tensors over the device copies of mps tensors, for the CPU's operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <vector>

#include "core/memory.h"

namespace mps_emulator {

// Raises torch's own TypeError for the types that the mps device lacks.
void CheckDtype(c10::ScalarType dtype);

// The bytes of the storage from the tensor's first element to its last.
ByteRange BytesOf(const at::Tensor &tensor);

// The aliases of one operator, inside an OperatorScope.  No alias may be used
// after the scope.
//
// Create the object before the scope, with the operator's tensors, or let the
// caller hold the tensors until after the scope.  The first C++ reference to a
// Python tensor takes the GIL, and so does the release of the last reference. A
// thread that holds the GIL may be waiting for the queue of the scope.
class HostAliases {
 public:
  explicit HostAliases(std::initializer_list<at::Tensor> operands = {})
      : operands_(operands) {}

  // Returns a CPU tensor with the memory, sizes, strides and flags of `tensor`,
  // a strided or sparse COO tensor on mps.  `writes`: the operator writes to
  // the tensor.  `overwrites_all`: the operator writes every byte of the
  // storage and reads none.  If the operator resizes the alias, Settle()
  // resizes `tensor`.
  at::Tensor Make(const at::Tensor &tensor, bool writes,
                  bool overwrites_all = false);

  // True if one of the tensors so far was sparse.
  bool any_sparse() const { return !sparse_.empty(); }

  // Updates tensors whose aliases were resized or whose sparse parts were
  // replaced.
  void Settle();

  // Returns the mps tensor for a result of the operator: an argument if
  // `result` is its alias, a view if `result` shares an argument's memory, else
  // a new tensor with a copy of the data.
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

  const c10::Storage &AliasStorage(const at::Tensor &tensor, bool writes,
                                   bool overwrites_all);

  std::vector<at::Tensor> operands_;
  std::vector<StorageAlias> storages_;
  std::vector<TensorAlias> tensors_;
  std::vector<SparseAlias> sparse_;
};

// A new mps tensor with the sizes, strides and data of a CPU tensor, made
// inside an operator.  Such a copy does not count as a copy of the program.
at::Tensor CopyResultToDevice(const at::Tensor &cpu);

// A new, uninitialised strided tensor on mps.
at::Tensor EmptyStrided(at::IntArrayRef sizes, at::IntArrayRef strides,
                        c10::ScalarType dtype);

}  // namespace mps_emulator

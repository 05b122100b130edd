// CPU tensors that share the device copies of mps tensors.  The CPU's operators
// compute with these CPU tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <vector>

#include "core/memory.h"

namespace mps_emulator {

// Throws torch's own TypeError for float64 and complex128, which mps lacks.
void CheckDtype(c10::ScalarType dtype);

// Returns which bytes of the storage the tensor's elements span, from the first
// element to the last.
ByteRange BytesOf(const at::Tensor &tensor);

// The aliases of one operator's tensors, inside an OperatorScope.  An alias is
// a CPU tensor with the memory of an mps tensor.  No alias may be used after
// the scope.
//
// Create the object before the scope.  Pass the operator's tensors to the
// constructor, or hold the tensors elsewhere until after the scope.  The
// creation of the first C++ reference to a Python tensor takes the GIL, and the
// release of the last reference takes the GIL too.  Inside the scope, a thread
// that takes the GIL could wait for ever: the thread that holds the GIL may be
// waiting for the scope's queue.
class HostAliases {
 public:
  explicit HostAliases(std::initializer_list<at::Tensor> operands = {})
      : operands_(operands) {}

  // Returns the alias of `tensor`, a strided or sparse COO tensor on mps.  The
  // alias has the memory, sizes, strides and flags of `tensor`.  `writes`: the
  // operator writes to the tensor.  `overwrites_all`: the operator writes every
  // byte of the storage and reads none.  If the operator resizes the alias,
  // Settle() resizes `tensor`.
  at::Tensor Make(const at::Tensor &tensor, bool writes,
                  bool overwrites_all = false);

  // Returns whether any tensor passed to Make() so far was sparse.
  bool any_sparse() const { return !sparse_.empty(); }

  // Updates the tensors whose aliases the operator has resized, and the sparse
  // tensors whose indices and values the operator has replaced.
  void Settle();

  // Returns the mps tensor for a result of the operator.  If `result` is the
  // alias of an argument, returns that argument.  If `result` shares the memory
  // of an argument, returns a view of the argument.  Otherwise returns a new
  // tensor with a copy of the data.
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

// Returns a new mps tensor with the sizes, strides and data of a CPU tensor.
// The caller must be in an OperatorScope.  kHostToDeviceBytes does not count
// this copy, because the program did not ask for it.
at::Tensor CopyResultToDevice(const at::Tensor &cpu);

// Returns a new, uninitialised strided tensor on mps.  Throws as CheckDtype()
// does.
at::Tensor EmptyStrided(at::IntArrayRef sizes, at::IntArrayRef strides,
                        c10::ScalarType dtype);

}  // namespace mps_emulator

// Sparse COO tensors on mps: the operators that make, split and copy them.
// torch's implementations do not depend on the device.
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/sparse_resize_native.h>
#include <ATen/ops/sparse_resize_and_clear_native.h>
#include <ATen/ops/values_native.h>
#include <ATen/ops/zero_native.h>

#include "torch/operators.h"

namespace mps_emulator {

namespace {

namespace native = at::native;

constexpr OwnKernel kSparseKernels[] = {
    {"_sparse_coo_tensor_with_dims", MakeKernel<&native::new_with_dims_sparse>},
    {"_sparse_coo_tensor_with_dims_and_tensors",
     MakeKernel<&native::new_with_dims_and_tensor_sparse_symint>},
    {"empty.memory_format", MakeKernel<&native::empty_sparse_symint>},
    {"empty_like", MakeKernel<&native::empty_like_sparse_coo>},

    {"_indices", MakeKernel<&native::_indices_sparse>},
    {"_values", MakeKernel<&native::_values_sparse>},
    {"indices", MakeKernel<&native::indices_sparse>},
    {"values", MakeKernel<&native::values_sparse>},
    {"_nnz", MakeKernel<&native::_nnz_sparse>},
    {"sparse_dim", MakeKernel<&native::sparse_dim_sparse>},
    {"dense_dim", MakeKernel<&native::dense_dim_sparse>},
    {"is_coalesced", MakeKernel<&native::is_coalesced_sparse>},
    {"_coalesced_", MakeKernel<&native::_coalesced_sparse_>},

    {"copy_", MakeKernel<&native::copy_sparse_wrapper_>},
    {"copy_sparse_to_sparse_", MakeKernel<&native::copy_sparse_>},
    {"clone", MakeKernel<&native::clone_sparse>},
    {"zero_", MakeKernel<&native::zero_sparse_>},
    {"sparse_resize_", MakeKernel<&native::sparse_resize_>},
    {"sparse_resize_and_clear_", MakeKernel<&native::sparse_resize_and_clear_>},
};

TORCH_LIBRARY_IMPL(aten, SparseMPS, m) {
  for (const OwnKernel &kernel : kSparseKernels)
    m.impl(kernel.name.data(), kernel.make());
}

}  // namespace

bool HasOwnSparseKernel(std::string_view name) {
  return Has(kSparseKernels, name);
}

}  // namespace mps_emulator

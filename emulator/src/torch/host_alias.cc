#include "torch/host_alias.h"

#include <ATen/EmptyTensor.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/TensorBody.h>
#include <ATen/ops/_efficientzerotensor.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/TensorImpl.h>

#include <cstring>

#include "core/counters.h"
#include "core/stream.h"
#include "torch/allocator.h"

namespace mps_emulator {

namespace {

// Allocates memory when a CPU operator resizes an alias.  The memory is a
// device copy, so the mps tensor gets the new storage without a copy of the
// data.
class AliasAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size) override {
    if (size == 0) return {nullptr, c10::Device(c10::kCPU)};
    c10::DataPtr device = TorchAllocator().allocate(size);
    Buffer *buffer = TakeBuffer(&device);
    return MakeHostDataPtr(buffer, OperatorScope::Use(buffer, /*writes=*/true));
  }
  void copy_data(void *destination, const void *source,
                 size_t size) const override {
    memcpy(destination, source, size);
  }
};

AliasAllocator &TheAliasAllocator() {
  static auto *allocator = new AliasAllocator;
  return *allocator;
}

c10::DispatchKeySet CpuKeys() {
  return c10::DispatchKeySet(c10::DispatchKey::CPU);
}

at::Tensor MakeTensor(const c10::Storage &storage, c10::DispatchKeySet keys,
                      const at::Tensor &like) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), keys, like.dtype());
  c10::TensorImpl *impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(),
                              like.storage_offset());
  if (like.is_conj()) impl->_set_conj(true);
  if (like.is_neg()) impl->_set_neg(true);
  return tensor;
}

// Returns how many bytes the elements of `tensor` span, from the first to the
// last.
size_t SpannedBytes(const at::Tensor &tensor) {
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) == 0) return 0;
    last += (tensor.size(i) - 1) * tensor.stride(i);
  }
  return static_cast<size_t>(last + 1) * tensor.itemsize();
}

// Returns the total size, in bytes, of the elements of `tensor`.  An element
// that a stride of 0 repeats is counted once.
size_t OwnBytes(const at::Tensor &tensor) {
  size_t ans = tensor.itemsize();
  for (int64_t i = 0; i < tensor.dim(); ++i)
    if (tensor.stride(i) != 0 || tensor.size(i) == 0)
      ans *= static_cast<size_t>(tensor.size(i));
  return ans;
}

}  // namespace

void CheckDtype(c10::ScalarType dtype) {
  TORCH_CHECK_TYPE(
      dtype != c10::ScalarType::Double &&
          dtype != c10::ScalarType::ComplexDouble,
      "Cannot convert a MPS Tensor to float64 dtype as the MPS framework "
      "doesn't support float64. Please use float32 instead.");
}

ByteRange BytesOf(const at::Tensor &tensor) {
  const size_t begin =
      static_cast<size_t>(tensor.storage_offset()) * tensor.itemsize();
  return {begin, begin + SpannedBytes(tensor)};
}

const c10::Storage &HostAliases::AliasStorage(const at::Tensor &tensor,
                                              bool writes,
                                              bool overwrites_all) {
  const c10::Storage &storage = tensor.storage();
  Buffer *buffer = BufferOf(storage);
  char *memory = buffer ? OperatorScope::Use(buffer, writes, overwrites_all,
                                             BytesOf(tensor))
                        : nullptr;
  for (StorageAlias &alias : storages_) {
    if (!alias.device.is_alias_of(storage)) continue;
    if (buffer && writes) alias.written = true;
    return alias.host;
  }
  storages_.push_back(
      {storage,
       c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(),
                    c10::DataPtr(memory, c10::Device(c10::kCPU)),
                    &TheAliasAllocator(), /*resizable=*/true),
       writes});
  return storages_.back().host;
}

at::Tensor HostAliases::MakeSparse(const at::Tensor &tensor, bool writes) {
  // An operator can change a sparse tensor in two ways: it gives the tensor new
  // indices and values, or it writes to the values in place.
  at::Tensor host = at::_sparse_coo_tensor_with_dims_and_tensors(
      tensor.sparse_dim(), tensor.dense_dim(), tensor.sizes(),
      Make(tensor._indices(), writes), Make(tensor._values(), writes),
      tensor.options().device(at::kCPU), tensor.is_coalesced());
  sparse_.push_back({tensor, host, writes});
  return host;
}

at::Tensor HostAliases::Make(const at::Tensor &tensor, bool writes,
                             bool overwrites_all) {
  if (tensor.is_sparse()) return MakeSparse(tensor, writes);
  // A zero tensor has no memory, and no operator writes to it.
  if (tensor._is_zerotensor())
    return at::_efficientzerotensor(tensor.sizes(),
                                    tensor.options().device(at::kCPU));
  // Each tensor gets one alias, even if the call passes the tensor several
  // times.
  for (const TensorAlias &alias : tensors_) {
    if (!alias.device.is_same(tensor)) continue;
    if (writes) AliasStorage(tensor, true, overwrites_all);
    return alias.host;
  }
  at::Tensor alias = MakeTensor(AliasStorage(tensor, writes, overwrites_all),
                                CpuKeys(), tensor);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
    alias.unsafeGetTensorImpl()->set_wrapped_number(true);
  Count(kOperatorBytes, OwnBytes(tensor));
  tensors_.push_back({tensor, alias});
  return alias;
}

void HostAliases::Settle() {
  for (StorageAlias &alias : storages_) {
    // If the operator has resized the alias, the tensor gets the new memory.
    c10::DataPtr memory = alias.host.set_data_ptr(
        c10::DataPtr(alias.host.mutable_data(), c10::Device(c10::kCPU)));
    if (Buffer *buffer = TakeBuffer(&memory))
      alias.device.set_data_ptr_noswap(MakeDataPtr(buffer));
    if (alias.written && alias.device.nbytes() != alias.host.nbytes())
      alias.device.set_nbytes(alias.host.nbytes());
  }
  for (TensorAlias &alias : tensors_) {
    const at::Tensor &host = alias.host;
    if (host.sizes() == alias.device.sizes() &&
        host.strides() == alias.device.strides() &&
        host.storage_offset() == alias.device.storage_offset())
      continue;
    alias.device.unsafeGetTensorImpl()->set_sizes_and_strides(
        host.sizes(), host.strides(), host.storage_offset());
  }
  for (SparseAlias &alias : sparse_) {
    if (!alias.written) continue;
    const at::Tensor &host = alias.host;
    auto *impl =
        static_cast<at::SparseTensorImpl *>(alias.device.unsafeGetTensorImpl());
    impl->raw_resize_(host.sparse_dim(), host.dense_dim(), host.sizes());
    impl->set_indices_and_values_unsafe(ToDevice(host._indices()),
                                        ToDevice(host._values()));
    impl->set_coalesced(host.is_coalesced());
  }
}

at::Tensor HostAliases::ToDevice(const at::Tensor &result) {
  if (!result.defined()) return result;
  if (result.is_sparse()) {
    for (const SparseAlias &alias : sparse_)
      if (alias.host.is_same(result)) return alias.device;
    return at::_sparse_coo_tensor_with_dims_and_tensors(
        result.sparse_dim(), result.dense_dim(), result.sizes(),
        ToDevice(result._indices()), ToDevice(result._values()),
        result.options().device(at::kMPS), result.is_coalesced());
  }
  TORCH_CHECK_NOT_IMPLEMENTED(result.layout() == c10::kStrided,
                              "tensors of layout ", result.layout(),
                              " are not available on the emulated MPS device");
  for (const TensorAlias &alias : tensors_)
    if (alias.host.is_same(result)) return alias.device;
  if (result.has_storage() && result.storage().data())
    for (const StorageAlias &alias : storages_)
      if (alias.host.is_alias_of(result.storage()))
        return MakeTensor(alias.device,
                          c10::DispatchKeySet(c10::DispatchKey::MPS), result);
  return CopyResultToDevice(result);
}

at::Tensor EmptyStrided(at::IntArrayRef sizes, at::IntArrayRef strides,
                        c10::ScalarType dtype) {
  CheckDtype(dtype);
  return at::detail::empty_strided_generic(
      sizes, strides, &TorchAllocator(),
      c10::DispatchKeySet(c10::DispatchKey::MPS), dtype);
}

at::Tensor CopyResultToDevice(const at::Tensor &cpu) {
  if (cpu._is_zerotensor())
    return at::_efficientzerotensor(cpu.sizes(),
                                    cpu.options().device(at::kMPS));
  at::Tensor result =
      EmptyStrided(cpu.sizes(), cpu.strides(), cpu.scalar_type());
  if (cpu.is_conj()) result.unsafeGetTensorImpl()->_set_conj(true);
  if (cpu.is_neg()) result.unsafeGetTensorImpl()->_set_neg(true);
  Buffer *buffer = BufferOf(result.storage());
  size_t bytes = SpannedBytes(cpu);
  if (!buffer || !bytes) return result;
  // The storage has exactly the bytes that the elements span.
  char *memory = OperatorScope::Use(buffer, /*writes=*/true,
                                    /*overwrites_all=*/true);
  memcpy(memory, cpu.const_data_ptr(), bytes);
  Count(kOperatorBytes, bytes);
  return result;
}

}  // namespace mps_emulator

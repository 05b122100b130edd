// Operators that need the device's own implementation: allocation, views,
// copies, and what changes a tensor's storage.  Everything else goes through
// the fallback (fallback.cc).
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <cstring>

#include "core/counters.h"
#include "core/stream.h"
#include "torch/allocator.h"
#include "torch/host_alias.h"

namespace mps_emulator {

namespace {

using at::IntArrayRef;
using at::MemoryFormat;
using at::Scalar;
using at::ScalarType;
using at::Storage;
using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;
using std::optional;

c10::DispatchKeySet MpsKeys() {
  return c10::DispatchKeySet(c10::DispatchKey::MPS);
}

// ---- allocation

Tensor EmptyMemoryFormat(SymIntArrayRef sizes, optional<ScalarType> dtype,
                         optional<at::Layout>, optional<at::Device>,
                         optional<bool> pin_memory,
                         optional<MemoryFormat> memory_format) {
  TORCH_CHECK(!pin_memory.value_or(false),
              "Only dense CPU tensors can be pinned");
  ScalarType type = c10::dtype_or_default(dtype);
  CheckDtype(type);
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(sizes),
                                   &TorchAllocator(), MpsKeys(), type,
                                   memory_format);
}

Tensor EmptyStridedOperator(SymIntArrayRef sizes, SymIntArrayRef strides,
                            optional<ScalarType> dtype, optional<at::Layout>,
                            optional<at::Device>, optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false),
              "Only dense CPU tensors can be pinned");
  return EmptyStrided(C10_AS_INTARRAYREF_SLOW(sizes),
                      C10_AS_INTARRAYREF_SLOW(strides),
                      c10::dtype_or_default(dtype));
}

// ---- copies

bool CoversStorage(const Tensor &tensor) {
  return tensor.is_non_overlapping_and_dense() &&
         tensor.nbytes() == tensor.storage().nbytes();
}

// A CPU tensor over memory that a command gets when it runs.
Tensor OverMemory(char *storage, const Tensor &like) {
  return at::from_blob(
      storage + like.storage_offset() * static_cast<int64_t>(like.itemsize()),
      like.sizes(), like.strides(), [](void *) {},
      at::TensorOptions().dtype(like.scalar_type()).device(at::kCPU));
}

// Copies that do not wait: on a Mac the source is read, and the destination
// written, when the device gets there.
void EncodeCopy(const Tensor &destination, const Tensor &source) {
  const Tensor &on_device = destination.is_mps() ? destination : source;
  Buffer *buffer = BufferOf(on_device.storage());
  // Shallow copies: the command must see today's sizes, and keep both alive.
  Tensor to = destination.detach();
  Tensor from = source.detach();
  EncodeOnStream({"copy",
                  {AnnounceUse(buffer, destination.is_mps())},
                  [to, from](char *const *device) {
                    at::AutoDispatchBelowADInplaceOrView guard;
                    if (to.is_mps())
                      OverMemory(device[0], to).copy_(from);
                    else
                      to.copy_(OverMemory(device[0], from));
                  }});
  SerialQueue &queue = StreamDispatchQueue();
  queue.Enter();
  CommitStream();
  queue.Leave();
}

Tensor &CopyImplementation(Tensor &self, const Tensor &source,
                           bool non_blocking) {
  Tensor from =
      source.sizes() == self.sizes() ? source : source.expand(self.sizes());
  bool to_device = self.is_mps();
  bool from_device = from.is_mps();
  TORCH_CHECK((to_device || self.is_cpu()) && (from_device || from.is_cpu()),
              "copies between mps and ",
              to_device ? from.device() : self.device(), " are not supported");

  if (to_device && from_device) {
    Count(kDeviceToDeviceCopies);
    Count(kDeviceToDeviceBytes, from.nbytes());
  } else if (to_device) {
    Count(kHostToDeviceCopies);
    Count(kHostToDeviceBytes, from.nbytes());
  } else {
    Count(kDeviceToHostCopies);
    Count(kDeviceToHostBytes, from.nbytes());
  }

  bool flags =
      self.is_conj() || self.is_neg() || from.is_conj() || from.is_neg();
  if (non_blocking && to_device != from_device && !flags) {
    EncodeCopy(self, from);
    return self;
  }

  OperatorScope scope("aten::copy_");
  if (to_device != from_device) OperatorScope::WaitAtEnd();
  at::AutoDispatchBelowADInplaceOrView guard;
  HostAliases aliases;
  Tensor destination =
      to_device ? aliases.Make(self, true, CoversStorage(self)) : self;
  destination.copy_(from_device ? aliases.Make(from, false) : from);
  return self;
}

Tensor &Copy(Tensor &self, const Tensor &source, bool non_blocking) {
  if (self.is_same(source) || self.numel() == 0) {
    TORCH_CHECK(self.is_same(source) ||
                    at::is_expandable_to(source.sizes(), self.sizes()),
                "The size of tensor a ", self.sizes(),
                " must match the size of tensor b ", source.sizes());
    return self;
  }
  return CopyImplementation(self, source, non_blocking);
}

Tensor CopyFrom(const Tensor &self, const Tensor &destination,
                bool non_blocking) {
  Tensor mutable_destination = destination;
  Copy(mutable_destination, self, non_blocking);
  return destination;
}

Scalar LocalScalarDense(const Tensor &self) {
  // On a Mac a blocking copy of one element to the CPU.
  Count(kDeviceToHostCopies);
  Count(kDeviceToHostBytes, self.itemsize());
  OperatorScope scope("aten::_local_scalar_dense");
  OperatorScope::WaitAtEnd();
  at::AutoDispatchBelowADInplaceOrView guard;
  HostAliases aliases;
  return at::_local_scalar_dense(aliases.Make(self, false));
}

// ---- views

Tensor AsStrided(const Tensor &self, SymIntArrayRef sizes,
                 SymIntArrayRef strides, optional<SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      self, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides),
      offset ? optional<int64_t>(offset->expect_int()) : std::nullopt);
}

Tensor View(const Tensor &self, SymIntArrayRef sizes) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(sizes));
}

Tensor ReshapeAlias(const Tensor &self, SymIntArrayRef sizes,
                    SymIntArrayRef strides) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(sizes),
                                    C10_AS_INTARRAYREF_SLOW(strides));
}

// ---- storage changes

// Makes room for `bytes` in the storage of `self`; keeps the data.
void GrowStorage(const Tensor &self, size_t bytes) {
  c10::StorageImpl *storage = self.storage().unsafeGetStorageImpl();
  if (bytes <= storage->nbytes()) return;
  TORCH_CHECK(storage->resizable(),
              "Trying to resize storage that is not resizable");
  size_t kept = storage->nbytes();
  c10::DataPtr memory = TorchAllocator().allocate(bytes);
  if (kept) {
    OperatorScope scope("aten::resize_");
    Buffer *from = BufferOf(self.storage());
    Buffer *to = static_cast<Buffer *>(memory.get_context());
    memcpy(OperatorScope::Use(to, true), OperatorScope::Use(from, false), kept);
  }
  storage->set_data_ptr_noswap(std::move(memory));
  storage->set_nbytes(bytes);
}

void ResizeTo(const Tensor &self, IntArrayRef sizes) {
  c10::TensorImpl *impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(sizes);
  int64_t elements = impl->numel();
  if (elements == 0) return;
  GrowStorage(self, static_cast<size_t>(elements + self.storage_offset()) *
                        self.itemsize());
}

const Tensor &Resize(const Tensor &self, SymIntArrayRef sizes,
                     optional<MemoryFormat> memory_format) {
  IntArrayRef concrete = C10_AS_INTARRAYREF_SLOW(sizes);
  if (concrete != self.sizes()) ResizeTo(self, concrete);
  if (memory_format && *memory_format != MemoryFormat::Preserve)
    self.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  return self;
}

Tensor CopyFromAndResize(const Tensor &self, const Tensor &destination) {
  if (destination.sizes() != self.sizes()) ResizeTo(destination, self.sizes());
  return CopyFrom(self, destination, false);
}

Tensor &SetStorage(Tensor &self, Storage source) {
  c10::TensorImpl *impl = self.unsafeGetTensorImpl();
  int64_t elements = static_cast<int64_t>(source.nbytes() / self.itemsize());
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(0);
  impl->set_sizes_contiguous({elements});
  return self;
}

Tensor &SetStorageOffset(Tensor &self, Storage source, SymInt offset,
                         SymIntArrayRef sizes, SymIntArrayRef strides) {
  IntArrayRef concrete = C10_AS_INTARRAYREF_SLOW(sizes);
  c10::TensorImpl *impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_sizes_contiguous(concrete);
  if (!strides.empty())
    impl->set_sizes_and_strides(concrete, C10_AS_INTARRAYREF_SLOW(strides));
  impl->set_storage_offset(offset.expect_int());
  // As on the other devices the storage grows to what the sizes need.
  if (impl->numel())
    GrowStorage(self, at::detail::computeStorageNbytes(
                          impl->sizes(), impl->strides(), self.itemsize(),
                          static_cast<size_t>(self.storage_offset())));
  return self;
}

Tensor &SetTensor(Tensor &self, const Tensor &source) {
  if (self.is_same(source)) return self;
  c10::TensorImpl *impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(source.storage());
  impl->set_sizes_and_strides(source.sizes(), source.strides(),
                              source.storage_offset());
  return self;
}

Tensor &SetNothing(Tensor &self) {
  return SetStorage(
      self, Storage(Storage::use_byte_size_t(), 0, TorchAllocator().allocate(0),
                    &TorchAllocator(), /*resizable=*/true));
}

TORCH_LIBRARY_IMPL(aten, MPS, m) {
  m.impl("empty.memory_format", EmptyMemoryFormat);
  m.impl("empty_strided", EmptyStridedOperator);

  m.impl("copy_", Copy);
  m.impl("_copy_from", CopyFrom);
  m.impl("_copy_from_and_resize", CopyFromAndResize);
  m.impl("_local_scalar_dense", LocalScalarDense);

  m.impl("as_strided", AsStrided);
  m.impl("view", View);
  m.impl("_reshape_alias", ReshapeAlias);
  m.impl("unfold", &at::native::unfold);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);

  m.impl("resize_", Resize);
  m.impl("set_", SetNothing);
  m.impl("set_.source_Storage", SetStorage);
  m.impl("set_.source_Storage_storage_offset", SetStorageOffset);
  m.impl("set_.source_Tensor", SetTensor);
}

}  // namespace

}  // namespace mps_emulator

// Operators that allocate or copy tensors, or change a tensor's storage.
// special_operators.cc has the other operators that the device implements
// itself.  All remaining operators run the CPU's kernels (fallback.cc).
#include "torch/operators.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/from_blob.h>
#include <torch/library.h>

#include <cstring>
#include <memory>
#include <string_view>
#include <thread>

#include "core/counters.h"
#include "core/stream.h"
#include "torch/allocator.h"
#include "torch/host_alias.h"
#include "torch/refusals.h"

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

constexpr size_t kMaxDimensions = 16;

void CheckDimensions(size_t dimensions) {
  TORCH_CHECK(dimensions <= kMaxDimensions,
              "MPS supports tensors with dimensions <= ", kMaxDimensions,
              ", but got ", dimensions, ".");
}

Tensor EmptyMemoryFormat(SymIntArrayRef sizes, optional<ScalarType> dtype,
                         optional<at::Layout>, optional<at::Device>,
                         optional<bool> pin_memory,
                         optional<MemoryFormat> memory_format) {
  TORCH_CHECK(!pin_memory.value_or(false),
              "Only dense CPU tensors can be pinned");
  ScalarType type = c10::dtype_or_default(dtype);
  CheckDtype(type);
  CheckDimensions(sizes.size());
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(sizes),
                                   &TorchAllocator(), MpsKeys(), type,
                                   memory_format);
}

Tensor EmptyStridedOperator(SymIntArrayRef sizes, SymIntArrayRef strides,
                            optional<ScalarType> dtype, optional<at::Layout>,
                            optional<at::Device>, optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false),
              "Only dense CPU tensors can be pinned");
  CheckDimensions(sizes.size());
  return EmptyStrided(C10_AS_INTARRAYREF_SLOW(sizes),
                      C10_AS_INTARRAYREF_SLOW(strides),
                      c10::dtype_or_default(dtype));
}

// An allocator that allocates no memory, for a tensor of zeros that stores no
// elements.
class NoMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t) override {
    return {nullptr, c10::Device(c10::kMPS, 0)};
  }
  void copy_data(void *, const void *, size_t) const override {}
};

Tensor EfficientZeroTensor(SymIntArrayRef sizes, optional<ScalarType> dtype,
                           optional<at::Layout>, optional<at::Device>,
                           optional<bool>) {
  static NoMemory allocator;
  ScalarType type = c10::dtype_or_default(dtype);
  CheckDtype(type);
  return at::detail::empty_generic(
      C10_AS_INTARRAYREF_SLOW(sizes), &allocator,
      MpsKeys() | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor), type,
      std::nullopt);
}

// ---- copies

bool CoversStorage(const Tensor &tensor) {
  return tensor.is_non_overlapping_and_dense() &&
         tensor.nbytes() == tensor.storage().nbytes();
}

// Returns a CPU tensor whose elements are in `storage`, the device copy of a
// command's buffer.
Tensor OverMemory(char *storage, const Tensor &like) {
  return at::from_blob(
      storage + like.storage_offset() * static_cast<int64_t>(like.itemsize()),
      like.sizes(), like.strides(), [](void *) {},
      at::TensorOptions().dtype(like.scalar_type()).device(at::kCPU));
}

// Encodes a non-blocking copy.  As on a Mac, the device reads the source and
// writes the destination later.
void EncodeCopy(const Tensor &destination, const Tensor &source) {
  const Tensor &on_device = destination.is_mps() ? destination : source;
  Buffer *buffer = BufferOf(on_device.storage());
  struct Tensors {
    Tensor to, from;
  };
  // The command holds shallow copies of both tensors.  The shallow copies keep
  // the present sizes, and keep the memory alive.  As with torch on a Mac,
  // another thread frees the shallow copies, to avoid a deadlock: the release
  // of a storage that Python owns takes the GIL, and the thread that holds the
  // GIL may be waiting for the stream.
  std::shared_ptr<Tensors> tensors(
      new Tensors{destination.detach(), source.detach()}, [](Tensors *tensors) {
        std::thread([tensors] { delete tensors; }).detach();
      });
  EncodeOnStream(
      {"copy",
       {AnnounceUse(buffer, destination.is_mps(), BytesOf(on_device))},
       [tensors](char *const *device) {
         at::AutoDispatchBelowADInplaceOrView guard;
         const auto &[to, from] = *tensors;
         if (to.is_mps())
           OverMemory(device[0], to).copy_(from);
         else
           to.copy_(OverMemory(device[0], from));
       }});
  CommitInQueue();
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

  if (!from_device) Count(kHostToDeviceBytes, from.nbytes());
  if (!to_device) Count(kDeviceToHostBytes, from.nbytes());

  bool flags =
      self.is_conj() || self.is_neg() || from.is_conj() || from.is_neg();
  if (non_blocking && to_device != from_device && !flags) {
    Count(kOperatorBytes, from.nbytes());
    EncodeCopy(self, from);
    return self;
  }

  {
    HostAliases aliases({self, from});
    OperatorScope scope("aten::copy_");
    at::AutoDispatchBelowADInplaceOrView guard;
    Tensor destination =
        to_device ? aliases.Make(self, true, CoversStorage(self)) : self;
    destination.copy_(from_device ? aliases.Make(from, false) : from);
  }
  if (to_device != from_device) SynchronizeInQueue("aten::copy_");
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
  if (source._is_zerotensor()) return self.zero_();
  return CopyImplementation(self, source, non_blocking);
}

Tensor CopyFrom(const Tensor &self, const Tensor &destination,
                bool non_blocking) {
  Tensor mutable_destination = destination;
  Copy(mutable_destination, self, non_blocking);
  return destination;
}

Scalar LocalScalarDense(const Tensor &self) {
  // On a Mac, item() is a blocking copy of one element to the CPU.
  Count(kDeviceToHostBytes, self.itemsize());
  Scalar value;
  {
    HostAliases aliases({self});
    OperatorScope scope("aten::_local_scalar_dense");
    at::AutoDispatchBelowADInplaceOrView guard;
    value = at::_local_scalar_dense(aliases.Make(self, false));
  }
  SynchronizeInQueue("aten::_local_scalar_dense");
  return value;
}

// ---- storage changes

// Grows the storage of `self` to `bytes` and keeps the data.
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
  // As on other devices, the storage grows if the sizes and strides need more
  // bytes.
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

// ---- registration

constexpr OwnKernel kOwnKernels[] = {
    {"empty.memory_format", MakeKernel<&EmptyMemoryFormat>},
    {"empty_strided", MakeKernel<&EmptyStridedOperator>},

    {"_efficientzerotensor", MakeKernel<&EfficientZeroTensor>},

    {"copy_", MakeKernel<&Copy>},
    {"_copy_from", MakeKernel<&CopyFrom>},
    {"_copy_from_and_resize", MakeKernel<&CopyFromAndResize>},
    {"_local_scalar_dense", MakeKernel<&LocalScalarDense>},

    {"resize_", MakeKernel<&Resize>},
    {"set_", MakeKernel<&SetNothing>},
    {"set_.source_Storage", MakeKernel<&SetStorage>},
    {"set_.source_Storage_storage_offset", MakeKernel<&SetStorageOffset>},
    {"set_.source_Tensor", MakeKernel<&SetTensor>},
};

TORCH_LIBRARY_IMPL(aten, MPS, m) {
  for (const OwnKernel &kernel : kOwnKernels)
    m.impl(kernel.name.data(), kernel.make());
}

}  // namespace

bool HasOwnKernel(std::string_view name) {
  return Has(kOwnKernels, name) || HasSpecialKernel(name);
}

}  // namespace mps_emulator

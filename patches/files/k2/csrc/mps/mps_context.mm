/**
 * Copyright      2026  The k2-mps authors
 *
 * See LICENSE for clarification regarding multiple authors
 *
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */

#include "k2/csrc/mps/mps_context.h"

#import <Metal/Metal.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "ATen/detail/MPSHooksInterface.h"
#include "k2/csrc/log.h"
#include "k2/csrc/mps/stream.h"

namespace k2 {

namespace {

// Returns the host's address of the first byte of `storage`; nullptr if
// `storage` is empty.
void *HostAddress(const c10::Storage &storage) {
  if (storage.nbytes() == 0 || storage.data() == nullptr) return nullptr;
  // On mps, the data pointer of a storage is an MTLBuffer.
  void *address =
      [__builtin_bit_cast(id<MTLBuffer>, storage.mutable_data()) contents];
  K2_CHECK(address != nullptr)
      << "This mps tensor is in memory that the host cannot read.";
  return address;
}

torch::Device MpsDevice() { return torch::Device(torch::kMPS, 0); }

// Returns a tensor on mps that uses `storage`.  `offset` is in elements.
torch::Tensor MakeTensor(c10::Storage storage, torch::ScalarType dtype,
                         int64_t offset, torch::IntArrayRef sizes,
                         torch::IntArrayRef strides) {
  auto ans = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::MPS),
      c10::scalarTypeToTypeMeta(dtype));
  ans.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return ans;
}

}  // namespace

// For every Region of this context, Region::deleter_context is the c10::Storage
// that owns the Region's memory.  MpsToTorch() needs the storage to make a
// tensor of the Region.
class PytorchMpsContext : public Context {
 public:
  PytorchMpsContext()
      : allocator_(at::detail::getMPSHooks().getMPSDeviceAllocator()) {}

  DeviceType GetDeviceType() const override { return kMps; }

  int32_t GetDeviceId() const override { return 0; }

  void *Allocate(size_t bytes, void **deleter_context) override {
    *deleter_context = nullptr;
    if (bytes == 0) return nullptr;

    mps::RefuseFork();
    auto storage = std::make_unique<c10::Storage>(
        c10::Storage::use_byte_size_t(), bytes, allocator_->allocate(bytes),
        allocator_, /*resizable*/ false);
    void *data = HostAddress(*storage);
    *deleter_context = storage.release();
    // Wait, because pending work of the GPU may still use this memory if
    // another thread has just freed the memory.
    mps::Synchronize();
    return data;
  }

  void Deallocate(void *data, void *deleter_context) override {
    // The GPU may still use this memory.  But freeing the memory does no harm:
    // torch reuses the memory only for later work of the same stream, and
    // Allocate() waits.
    delete static_cast<c10::Storage *>(deleter_context);
  }

  bool IsCompatible(const Context &other) const override {
    return other.GetDeviceType() == kMps;
  }

  bool SyncIfOnHost() const override {
    mps::Synchronize();
    return true;
  }

  void Sync() const override { mps::Synchronize(); }

  void CopyDataTo(size_t num_bytes, const void *src, ContextPtr dst_context,
                  void *dst) override {
    DeviceType dst_type = dst_context->GetDeviceType();
    K2_CHECK(dst_type == kMps || dst_type == kCpu)
        << "Cannot copy from mps to " << dst_type;
    Sync();
    // `src` and `dst` may both be nullptr if there is nothing to copy.
    if (num_bytes != 0) memcpy(dst, src, num_bytes);
  }

 private:
  at::Allocator *allocator_;  // NOT owned here
};

bool HasMps() { return at::detail::getMPSHooks().hasMPS(); }

ContextPtr GetMpsContext() {
  // The context is never destroyed, because Regions may outlive static objects.
  static ContextPtr *context = [] {
    K2_CHECK(HasMps())
        << "torch finds no mps device. torch.backends.mps.is_available() "
           "tells whether there is one, and "
           "torch.backends.mps.is_built() whether torch can use it.";
    return new ContextPtr(std::make_shared<PytorchMpsContext>());
  }();
  return *context;
}

RegionPtr NewMpsRegion(const torch::Tensor &tensor) {
  const c10::Storage &storage = tensor.storage();
  size_t offset = tensor.storage_offset() * tensor.itemsize();
  char *base = static_cast<char *>(HostAddress(storage));

  auto ans = std::make_shared<Region>();
  ans->context = GetMpsContext();
  ans->data = base == nullptr ? nullptr : base + offset;
  ans->deleter_context = new c10::Storage(storage);
  ans->num_bytes = storage.nbytes() - std::min(offset, storage.nbytes());
  ans->bytes_used = ans->num_bytes;
  return ans;
}

torch::Tensor MpsToTorch(const RegionPtr &region, void *data,
                         torch::IntArrayRef sizes, torch::IntArrayRef strides,
                         torch::ScalarType dtype) {
  bool on_host = dtype == torch::kDouble;
  auto options = torch::dtype(dtype).device(
      on_host ? torch::Device(torch::kCPU) : MpsDevice());
  if (c10::multiply_integers(sizes) == 0)
    return torch::empty_strided(sizes, strides, options);

  if (on_host) {
    // Wait now, because code that reads a tensor on the CPU does not wait.
    region->context->Sync();
    return torch::from_blob(
        data, sizes, strides, [region](void *) {}, options);
  }

  auto *storage = static_cast<c10::Storage *>(region->deleter_context);
  K2_CHECK(storage != nullptr && storage->device_type() == torch::kMPS);
  size_t offset =
      static_cast<char *>(data) - static_cast<char *>(HostAddress(*storage));
  size_t itemsize = c10::elementSize(dtype);
  K2_CHECK_EQ(offset % itemsize, 0u)
      << "An mps tensor of " << dtype << " cannot begin at byte " << offset
      << " of its storage";
  return MakeTensor(*storage, dtype, offset / itemsize, sizes, strides);
}

torch::Tensor MpsReinterpret(const torch::Tensor &tensor,
                             torch::ScalarType dtype) {
  K2_CHECK_EQ(tensor.itemsize(), c10::elementSize(dtype));
  return MakeTensor(tensor.storage(), dtype, tensor.storage_offset(),
                    tensor.sizes(), tensor.strides());
}

void *MpsHostPtr(const torch::Tensor &tensor) {
  mps::Synchronize();
  auto *base = static_cast<char *>(HostAddress(tensor.storage()));
  if (base == nullptr) return nullptr;
  return base + tensor.storage_offset() * tensor.itemsize();
}

}  // namespace k2

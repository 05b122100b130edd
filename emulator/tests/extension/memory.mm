#include "extension.h"

#include <ATen/detail/MPSHooksInterface.h>
#include <ATen/mps/MPSAllocatorInterface.h>
#include <ATen/native/mps/OperationUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

at::Tensor OnMps(int64_t elements) {
  return at::zeros({elements}, at::TensorOptions().device(at::kMPS));
}

uintptr_t HostAddress(const at::Tensor &tensor) {
  return reinterpret_cast<uintptr_t>([BufferOf(tensor) contents]) +
         OffsetOf(tensor);
}

uintptr_t HostAddressByTorch(const at::Tensor &tensor) {
  id<MTLBuffer> buffer = at::native::mps::getMTLBufferStorage(tensor);
  return reinterpret_cast<uintptr_t>([buffer contents]) + OffsetOf(tensor);
}

std::vector<float> ReadContents(const at::Tensor &tensor) {
  auto *values = reinterpret_cast<const float *>(HostAddress(tensor));
  return {values, values + tensor.numel()};
}

void WriteContents(at::Tensor tensor, std::vector<float> values) {
  auto *memory = reinterpret_cast<float *>(HostAddress(tensor));
  std::copy(values.begin(), values.end(), memory);
}

float DereferenceHandle(const at::Tensor &tensor, int64_t byte) {
  auto *address = static_cast<volatile char *>(tensor.data_ptr()) + byte;
  return static_cast<float>(*address);
}

at::Tensor HostAlias(const at::Tensor &tensor) {
  auto *allocator = static_cast<at::mps::IMPSAllocator *>(
      at::detail::getMPSHooks().getMPSDeviceAllocator());
  TORCH_CHECK(allocator->isSharedBuffer(tensor.storage().data()));
  at::Tensor alias = at::empty({0}, tensor.options().device(at::kCPU));
  return alias.set_(allocator->getHostAliasStorage(tensor.storage()),
                    tensor.storage_offset(), tensor.sizes(), tensor.strides());
}

// Allocation, views, copies, and changes of a tensor's storage.  All other
// operators run the CPU's kernels (fallback.cc).
#include "torch/operators.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/linear_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <string_view>
#include <tuple>
#include <vector>

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

// A tensor of zeros without memory.
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

// A CPU tensor over the memory of a command's buffer.
Tensor OverMemory(char *storage, const Tensor &like) {
  return at::from_blob(
      storage + like.storage_offset() * static_cast<int64_t>(like.itemsize()),
      like.sizes(), like.strides(), [](void *) {},
      at::TensorOptions().dtype(like.scalar_type()).device(at::kCPU));
}

// Non-blocking copies: on a Mac the device reads the source and writes the
// destination later.
void EncodeCopy(const Tensor &destination, const Tensor &source) {
  const Tensor &on_device = destination.is_mps() ? destination : source;
  Buffer *buffer = BufferOf(on_device.storage());
  struct Tensors {
    Tensor to, from;
  };
  // Shallow copies keep the present sizes, and both tensors alive, for the
  // command.  As with torch on a Mac a separate thread drops the copies: the
  // release of a storage that Python owns takes the GIL, and a thread that
  // holds the GIL may be waiting for the stream.
  std::shared_ptr<Tensors> tensors(
      new Tensors{destination.detach(), source.detach()}, [](Tensors *tensors) {
        static auto *release_queue = new SerialQueue("release");
        release_queue->Async([tensors] { delete tensors; });
      });
  EncodeOnStream({"copy",
                  {AnnounceUse(buffer, destination.is_mps())},
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
  // On a Mac item() is a blocking copy of one element to the CPU.
  Count(kDeviceToHostCopies);
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
  // As on other devices the storage grows to the size that the sizes need.
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

// ---- operators for which the device chooses the implementation

// torch's checks of attention's arguments before its choice of a kernel, which
// fails for the mps device in builds for Linux.
void CheckAttention(const Tensor &query, const Tensor &key, const Tensor &value,
                    const optional<Tensor> &mask) {
  TORCH_CHECK(query.scalar_type() == key.scalar_type() &&
                  query.scalar_type() == value.scalar_type(),
              "Expected query, key, and value to have the same dtype, but got "
              "query.dtype: ",
              query.dtype(), " key.dtype: ", key.dtype(),
              " and value.dtype: ", value.dtype(), " instead.");
  TORCH_CHECK(
      query.device() == key.device() && query.device() == value.device(),
      "Expected query, key, and value to have the same device type, but "
      "got query.device: ",
      query.device(), " key.device: ", key.device(),
      " and value.device: ", value.device(), " instead.");
  TORCH_CHECK(query.dim() >= 2 && key.dim() >= 2 && value.dim() >= 2,
              "Expected query, key, and value to all be  at least 2 "
              "dimensional, but got query.dim: ",
              query.dim(), " key.dim: ", key.dim(),
              " and value.dim: ", value.dim(), " instead.");
  if (!mask) return;
  ScalarType type = mask->scalar_type();
  TORCH_CHECK(type == ScalarType::Bool || type == ScalarType::Float ||
                  type == query.scalar_type(),
              "Expected attn_mask dtype to be bool or float or to match query "
              "dtype, but got attn_mask.dtype: ",
              mask->dtype(), " and  query.dtype: ", query.dtype(), " instead.");
}

// Without a gradient a Mac runs one kernel, which has no dropout.  With a
// gradient a Mac runs torch's composition of other operators.
Tensor Attention(const Tensor &query, const Tensor &key, const Tensor &value,
                 const optional<Tensor> &mask, double dropout, bool is_causal,
                 optional<double> scale, bool enable_gqa) {
  CheckAttention(query, key, value, mask);
  bool wants_gradient =
      at::GradMode::is_enabled() &&
      (query.requires_grad() || key.requires_grad() || value.requires_grad());
  TORCH_CHECK(wants_gradient || dropout == 0,
              "scaled_dot_product_attention for MPS does not support dropout.");
  TORCH_CHECK_NOT_IMPLEMENTED(
      wants_gradient || c10::isFloatingType(query.scalar_type()),
      "scaled_dot_product_attention for MPS does not support dtype ",
      query.scalar_type());
  // The code below adds the mask.
  optional<Tensor> added = mask;
  if (mask && mask->scalar_type() == ScalarType::Bool)
    added = at::zeros_like(*mask, query.options())
                .masked_fill(mask->logical_not(),
                             -std::numeric_limits<double>::infinity());
  return std::get<0>(at::_scaled_dot_product_attention_math(
      query, key, value, added, dropout, is_causal, std::nullopt, scale,
      enable_gqa));
}

// The CPU's kernel draws from the CPU's generator.
std::tuple<Tensor, Tensor> NativeDropout(const Tensor &input, double p,
                                         optional<bool> train) {
  if (input.numel() == 0 || !train.value_or(false) || p == 0)
    return {input.clone(), at::ones_like(input, ScalarType::Bool)};
  TORCH_CHECK(
      input.is_floating_point() || input.is_complex(),
      "native_dropout_mps: input must be a floating-point or complex tensor, "
      "got ",
      input.scalar_type());
  // A probability for each element, because the generator's offset advances by
  // the number of elements on a Mac.
  Tensor mask = at::empty_like(input, ScalarType::Bool)
                    .bernoulli_(at::full_like(input, 1 - p, ScalarType::Float));
  return {input * mask * (p == 1 ? 0 : 1 / (1 - p)), mask};
}

Tensor Linear(const Tensor &input, const Tensor &weight,
              const optional<Tensor> &bias) {
  TORCH_CHECK(IsFloatOrComplexOnMps(input.scalar_type()),
              "MPS device does not support linear for non-float inputs");
  auto check_device = [](const char *name, const Tensor &tensor) {
    TORCH_CHECK(tensor.is_mps(), "Tensor for argument ", name, " is on ",
                tensor.device(), " but expected on mps");
  };
  check_device("input", input);
  TORCH_CHECK(IsFloatOrComplexOnMps(weight.scalar_type()),
              "MPS device does not support linear for non-float weights");
  check_device("weight", weight);
  if (bias && bias->defined()) {
    check_device("bias", *bias);
    TORCH_CHECK(IsFloatOrComplexOnMps(bias->scalar_type()),
                "MPS device does not support linear for non-float bias");
  }
  return at::native::linear(input, weight, bias);
}

std::tuple<Tensor, Tensor, Tensor> Lstm(const Tensor &input, at::TensorList hx,
                                        at::TensorList parameters,
                                        bool has_biases, int64_t num_layers,
                                        double dropout, bool train,
                                        bool bidirectional, bool batch_first) {
  TORCH_CHECK(hx.size() != 2 || hx[0].dim() == 0 || hx[1].dim() == 0 ||
                  hx[0].size(-1) == hx[1].size(-1),
              "LSTM with projections is not currently supported with MPS.");
  return at::native::lstm(input, hx, parameters, has_biases, num_layers,
                          dropout, train, bidirectional, batch_first);
}

void CheckSameType(const Tensor &input, const Tensor &parameter,
                   const char *name) {
  TORCH_CHECK(input.options().type_equal(parameter.options()), "Input type (",
              input.toString(), ") and ", name, " type (", parameter.toString(),
              ") should be the same");
}

Tensor Convolution(const Tensor &input, const Tensor &weight,
                   const optional<Tensor> &optional_bias, SymIntArrayRef stride,
                   SymIntArrayRef padding, SymIntArrayRef dilation,
                   bool transposed, SymIntArrayRef output_padding,
                   SymInt groups) {
  ScalarType type = input.scalar_type();
  TORCH_CHECK(!transposed || input.dim() != 5 ||
                  (type != ScalarType::Half && type != ScalarType::BFloat16),
              "ConvTranspose 3D with BF16 or FP16 types is not supported on "
              "MPS");
  TORCH_CHECK(c10::isFloatingType(type),
              "Convolution is supported only for Floating types");
  CheckSameType(input, weight, "weight");
  Tensor bias = optional_bias.value_or(Tensor());
  if (bias.defined()) CheckSameType(input, bias, "bias");
  Count(kOperators);
  HostAliases aliases({input, weight, bias});
  OperatorScope scope("aten::convolution");
  at::AutoDispatchBelowADInplaceOrView guard;
  auto alias = [&](const Tensor &tensor) {
    return tensor.defined() && tensor.is_mps() ? aliases.Make(tensor, false)
                                               : tensor;
  };
  return aliases.ToDevice(at::convolution_symint(
      alias(input), alias(weight), alias(bias), stride, padding, dilation,
      transposed, output_padding, groups));
}

std::tuple<Tensor, Tensor, Tensor> ConvolutionBackward(
    const Tensor &grad_output, const Tensor &input, const Tensor &weight,
    SymIntArrayRef stride, SymIntArrayRef padding, SymIntArrayRef dilation,
    bool transposed, SymIntArrayRef output_padding, SymInt groups,
    std::array<bool, 3> output_mask) {
  Count(kOperators);
  HostAliases aliases({grad_output, input, weight});
  OperatorScope scope("aten::convolution_backward");
  at::AutoDispatchBelowADInplaceOrView guard;
  // One bias for each output channel.
  std::vector<SymInt> bias_sizes = {transposed ? weight.sym_size(1) * groups
                                               : weight.sym_size(0)};
  auto [grad_input, grad_weight, grad_bias] = at::convolution_backward_symint(
      aliases.Make(grad_output, false), aliases.Make(input, false),
      aliases.Make(weight, false), SymIntArrayRef(bias_sizes), stride, padding,
      dilation, transposed, output_padding, groups, output_mask);
  return {aliases.ToDevice(grad_input), aliases.ToDevice(grad_weight),
          aliases.ToDevice(grad_bias)};
}

// ---- operators that the CPU lacks, or has in another form

// On a Mac torch copies to the CPU and back, and autograd follows the copies.
std::tuple<Tensor, Tensor, Tensor> LinalgSvd(
    const Tensor &self, bool full_matrices, optional<std::string_view> driver) {
  auto [u, s, vh] = at::linalg_svd(self.cpu(), full_matrices, driver);
  return {u.to(self.device()), s.to(self.device()), vh.to(self.device())};
}

// torch calls this if an image and its weights are on different devices.
Tensor SlowConv2d(const Tensor &self, const Tensor &weight, SymIntArrayRef,
                  const optional<Tensor> &, SymIntArrayRef, SymIntArrayRef) {
  TORCH_CHECK(self.device() == weight.device(),
              "slow_conv2d_forward_mps: input(device='", self.device(),
              "') and weight(device=", weight.device(),
              "')  must be on the same device");
  TORCH_INTERNAL_ASSERT(
      false,
      "slow_conv2d_forward_mps should not be called for both tensors on MPS "
      "device");
}

// The counts have the type of the weights; the CPU's are float or double.
Tensor Bincount(const Tensor &self, const optional<Tensor> &weights,
                SymInt min_length) {
  TORCH_CHECK(self.scalar_type() != ScalarType::Bool,
              "bincount is not supported for Bool");
  bool weighted = weights && weights->defined();
  Count(kOperators);
  HostAliases aliases({self, weighted ? *weights : Tensor()});
  OperatorScope scope("aten::bincount");
  at::AutoDispatchBelowADInplaceOrView guard;
  Tensor host = aliases.Make(self, false);
  if (!weighted)
    return aliases.ToDevice(at::bincount_symint(host, {}, min_length));
  Tensor counts = at::bincount_symint(
      host, aliases.Make(*weights, false).to(ScalarType::Float), min_length);
  return aliases.ToDevice(counts.to(weights->scalar_type()));
}

// Weights of four bits, two in a byte, the first in the upper half.  The packed
// tensor keeps the order of the weights; a Mac changes the order.
Tensor ConvertWeightToInt4Pack(const Tensor &self, int64_t inner_tiles) {
  constexpr const char *kName = "_convert_weight_to_int4pack_mps";
  TORCH_CHECK(self.dim() == 2, kName, " : expect weight to be 2D tensor.");
  TORCH_CHECK(self.scalar_type() == ScalarType::Byte, kName,
              " : expect weight to be kByte.");
  TORCH_CHECK(inner_tiles == 2 || inner_tiles == 4 || inner_tiles == 8, kName,
              " : innerKTiles need to be 2, 4, or 8, got ", inner_tiles);
  int64_t rows = self.size(0), columns = self.size(1) * 2;
  constexpr int64_t kRows = 8, kColumns = 16, kLanes = 32;
  TORCH_CHECK(rows % kRows == 0 && columns % (inner_tiles * kColumns) == 0,
              kName, " : a weight of ", rows, " x ", columns,
              " is not made of whole tiles");
  return self.contiguous()
      .view(ScalarType::Int)
      .clone()
      .view({rows / kRows, columns / (inner_tiles * kColumns), kLanes,
             inner_tiles / 2});
}

Tensor WeightInt4PackMm(const Tensor &self, const Tensor &packed,
                        int64_t group_size, const Tensor &scales_and_zeros) {
  constexpr const char *kName = "_weight_int4pack_mm_mps";
  TORCH_CHECK(self.is_contiguous(), kName, " : expect A to be contiguous.");
  TORCH_CHECK(self.dim() == 2, kName, " : expect A to be 2D tensor.");
  TORCH_CHECK(c10::isFloatingType(self.scalar_type()), kName,
              " : expect A to be either 32-bit or 16-bit float tensor.");
  TORCH_CHECK(packed.scalar_type() == ScalarType::Int, kName,
              " : expect B to be int32 tensor.");
  TORCH_CHECK(packed.is_contiguous(), kName, " : expect B to be contiguous.");
  TORCH_CHECK(packed.dim() == 4, kName, " : expect B to 4d tensor.");
  int64_t columns = self.size(1);
  int64_t rows = packed.size(0) * 8;
  TORCH_CHECK(packed.numel() * 8 == rows * columns, kName,
              " : B does not fit A: ", packed.sizes(), " and ", self.sizes());
  TORCH_CHECK(group_size > 0 && columns % group_size == 0 &&
                  scales_and_zeros.sizes() ==
                      IntArrayRef({columns / group_size, rows, 2}),
              kName,
              " : expect qScaleAndZeros to be [K / qGroupSize, N, 2], got ",
              scales_and_zeros.sizes());
  Tensor bytes = packed.view(ScalarType::Byte).view({rows, columns / 2});
  Tensor weights =
      at::stack({at::bitwise_right_shift(bytes, 4), at::bitwise_and(bytes, 15)},
                -1)
          .view({rows, columns / group_size, group_size})
          .to(ScalarType::Float)
          .sub(8);
  Tensor scales = scales_and_zeros.to(ScalarType::Float).transpose(0, 1);
  weights = weights * scales.select(2, 0).unsqueeze(-1) +
            scales.select(2, 1).unsqueeze(-1);
  return at::mm(self.to(ScalarType::Float), weights.view({rows, columns}).t())
      .to(self.scalar_type());
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

    {"as_strided", MakeKernel<&AsStrided>},
    {"view", MakeKernel<&View>},
    {"_reshape_alias", MakeKernel<&ReshapeAlias>},
    {"unfold", MakeKernel<&at::native::unfold>},
    {"view_as_real", MakeKernel<&at::native::view_as_real>},
    {"view_as_complex", MakeKernel<&at::native::view_as_complex>},

    {"resize_", MakeKernel<&Resize>},
    {"set_", MakeKernel<&SetNothing>},
    {"set_.source_Storage", MakeKernel<&SetStorage>},
    {"set_.source_Storage_storage_offset", MakeKernel<&SetStorageOffset>},
    {"set_.source_Tensor", MakeKernel<&SetTensor>},

    {"linalg_svd", MakeKernel<&LinalgSvd>},
    {"_slow_conv2d_forward", MakeKernel<&SlowConv2d>},
    {"bincount", MakeKernel<&Bincount>},
    {"_convert_weight_to_int4pack", MakeKernel<&ConvertWeightToInt4Pack>},
    {"_weight_int4pack_mm", MakeKernel<&WeightInt4PackMm>},

    {"scaled_dot_product_attention", MakeKernel<&Attention>},
    {"native_dropout", MakeKernel<&NativeDropout>},
    {"linear", MakeKernel<&Linear>},
    {"lstm.input", MakeKernel<&Lstm>},
    {"convolution_overrideable", MakeKernel<&Convolution>},
    {"convolution_backward_overrideable", MakeKernel<&ConvolutionBackward>},
};

TORCH_LIBRARY_IMPL(aten, MPS, m) {
  for (const OwnKernel &kernel : kOwnKernels)
    m.impl(kernel.name.data(), kernel.make());
}

// The operators of which these are composed have their own autograd.
TORCH_LIBRARY_IMPL(aten, AutogradMPS, m) {
  m.impl("linear", TORCH_FN(Linear));
  m.impl("lstm.input", TORCH_FN(Lstm));
  m.impl("scaled_dot_product_attention", TORCH_FN(Attention));
}

}  // namespace

bool HasOwnKernel(std::string_view name) {
  return std::any_of(
      std::begin(kOwnKernels), std::end(kOwnKernels),
      [name](const OwnKernel &kernel) { return kernel.name == name; });
}

}  // namespace mps_emulator

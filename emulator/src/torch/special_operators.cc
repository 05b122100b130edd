// Operators whose mps implementation on a Mac computes something else than the
// CPU's implementation, or accepts other arguments.
#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/linear_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <limits>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/counters.h"
#include "core/stream.h"
#include "torch/fallback.h"
#include "torch/host_alias.h"
#include "torch/operators.h"
#include "torch/refusals.h"

namespace mps_emulator {

namespace {

using at::IntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;
using std::optional;
using torch::jit::Stack;

// Throws torch's own errors for wrong arguments.
// at::scaled_dot_product_attention() checks the arguments and then chooses a
// kernel, but torch for Linux has no kernel for mps.  So the function is called
// with tensors on the meta device.
void CheckAttention(const Tensor &query, const Tensor &key, const Tensor &value,
                    const optional<Tensor> &mask, bool is_causal,
                    bool enable_gqa) {
  at::NoGradGuard guard;
  auto shape_of = [](const Tensor &tensor) {
    return at::empty_like(tensor, tensor.options().device(at::kMeta));
  };
  optional<Tensor> shape_of_mask;
  if (mask) shape_of_mask = shape_of(*mask);
  at::scaled_dot_product_attention(shape_of(query), shape_of(key),
                                   shape_of(value), shape_of_mask, 0.0,
                                   is_causal, std::nullopt, enable_gqa);
}

// If no gradient is wanted, a Mac runs one kernel, which has no dropout.
// Otherwise a Mac runs torch's composition of other operators.
Tensor Attention(const Tensor &query, const Tensor &key, const Tensor &value,
                 const optional<Tensor> &mask, double dropout, bool is_causal,
                 optional<double> scale, bool enable_gqa) {
  bool wants_gradient =
      at::GradMode::is_enabled() &&
      (query.requires_grad() || key.requires_grad() || value.requires_grad());
  TORCH_CHECK(wants_gradient || dropout == 0,
              "scaled_dot_product_attention for MPS does not support dropout.");
  TORCH_CHECK_NOT_IMPLEMENTED(
      wants_gradient || c10::isFloatingType(query.scalar_type()),
      "scaled_dot_product_attention for MPS does not support dtype ",
      query.scalar_type());
  CheckAttention(query, key, value, mask, is_causal, enable_gqa);
  // _scaled_dot_product_attention_math() adds the mask, so true becomes 0, and
  // false becomes -infinity.
  optional<Tensor> added = mask;
  if (mask && mask->scalar_type() == ScalarType::Bool)
    added = at::zeros_like(*mask, query.options())
                .masked_fill(mask->logical_not(),
                             -std::numeric_limits<double>::infinity());
  return std::get<0>(at::_scaled_dot_product_attention_math(
      query, key, value, added, dropout, is_causal, std::nullopt, scale,
      enable_gqa));
}

// Does not call the CPU's kernel, which draws from the CPU's generator.
std::tuple<Tensor, Tensor> NativeDropout(const Tensor &input, double p,
                                         optional<bool> train) {
  if (input.numel() == 0 || !train.value_or(false) || p == 0)
    return {input.clone(), at::ones_like(input, ScalarType::Bool)};
  TORCH_CHECK(
      input.is_floating_point() || input.is_complex(),
      "native_dropout_mps: input must be a floating-point or complex tensor, "
      "got ",
      input.scalar_type());
  Tensor mask = at::empty_like(input, ScalarType::Bool).bernoulli_(1 - p);
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

void RunConvolution(const c10::OperatorHandle &op, Stack *stack) {
  static const c10::OperatorHandle convolution =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  CheckRefusals(op, *stack);
  RunOnHost(convolution, stack);
}

void RunConvolutionBackward(const c10::OperatorHandle &, Stack *stack) {
  static const c10::OperatorHandle backward =
      c10::Dispatcher::singleton().findSchemaOrThrow(
          "aten::convolution_backward", "");
  // The CPU's operator has one more argument: the sizes of the bias.  The bias
  // has one element for each output channel.
  Stack given = torch::jit::pop(*stack, 10);
  const Tensor &weight = given[2].toTensor();
  bool transposed = given[6].toBool();
  int64_t channels =
      transposed ? weight.size(1) * given[8].toInt() : weight.size(0);
  given.insert(given.begin() + 3, std::vector<int64_t>{channels});
  stack->insert(stack->end(), given.begin(), given.end());
  RunOnHost(backward, stack);
}

// ---- operators that the CPU lacks, or has in another form

// As torch does on a Mac, copies the matrix to the CPU and the results back.
// Autograd follows the copies.
std::tuple<Tensor, Tensor, Tensor> LinalgSvd(
    const Tensor &self, bool full_matrices, optional<std::string_view> driver) {
  auto [u, s, vh] = at::linalg_svd(self.cpu(), full_matrices, driver);
  return {u.to(self.device()), s.to(self.device()), vh.to(self.device())};
}

// torch calls this function if the image and the weights of a convolution are
// on different devices.
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

// On mps, the counts have the dtype of the weights.  On the CPU, the counts are
// float or double.
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

// Gives weights of four bits the shape of a packed tensor.  A byte of `self`
// has two weights, the first in its upper half.  The packed tensor keeps the
// order of the weights, while a Mac changes the order.
Tensor ConvertWeightToInt4Pack(const Tensor &self, int64_t inner_tiles) {
  constexpr const char *kName = "_convert_weight_to_int4pack_mps";
  TORCH_CHECK(self.dim() == 2 && self.scalar_type() == ScalarType::Byte, kName,
              " : expect weight to be 2D tensor of kByte.");
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
  TORCH_CHECK(self.dim() == 2, kName, " : expect A to be 2D tensor.");
  TORCH_CHECK(packed.scalar_type() == ScalarType::Int && packed.dim() == 4,
              kName, " : expect B to be 4d tensor of int32.");
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

constexpr OwnKernel kSpecialKernels[] = {
    {"linalg_svd", MakeKernel<&LinalgSvd>},
    {"_slow_conv2d_forward", MakeKernel<&SlowConv2d>},
    {"bincount", MakeKernel<&Bincount>},
    {"_convert_weight_to_int4pack", MakeKernel<&ConvertWeightToInt4Pack>},
    {"_weight_int4pack_mm", MakeKernel<&WeightInt4PackMm>},

    {"scaled_dot_product_attention", MakeKernel<&Attention>},
    {"native_dropout", MakeKernel<&NativeDropout>},
    {"linear", MakeKernel<&Linear>},
    {"lstm.input", MakeKernel<&Lstm>},
    {"convolution_overrideable", MakeBoxedKernel<&RunConvolution>},
    {"convolution_backward_overrideable",
     MakeBoxedKernel<&RunConvolutionBackward>},
};

TORCH_LIBRARY_IMPL(aten, MPS, m) {
  for (const OwnKernel &kernel : kSpecialKernels)
    m.impl(kernel.name.data(), kernel.make());
}

// Autograd differentiates these operators through the operators that they call.
TORCH_LIBRARY_IMPL(aten, AutogradMPS, m) {
  m.impl("linear", TORCH_FN(Linear));
  m.impl("lstm.input", TORCH_FN(Lstm));
  m.impl("scaled_dot_product_attention", TORCH_FN(Attention));
}

}  // namespace

bool HasSpecialKernel(std::string_view name) {
  return Has(kSpecialKernels, name);
}

}  // namespace mps_emulator

#include "torch/refusals.h"

#include <c10/util/Exception.h>

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace mps_emulator {

namespace {

using at::Tensor;
using c10::IValue;
using c10::ScalarType;

// The arguments of one call by their names.
class Call {
 public:
  Call(const c10::OperatorHandle &op, const torch::jit::Stack &stack)
      : schema_(op.schema()), stack_(stack) {}

  const IValue &operator[](const char *name) const {
    size_t count = schema_.arguments().size();
    std::optional<int> index = schema_.argumentIndexWithName(name);
    TORCH_INTERNAL_ASSERT(index.has_value(), schema_.name(), " has no ", name);
    return stack_[stack_.size() - count + *index];
  }
  const Tensor &TensorOf(const char *name) const {
    return (*this)[name].toTensor();
  }
  ScalarType TypeOf(const char *name) const {
    return TensorOf(name).scalar_type();
  }

 private:
  const c10::FunctionSchema &schema_;
  const torch::jit::Stack &stack_;
};

bool IsComplex(ScalarType type) { return c10::isComplexType(type); }

void CheckAdaptiveAveragePooling(const Call &call) {
  constexpr const char *kAdvice =
      " Non-divisible input sizes are not implemented on MPS device yet. For "
      "now, you can manually transfer tensor to cpu in this case. Please refer "
      "to [this issue](https://github.com/pytorch/pytorch/issues/96056)";
  const Tensor &input = call.TensorOf("self");
  auto sizes = call["output_size"].toIntVector();
  if (input.dim() < 3 || sizes.size() != 2) return;
  int64_t in[2] = {input.size(-2), input.size(-1)};
  int64_t out[2] = {sizes[0], sizes[1]};
  if (!in[0] || !in[1] || out[0] <= 0 || out[1] <= 0) return;
  bool smaller = in[0] >= out[0] && in[1] >= out[1];
  TORCH_CHECK(smaller || (in[0] <= out[0] && in[1] <= out[1]),
              "Adaptive pool MPS: Input height and width must both be greater "
              "than, or equal to, or lesser than output height and width");
  if (smaller) {
    TORCH_CHECK(in[0] % out[0] == 0 && in[1] % out[1] == 0,
                "Adaptive pool MPS: input sizes must be divisible by output "
                "sizes.",
                kAdvice);
  } else {
    TORCH_CHECK(out[0] % in[0] == 0 && out[1] % in[1] == 0,
                "Adaptive pool MPS: output sizes must be divisible by input "
                "sizes.",
                kAdvice);
  }
}

void CheckAddr(const Call &call) {
  TORCH_CHECK(IsFloatOrComplexOnMps(call.TypeOf("self")),
              "MPS device does not support addr for non-float input");
}

void CheckBatchedProduct(const Call &call) {
  ScalarType type = call.TypeOf("batch1");
  TORCH_CHECK(
      IsFloatOrComplexOnMps(type) ||
          c10::isIntegralType(type, /*includeBool=*/false),
      "MPS device does not support addbmm or baddbmm for this input type");
}

void CheckBatchNorm(const Call &call) {
  ScalarType type = call.TypeOf("input");
  TORCH_CHECK_NOT_IMPLEMENTED(type != ScalarType::Long,
                              "Long batch norm is not supported with MPS");
  TORCH_CHECK_NOT_IMPLEMENTED(
      !IsComplex(type), "Batch norm for complex is not supported for MPS");
}

void CheckLogSoftmax(const Call &call) {
  ScalarType type = call.TypeOf("self");
  TORCH_CHECK_NOT_IMPLEMENTED(
      !IsComplex(type), "log_softmax for complex is not supported for MPS");
  TORCH_CHECK_NOT_IMPLEMENTED(type != ScalarType::Bool,
                              "log_softmax for bool is not supported for MPS");
}

void CheckSoftmax(const Call &call) {
  TORCH_CHECK(!call["half_to_float"].toBool(),
              "softmax with half to float conversion is not supported on MPS");
}

void CheckLuFactor(const Call &call) {
  ScalarType type = call.TypeOf("A");
  TORCH_CHECK(!IsComplex(type),
              "linalg.lu_factor(): MPS doesn't support complex types.");
  TORCH_CHECK(type == ScalarType::Float,
              "linalg.lu_factor(): MPS only supports floats.");
}

void CheckSolve(const Call &call) {
  TORCH_CHECK(call.TypeOf("A") == ScalarType::Float,
              "linalg.lu_factor(): MPS only supports floats.");
}

void CheckSolveTriangular(const Call &call) {
  TORCH_CHECK(call.TypeOf("self") == ScalarType::Float,
              "linalg.solve.triangular(); Only float is supported!");
}

void CheckCholeskyInverse(const Call &call) {
  TORCH_CHECK(call.TypeOf("self") == ScalarType::Float,
              "cholesky_inverse: MPS only supports float type!");
}

void CheckQr(const Call &call) {
  TORCH_CHECK(call.TypeOf("A") == ScalarType::Float,
              "linalg_qr: MPS currently supports float32 only");
}

void CheckInverse(const Call &call) {
  TORCH_CHECK(!IsComplex(call.TypeOf("A")),
              "linalg_inv: not supported for complex types yet!");
}

void CheckIndexReduce(const Call &call) {
  ScalarType type = call.TypeOf("self");
  TORCH_CHECK(type != ScalarType::Long,
              "index_reduce for MPS does not support torch.long dtype");
  TORCH_CHECK(type != ScalarType::ComplexFloat,
              "index_reduce for MPS does not support torch.cfloat dtype");
}

void CheckGridSampler(const Call &call) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !IsComplex(call.TypeOf("input")),
      "grid_sampler_2d is not supported for complex on MPS");
}

void CheckHuberLoss(const Call &call) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !IsComplex(call.TypeOf("self")),
      "huber_loss for complex is not supported for MPS");
}

void CheckUpsample(const Call &call) {
  TORCH_CHECK(!IsComplex(call.TypeOf("self")),
              "upsample for MPS does not support complex inputs");
}

void CheckNormal(const Call &call) {
  ScalarType type = call.TypeOf("self");
  TORCH_CHECK(c10::isFloatingType(type) || IsComplex(type),
              "normal_kernel_mps not implemented for '", type, "'");
}

// torch's Metal library lacks these functions.

void CheckRenorm(const Call &call) {
  TORCH_CHECK(!IsComplex(call.TypeOf("self")),
              "Failed to create function state object for: renorm_float2");
}

template <char which>
void CheckAntialiased(const Call &call) {
  if (call.TypeOf("self") != ScalarType::Byte) return;
  constexpr std::string_view kMode = which == 'l' ? "linear" : "cubic";
  TORCH_CHECK(false, "Failed to create function state object for: upsample_bi",
              kMode, "2d_aa_uchar");
}

void CheckBincount(const Call &call) {
  TORCH_CHECK(call.TypeOf("self") != ScalarType::Bool,
              "bincount is not supported for Bool");
}

using Check = void (*)(const Call &);

// {name of an operator, for all its overloads: check}
const std::unordered_map<std::string_view, Check> &Checks() {
  static const auto *checks = new std::unordered_map<std::string_view, Check>{
      {"aten::_adaptive_avg_pool2d", &CheckAdaptiveAveragePooling},
      {"aten::adaptive_avg_pool2d", &CheckAdaptiveAveragePooling},
      {"aten::_log_softmax", &CheckLogSoftmax},
      {"aten::_softmax", &CheckSoftmax},
      {"aten::_upsample_bicubic2d_aa", &CheckAntialiased<'c'>},
      {"aten::_upsample_bilinear2d_aa", &CheckAntialiased<'l'>},
      {"aten::addbmm", &CheckBatchedProduct},
      {"aten::addbmm_", &CheckBatchedProduct},
      {"aten::addr", &CheckAddr},
      {"aten::addr_", &CheckAddr},
      {"aten::baddbmm", &CheckBatchedProduct},
      {"aten::baddbmm_", &CheckBatchedProduct},
      {"aten::bincount", &CheckBincount},
      {"aten::cholesky_inverse", &CheckCholeskyInverse},
      {"aten::grid_sampler_2d", &CheckGridSampler},
      {"aten::huber_loss", &CheckHuberLoss},
      {"aten::index_reduce", &CheckIndexReduce},
      {"aten::index_reduce_", &CheckIndexReduce},
      {"aten::_linalg_det", &CheckLuFactor},
      {"aten::_linalg_slogdet", &CheckLuFactor},
      {"aten::_linalg_solve_ex", &CheckSolve},
      {"aten::linalg_inv_ex", &CheckInverse},
      {"aten::linalg_lu", &CheckLuFactor},
      {"aten::linalg_lu_factor_ex", &CheckLuFactor},
      {"aten::linalg_qr", &CheckQr},
      {"aten::linalg_solve_triangular", &CheckSolveTriangular},
      {"aten::native_batch_norm", &CheckBatchNorm},
      {"aten::normal_", &CheckNormal},
      {"aten::renorm", &CheckRenorm},
      {"aten::renorm_", &CheckRenorm},
      {"aten::triangular_solve", &CheckSolveTriangular},
      {"aten::upsample_bicubic2d", &CheckUpsample},
      {"aten::upsample_bilinear2d", &CheckUpsample},
      {"aten::upsample_linear1d", &CheckUpsample},
      {"aten::upsample_nearest1d", &CheckUpsample},
      {"aten::upsample_nearest2d", &CheckUpsample},
  };
  return *checks;
}

}  // namespace

bool IsFloatOrComplexOnMps(ScalarType type) {
  switch (type) {
    case ScalarType::Float:
    case ScalarType::Half:
    case ScalarType::BFloat16:
    case ScalarType::ComplexFloat:
    case ScalarType::ComplexHalf:
      return true;
    default:
      return false;
  }
}

void CheckConvolution(const Tensor &input, bool transposed) {
  ScalarType type = input.scalar_type();
  TORCH_CHECK(!transposed || input.dim() != 5 ||
                  (type != ScalarType::Half && type != ScalarType::BFloat16),
              "ConvTranspose 3D with BF16 or FP16 types is not supported on "
              "MPS");
  TORCH_CHECK(c10::isFloatingType(type),
              "Convolution is supported only for Floating types");
}

void CheckRefusals(const c10::OperatorHandle &op,
                   const torch::jit::Stack &stack) {
  const auto &checks = Checks();
  auto found = checks.find(op.schema().name());
  if (found != checks.end()) found->second(Call(op, stack));
}

}  // namespace mps_emulator

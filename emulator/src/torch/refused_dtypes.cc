// What torch's mps kernels refuse for the dtype of one argument.  Conditions,
// texts and kinds of errors are those of libtorch_cpu.dylib of torch 2.13.
#include <ATen/ops/result_type.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "torch/refusals.h"

namespace mps_emulator {

namespace {

using c10::IValue;
using c10::ScalarType;

enum class Error { kRuntime, kNotImplemented, kType };

struct Refusal {
  std::string_view operators;  // names between spaces; in-place ones too
  const char *argument;        // "": `self` and `other`, after promotion
  bool (*takes)(ScalarType);
  Error error;
  std::string text;  // if it ends with a space, the type's name follows
};

template <ScalarType wanted>
bool Is(ScalarType type) {
  return type == wanted;
}
template <ScalarType refused>
bool IsNot(ScalarType type) {
  return type != refused;
}
bool IsReal(ScalarType type) { return !c10::isComplexType(type); }
bool IsFloating(ScalarType type) { return c10::isFloatingType(type); }
bool IsIntegral(ScalarType type) {
  return c10::isIntegralType(type, /*includeBool=*/false);
}
bool IsProduct(ScalarType type) {
  return IsFloatOrComplexOnMps(type) || IsIntegral(type);
}
bool IsMask(ScalarType type) {
  return type == ScalarType::Bool || type == ScalarType::Byte;
}

const std::vector<Refusal> kRefusals = {
    {"_histogramdd_from_bin_cts _histogramdd_from_bin_tensors histogram",
     "self", &Is<ScalarType::Float>, Error::kRuntime,
     "histogram is only supported for float32"},
    {"_linalg_det _linalg_slogdet linalg_lu linalg_lu_factor_ex", "A", &IsReal,
     Error::kRuntime, "linalg.lu_factor(): MPS doesn't support complex types."},
    {"_linalg_det _linalg_slogdet _linalg_solve_ex linalg_lu "
     "linalg_lu_factor_ex",
     "A", &Is<ScalarType::Float>, Error::kRuntime,
     "linalg.lu_factor(): MPS only supports floats."},
    {"_log_softmax", "self", &IsReal, Error::kNotImplemented,
     "log_softmax for complex is not supported for MPS"},
    {"_log_softmax", "self", &IsNot<ScalarType::Bool>, Error::kNotImplemented,
     "log_softmax for bool is not supported for MPS"},
    {"_softmax", "self", &IsFloating, Error::kRuntime,
     "softmax only supported for floating types"},
    {"_upsample_bicubic2d_aa", "self", &IsFloating, Error::kRuntime,
     "_upsample_bicubic2d_aa_out_mps only supports floating-point dtypes"},
    {"_upsample_bilinear2d_aa", "self", &IsFloating, Error::kRuntime,
     "_upsample_bilineard2d_aa_out_mps only supports floating-point dtypes"},
    {"addbmm baddbmm", "batch1", &IsProduct, Error::kRuntime,
     "MPS device does not support addbmm or baddbmm for this input type"},
    {"addr", "self", &IsFloatOrComplexOnMps, Error::kRuntime,
     "MPS device does not support addr for non-float input"},
    {"avg_pool2d", "self", &IsReal, Error::kNotImplemented,
     "Not implemented for complex"},
    {"bincount", "self", &IsNot<ScalarType::Bool>, Error::kRuntime,
     "bincount is not supported for Bool"},
    {"bitwise_left_shift", "", &IsIntegral, Error::kNotImplemented,
     "bitwise_left_shift not implemented for "},
    {"bitwise_right_shift", "", &IsIntegral, Error::kNotImplemented,
     "bitwise_right_shift not implemented for "},
    {"cholesky_inverse", "self", &Is<ScalarType::Float>, Error::kRuntime,
     "cholesky_inverse: MPS only supports float type!"},
    {"frac", "self", &IsFloating, Error::kRuntime,
     "frac_out_mps is only implemented for floating types"},
    {"gcd", "", &IsIntegral, Error::kNotImplemented,
     "gcd_mps not implemented for "},
    {"grid_sampler_2d", "input", &IsReal, Error::kNotImplemented,
     "grid_sampler_2d is not supported for complex on MPS"},
    {"huber_loss", "self", &IsReal, Error::kNotImplemented,
     "huber_loss for complex is not supported for MPS"},
    {"huber_loss smooth_l1_loss", "self", &IsNot<ScalarType::Long>,
     Error::kNotImplemented, "MPS doesn't know how to do square_i64"},
    {"index_reduce", "self", &IsNot<ScalarType::Long>, Error::kRuntime,
     "index_reduce for MPS does not support torch.long dtype"},
    {"index_reduce", "self", &IsNot<ScalarType::ComplexFloat>, Error::kRuntime,
     "index_reduce for MPS does not support torch.cfloat dtype"},
    {"lcm", "", &IsIntegral, Error::kNotImplemented,
     "lcm_mps not implemented for "},
    {"linalg_inv_ex", "A", &IsReal, Error::kRuntime,
     "linalg_inv: not supported for complex types yet!"},
    {"linalg_qr", "A", &Is<ScalarType::Float>, Error::kRuntime,
     "linalg_qr: MPS currently supports float32 only"},
    {"linalg_solve_triangular triangular_solve", "self", &Is<ScalarType::Float>,
     Error::kRuntime, "linalg.solve.triangular(); Only float is supported!"},
    {"masked_fill", "mask", &Is<ScalarType::Bool>, Error::kRuntime,
     "expected mask dtype to be Bool but got "},
    {"masked_scatter", "mask", &IsMask, Error::kRuntime,
     "masked_scatter: expected BoolTensor or ByteTensor for mask"},
    {"max_pool2d_with_indices", "self", &IsReal, Error::kNotImplemented,
     "Max pooling for complex is not supported for MPS"},
    {"mish", "self", &IsReal, Error::kNotImplemented,
     "Mish for complex is not supported for MPS"},
    {"mse_loss", "self", &IsFloating, Error::kRuntime,
     "mse_loss_out_mps: only defined for floating types"},
    {"native_batch_norm", "input", &IsNot<ScalarType::Long>,
     Error::kNotImplemented, "Long batch norm is not supported with MPS"},
    {"native_batch_norm", "input", &IsReal, Error::kNotImplemented,
     "Batch norm for complex is not supported for MPS"},
    {"native_layer_norm", "input", &IsNot<ScalarType::Long>,
     Error::kNotImplemented, "Not implemented for long on MPS"},
    {"nextafter", "", &IsFloating, Error::kType,
     "nextafter_mps not implemented for non-floating types"},
    {"nll_loss_forward nll_loss2d_forward", "self", &IsReal,
     Error::kNotImplemented, "nlld_loss for complex is not supported for MPS"},
    {"random", "self", &IsReal, Error::kRuntime,
     "random_mps handles only integral, floating-point and boolean types"},
    {"relu", "self", &IsReal, Error::kRuntime,
     "relu is not supported for complex types"},
    // The Metal library of torch has no such function.
    {"renorm", "self", &IsReal, Error::kRuntime,
     "Failed to create function state object for: renorm_float2"},
    {"softplus", "self", &IsNot<ScalarType::Long>, Error::kNotImplemented,
     "Not implemented for long"},
    {"special_xlog1py", "", &IsReal, Error::kType,
     "xlog1py_mps not implemented for non-floating types"},
    {"upsample_bicubic2d upsample_bilinear2d upsample_linear1d "
     "upsample_nearest1d upsample_nearest2d",
     "self", &IsReal, Error::kRuntime,
     "upsample for MPS does not support complex inputs"},
};

using Table = std::unordered_multimap<std::string_view, const Refusal *>;

Table ByOperator() {
  Table table;
  for (const Refusal &refusal : kRefusals) {
    std::string_view rest = refusal.operators;
    while (!rest.empty()) {
      std::string_view name = rest.substr(0, rest.find(' '));
      table.emplace(name, &refusal);
      rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    }
  }
  return table;
}

// Undefined if the argument is a number in the place of a tensor.
ScalarType TypeOf(const char *argument, const c10::FunctionSchema &schema,
                  const torch::jit::Stack &stack) {
  auto value = [&](const char *name) -> const IValue & {
    std::optional<int> index = schema.argumentIndexWithName(name);
    TORCH_INTERNAL_ASSERT(index.has_value(), schema.name(), " has no ", name);
    return stack[stack.size() - schema.arguments().size() + *index];
  };
  const IValue &first = value(*argument ? argument : "self");
  if (!first.isTensor()) return ScalarType::Undefined;
  if (*argument) return first.toTensor().scalar_type();
  const IValue &second = value("other");
  if (!second.isTensor()) return ScalarType::Undefined;
  return at::result_type(first.toTensor(), second.toTensor());
}

}  // namespace

void CheckDtypes(const c10::OperatorHandle &op,
                 const torch::jit::Stack &stack) {
  static const auto *table = new Table(ByOperator());
  std::string_view name = op.schema().name();
  name.remove_prefix(name.find("::") + 2);
  if (name.ends_with('_') && !name.ends_with("__")) name.remove_suffix(1);
  auto [begin, end] = table->equal_range(name);
  for (auto found = begin; found != end; ++found) {
    const Refusal &refusal = *found->second;
    ScalarType type = TypeOf(refusal.argument, op.schema(), stack);
    if (type == ScalarType::Undefined || refusal.takes(type)) continue;
    std::string text = refusal.text;
    if (text.ends_with(' ')) text += c10::toString(type);
    TORCH_CHECK_NOT_IMPLEMENTED(refusal.error != Error::kNotImplemented, text);
    TORCH_CHECK_TYPE(refusal.error != Error::kType, text);
    TORCH_CHECK(false, text);
  }
}

}  // namespace mps_emulator

// The conditions, texts and kinds of the errors were read from torch's library
// for macOS, libtorch_cpu.dylib.
#include "torch/refusals.h"

#include <ATen/ops/result_type.h>
#include <c10/util/Exception.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/release.h"

namespace mps_emulator {

namespace {

using at::Tensor;
using c10::IValue;
using c10::ScalarType;

// The arguments of one call, by their names.
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

void CheckSameType(const Tensor &input, const IValue &parameter,
                   const char *name) {
  if (!parameter.isTensor() || !parameter.toTensor().defined()) return;
  const Tensor &tensor = parameter.toTensor();
  TORCH_CHECK(input.options().type_equal(tensor.options()), "Input type (",
              input.toString(), ") and ", name, " type (", tensor.toString(),
              ") should be the same");
}

void CheckConvolution(const Call &call) {
  const Tensor &input = call.TensorOf("input");
  ScalarType type = input.scalar_type();
  TORCH_CHECK(!call["transposed"].toBool() || input.dim() != 5 ||
                  (type != ScalarType::Half && type != ScalarType::BFloat16),
              "ConvTranspose 3D with BF16 or FP16 types is not supported on "
              "MPS");
  TORCH_CHECK(c10::isFloatingType(type),
              "Convolution is supported only for Floating types");
  CheckSameType(input, call["weight"], "weight");
  CheckSameType(input, call["bias"], "bias");
}

void CheckHalfToFloat(const Call &call) {
  TORCH_CHECK(!call["half_to_float"].toBool(),
              "softmax with half to float conversion is not supported on MPS");
}
void CheckLogHalfToFloat(const Call &call) {
  TORCH_CHECK(!TORCH_AT_LEAST(15) || !call["half_to_float"].toBool(),
              "log_softmax with half to float conversion is not supported on "
              "MPS");
}

void CheckGridSampler(const Call &call) {
  ScalarType input = call.TypeOf("input");
  ScalarType grid = call.TypeOf("grid");
  TORCH_CHECK(input == grid,
              "expected input and grid to have the same type, but got ", input,
              " and ", grid);
}

void CheckLuFactor(const Call &call) {
  TORCH_CHECK(call["pivot"].toBool(),
              "linalg.lu_factor(): MPS doesn't allow pivot == False.");
}

void CheckProduct(const Call &call) {
  const Tensor &first = call.TensorOf("self");
  const Tensor &second = call.TensorOf("mat2");
  TORCH_CHECK(first.scalar_type() == second.scalar_type(),
              "expected mat1 and mat2 to have the same dtype, but got: ",
              first.dtype(), " != ", second.dtype());
}

void CheckBatchOfProducts(const Call &call) {
  ScalarType first = call.TypeOf("self");
  ScalarType second = call.TypeOf("mat2");
  TORCH_CHECK(first == second, "Expected arguments of same type but got ",
              first, " and ", second);
}

void CheckNormal(const Call &call) {
  ScalarType type = call.TypeOf("self");
  TORCH_CHECK(c10::isFloatingType(type) || c10::isComplexType(type),
              "normal_kernel_mps not implemented for '", type, "'");
}

using Check = void (*)(const Call &);

// Maps the name of an operator to a check, which applies to all overloads.
const std::unordered_map<std::string_view, Check> &Checks() {
  static const auto *checks = new std::unordered_map<std::string_view, Check>{
      {"aten::_adaptive_avg_pool2d", &CheckAdaptiveAveragePooling},
      {"aten::adaptive_avg_pool2d", &CheckAdaptiveAveragePooling},
      {"aten::_log_softmax", &CheckLogHalfToFloat},
      {"aten::_softmax", &CheckHalfToFloat},
      {"aten::bmm", &CheckBatchOfProducts},
      {"aten::convolution_overrideable", &CheckConvolution},
      {"aten::grid_sampler_2d", &CheckGridSampler},
      {"aten::grid_sampler_3d", &CheckGridSampler},
      {"aten::linalg_lu_factor_ex", &CheckLuFactor},
      {"aten::mm", &CheckProduct},
      {"aten::normal_", &CheckNormal},
  };
  return *checks;
}

// ---- refusals for the dtype of one argument

enum class Error { kRuntime, kNotImplemented, kType };

// The releases of torch, 2.`from` and later but before 2.`until`, that have a
// refusal.
struct Releases {
  int from = 13;
  int until = 99;
};
constexpr Releases From(int minor) { return {.from = minor}; }
constexpr Releases Until(int minor) { return {.until = minor}; }

// The names of one operator or of several.  A name includes the in-place
// variant of its operator.
struct Operators : std::vector<std::string_view> {
  Operators(const char *name) : vector{name} {}
  Operators(std::initializer_list<std::string_view> names) : vector(names) {}
};

struct Refusal {
  Operators operators;
  const char *argument;  // "": the promoted type of `self` and `other`
  bool (*takes)(ScalarType);
  Error error;
  std::string text;  // {} stands for the type's name
  Releases releases = {};
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
bool IsFloatOrComplexFloat(ScalarType type) {
  return type == ScalarType::Float || type == ScalarType::ComplexFloat;
}
bool IsFloating(ScalarType type) { return c10::isFloatingType(type); }
bool IsIntegral(ScalarType type) {
  return c10::isIntegralType(type, /*includeBool=*/false);
}
bool IsFloatOnMps(ScalarType type) {
  return IsReal(type) && IsFloatOrComplexOnMps(type);
}
bool IsFloatOnMpsOrIntegral(ScalarType type) {
  return IsFloatOnMps(type) || IsIntegral(type);
}
bool IsProduct(ScalarType type) {
  return IsFloatOrComplexOnMps(type) || IsIntegral(type);
}
bool IsMask(ScalarType type) {
  return type == ScalarType::Bool || type == ScalarType::Byte;
}

// If several entries refuse a call, the first one gives the error.
const std::vector<Refusal> kRefusals = {
    // ---- Linear algebra
    {Operators{"addbmm", "baddbmm"}, "batch1", &IsProduct, Error::kRuntime,
     "MPS device does not support addbmm or baddbmm for this input type"},
    {"addr", "self", &IsFloatOrComplexOnMps, Error::kRuntime,
     "MPS device does not support addr for non-float input"},
    {"cholesky_inverse", "self", &Is<ScalarType::Float>, Error::kRuntime,
     "cholesky_inverse: MPS only supports float type!"},
    {"geqrf", "self", &Is<ScalarType::Float>, Error::kRuntime,
     "geqrf: MPS currently supports float32 only", From(14)},
    {"linalg_cholesky_ex", "self", &IsFloatOrComplexFloat, Error::kRuntime,
     "linalg.cholesky: MPS supports float32 and complex64, but got {}",
     From(14)},
    {"linalg_cross", "self", &IsNot<ScalarType::Bool>, Error::kNotImplemented,
     "linalg.cross: not implemented for 'Bool'", From(14)},
    {Operators{"_linalg_det", "_linalg_slogdet", "linalg_lu",
               "linalg_lu_factor_ex"},
     "A", &IsReal, Error::kRuntime,
     "linalg.lu_factor(): MPS doesn't support complex types.", Until(15)},
    {Operators{"_linalg_det", "_linalg_slogdet", "_linalg_solve_ex",
               "linalg_lu", "linalg_lu_factor_ex"},
     "A", &Is<ScalarType::Float>, Error::kRuntime,
     "linalg.lu_factor(): MPS only supports floats.", Until(14)},
    {Operators{"_linalg_det", "_linalg_slogdet", "_linalg_solve_ex",
               "linalg_lu", "linalg_lu_factor_ex"},
     "A", &IsFloatOrComplexFloat, Error::kRuntime,
     "linalg.lu_factor(): MPS supports float32 and complex64 inputs, got {}",
     From(15)},
    {"linalg_inv_ex", "A", &IsReal, Error::kRuntime,
     "linalg_inv: not supported for complex types yet!"},
    {"linalg_lu_solve", "LU", &Is<ScalarType::Float>, Error::kRuntime,
     "linalg.lu_solve(): MPS only supports float32.", Releases{14, 15}},
    {"linalg_lu_solve", "LU", &IsFloatOrComplexFloat, Error::kRuntime,
     "linalg.lu_solve(): MPS only supports float32 and complex64, got {}",
     From(15)},
    {"linalg_qr", "A", &Is<ScalarType::Float>, Error::kRuntime,
     "linalg_qr: MPS currently supports float32 only", Until(14)},
    {"linalg_qr", "A", &Is<ScalarType::Float>, Error::kRuntime,
     "geqrf: MPS currently supports float32 only", From(14)},
    {"_linalg_solve_ex", "A", &IsReal, Error::kRuntime,
     "linalg.lu_factor(): MPS doesn't support complex types.",
     Releases{14, 15}},
    {Operators{"linalg_solve_triangular", "triangular_solve"}, "self",
     &Is<ScalarType::Float>, Error::kRuntime,
     "linalg.solve.triangular(); Only float is supported!", Until(15)},
    {Operators{"linalg_solve_triangular", "triangular_solve"}, "self",
     &IsFloatOrComplexFloat, Error::kRuntime,
     "linalg.solve_triangular(): MPS only supports float32 and complex64, got "
     "{}",
     From(15)},
    {"_linalg_svd", "A", &IsFloatOrComplexFloat, Error::kRuntime,
     "linalg.svd: the MPS backend supports only float32 and complex64. Got {}. "
     "Move the tensor to CPU for other dtypes.",
     From(14)},

    // ---- Softmax and losses
    {"huber_loss", "self", &IsReal, Error::kNotImplemented,
     "huber_loss for complex is not supported for MPS"},
    {Operators{"huber_loss", "smooth_l1_loss"}, "self",
     &IsNot<ScalarType::Long>, Error::kNotImplemented,
     "MPS doesn't know how to do square_i64"},
    {"_log_softmax", "self", &IsReal, Error::kNotImplemented,
     "log_softmax for complex is not supported for MPS", Until(15)},
    {"_log_softmax", "self", &IsNot<ScalarType::Bool>, Error::kNotImplemented,
     "log_softmax for bool is not supported for MPS", Until(15)},
    {"_log_softmax", "self", &IsFloatOnMps, Error::kNotImplemented,
     "log_softmax not implemented on MPS for {}", From(15)},
    {"mse_loss", "self", &IsFloating, Error::kRuntime,
     "mse_loss_out_mps: only defined for floating types", Until(14)},
    {Operators{"nll_loss_forward", "nll_loss2d_forward"}, "self", &IsReal,
     Error::kNotImplemented, "nlld_loss for complex is not supported for MPS",
     Until(15)},
    {Operators{"nll_loss_forward", "nll_loss2d_forward"}, "self", &IsFloating,
     Error::kNotImplemented, "nll_loss is not implemented for {} on MPS",
     From(15)},
    {"_softmax", "self", &IsFloating, Error::kRuntime,
     "softmax only supported for floating types", Until(15)},
    {"_softmax", "self", &IsFloatOnMps, Error::kNotImplemented,
     "softmax not implemented on MPS for {}", From(15)},

    // ---- Pooling, sampling and normalization
    {"adaptive_max_pool2d", "self", &IsReal, Error::kNotImplemented,
     "Adaptive max pooling for complex is not supported for MPS", From(14)},
    {"avg_pool2d", "self", &IsReal, Error::kNotImplemented,
     "Not implemented for complex"},
    {"grid_sampler_2d", "input", &IsReal, Error::kNotImplemented,
     "grid_sampler_2d is not supported for complex on MPS"},
    {"max_pool2d_with_indices", "self", &IsReal, Error::kNotImplemented,
     "Max pooling for complex is not supported for MPS"},
    {"native_batch_norm", "input", &IsNot<ScalarType::Long>,
     Error::kNotImplemented, "Long batch norm is not supported with MPS",
     Until(14)},
    {"native_batch_norm", "input", &IsReal, Error::kNotImplemented,
     "Batch norm for complex is not supported for MPS", Until(14)},
    {"native_batch_norm", "input", &IsFloating, Error::kNotImplemented,
     "batch_norm is not implemented for {} on MPS", From(14)},
    {"native_layer_norm", "input", &IsNot<ScalarType::Long>,
     Error::kNotImplemented, "Not implemented for long on MPS"},
    {Operators{"upsample_bicubic2d", "upsample_bilinear2d", "upsample_linear1d",
               "upsample_nearest1d", "upsample_nearest2d"},
     "self", &IsReal, Error::kRuntime,
     "upsample for MPS does not support complex inputs", Until(15)},
    {"_upsample_bicubic2d_aa", "self", &IsFloating, Error::kRuntime,
     "_upsample_bicubic2d_aa_out_mps only supports floating-point dtypes"},
    {"_upsample_bilinear2d_aa", "self", &IsFloating, Error::kRuntime,
     "_upsample_bilineard2d_aa_out_mps only supports floating-point dtypes"},

    // ---- Activations
    {"mish", "self", &IsReal, Error::kNotImplemented,
     "Mish for complex is not supported for MPS", Until(14)},
    {"relu", "self", &IsReal, Error::kRuntime,
     "relu is not supported for complex types", Until(15)},
    {"softplus", "self", &IsNot<ScalarType::Long>, Error::kNotImplemented,
     "Not implemented for long", Until(15)},
    {"softplus", "self", &IsFloating, Error::kNotImplemented,
     "softplus not implemented for {}", From(15)},

    // ---- Functions of each element
    {"addcmul", "self", &IsNot<ScalarType::Bool>, Error::kNotImplemented,
     "addcmul_mps not implemented for 'Bool'", From(15)},
    {"bitwise_left_shift", "", &IsIntegral, Error::kNotImplemented,
     "bitwise_left_shift not implemented for {}"},
    {"bitwise_right_shift", "", &IsIntegral, Error::kNotImplemented,
     "bitwise_right_shift not implemented for {}"},
    {"frac", "self", &IsFloating, Error::kRuntime,
     "frac_out_mps is only implemented for floating types"},
    {"gcd", "", &IsIntegral, Error::kNotImplemented,
     "gcd_mps not implemented for {}"},
    {"igamma", "", &IsFloating, Error::kType,
     "igamma_mps not implemented for {}", From(14)},
    {"igammac", "", &IsFloating, Error::kType,
     "igammac_mps not implemented for {}", From(14)},
    {"lcm", "", &IsIntegral, Error::kNotImplemented,
     "lcm_mps not implemented for {}"},
    {"logaddexp2", "", &IsFloating, Error::kNotImplemented,
     "\"logaddexp2_mps\" not implemented for '{}'", From(14)},
    {"nextafter", "", &IsFloating, Error::kType,
     "nextafter_mps not implemented for non-floating types"},
    // torch's Metal library lacks the function renorm_float2.
    {"renorm", "self", &IsReal, Error::kRuntime,
     "Failed to create function state object for: renorm_float2"},
    {"special_xlog1py", "", &IsReal, Error::kType,
     "xlog1py_mps not implemented for non-floating types"},

    // ---- Order, counts and reductions
    {"_cummax_helper", "self", &IsReal, Error::kRuntime,
     "\"cummax\" not implemented for '{}'", From(14)},
    {"_cummin_helper", "self", &IsReal, Error::kRuntime,
     "\"cummin\" not implemented for '{}'", From(14)},
    {"histc", "self", &IsFloatOnMpsOrIntegral, Error::kNotImplemented,
     "\"histc_mps\" not implemented for '{}'", From(15)},
    {Operators{"_histogramdd_from_bin_cts", "_histogramdd_from_bin_tensors",
               "histogram"},
     "self", &Is<ScalarType::Float>, Error::kRuntime,
     "histogram is only supported for float32", Until(15)},
    {Operators{"_histogramdd_from_bin_cts", "_histogramdd_from_bin_tensors",
               "histogram"},
     "self", &IsFloatOnMps, Error::kNotImplemented,
     "\"histogram_mps\" not implemented for '{}'", From(15)},
    {"kthvalue", "self", &IsFloatOnMpsOrIntegral, Error::kNotImplemented,
     "kthvalue_mps not implemented for {}", From(14)},
    {Operators{"median", "nanmedian"}, "self", &IsFloatOnMpsOrIntegral,
     Error::kNotImplemented, "median_mps not implemented for {}", From(14)},

    // ---- Indices and masks
    {"index_reduce", "self", &IsNot<ScalarType::Long>, Error::kRuntime,
     "index_reduce for MPS does not support torch.long dtype"},
    {"index_reduce", "self", &IsNot<ScalarType::ComplexFloat>, Error::kRuntime,
     "index_reduce for MPS does not support torch.cfloat dtype"},
    {"masked_fill", "mask", &Is<ScalarType::Bool>, Error::kRuntime,
     "expected mask dtype to be Bool but got {}"},
    {"masked_scatter", "mask", &IsMask, Error::kRuntime,
     "masked_scatter: expected BoolTensor or ByteTensor for mask"},

    // ---- Random numbers
    {"bernoulli", "self", &IsReal, Error::kNotImplemented,
     "bernoulli is not implemented for complex types on MPS", From(15)},
    {"random", "self", &IsReal, Error::kRuntime,
     "random_mps handles only integral, floating-point and boolean types"},
};

// The refusals of each operator, in the order of kRefusals.
using Table =
    std::unordered_map<std::string_view, std::vector<const Refusal *>>;

Table ByOperator() {
  Table table;
  for (const Refusal &refusal : kRefusals)
    for (std::string_view name : refusal.operators)
      table[name].push_back(&refusal);
  return table;
}

// Returns the type that a refusal is about; Undefined if an argument is a
// number instead of a tensor.
ScalarType TypeOf(const char *argument, const Call &call) {
  const IValue &first = call[*argument ? argument : "self"];
  if (!first.isTensor()) return ScalarType::Undefined;
  if (*argument) return first.toTensor().scalar_type();
  const IValue &second = call["other"];
  if (!second.isTensor()) return ScalarType::Undefined;
  return at::result_type(first.toTensor(), second.toTensor());
}

void CheckDtypes(std::string_view name, const Call &call) {
  static const auto *table = new Table(ByOperator());
  name.remove_prefix(name.find("::") + 2);
  if (name.ends_with('_') && !name.ends_with("__")) name.remove_suffix(1);
  auto found = table->find(name);
  if (found == table->end()) return;
  for (const Refusal *entry : found->second) {
    const Refusal &refusal = *entry;
    if (!TORCH_AT_LEAST(refusal.releases.from) ||
        TORCH_AT_LEAST(refusal.releases.until))
      continue;
    ScalarType type = TypeOf(refusal.argument, call);
    if (type == ScalarType::Undefined || refusal.takes(type)) continue;
    std::string text = refusal.text;
    if (size_t place = text.find("{}"); place != text.npos)
      text.replace(place, 2, c10::toString(type));
    TORCH_CHECK_NOT_IMPLEMENTED(refusal.error != Error::kNotImplemented, text);
    TORCH_CHECK_TYPE(refusal.error != Error::kType, text);
    TORCH_CHECK(false, text);
  }
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

void CheckRefusals(const c10::OperatorHandle &op,
                   const torch::jit::Stack &stack) {
  const auto &checks = Checks();
  Call call(op, stack);
  auto found = checks.find(op.schema().name());
  if (found != checks.end()) found->second(call);
  CheckDtypes(op.schema().name(), call);
}

}  // namespace mps_emulator

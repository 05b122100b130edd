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

void CheckSoftmax(const Call &call) {
  TORCH_CHECK(!call["half_to_float"].toBool(),
              "softmax with half to float conversion is not supported on MPS");
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

// {name of an operator, for all its overloads: check}
const std::unordered_map<std::string_view, Check> &Checks() {
  static const auto *checks = new std::unordered_map<std::string_view, Check>{
      {"aten::_adaptive_avg_pool2d", &CheckAdaptiveAveragePooling},
      {"aten::adaptive_avg_pool2d", &CheckAdaptiveAveragePooling},
      {"aten::_softmax", &CheckSoftmax},
      {"aten::bmm", &CheckBatchOfProducts},
      {"aten::grid_sampler_2d", &CheckGridSampler},
      {"aten::grid_sampler_3d", &CheckGridSampler},
      {"aten::linalg_lu_factor_ex", &CheckLuFactor},
      {"aten::mm", &CheckProduct},
      {"aten::normal_", &CheckNormal},
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
  CheckDtypes(op, stack);
}

}  // namespace mps_emulator

#include "torch/widening.h"

#include <ATen/native/TypeProperties.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>

namespace mps_emulator {

namespace {

using c10::ScalarType;

constexpr unsigned kBool = 1;
constexpr unsigned kIntegers = 2;
constexpr unsigned kHalves = 4;  // half and bfloat16

unsigned KindOf(ScalarType type) {
  if (type == ScalarType::Bool) return kBool;
  if (type == ScalarType::Half || type == ScalarType::BFloat16) return kHalves;
  return c10::isIntegralType(type, /*includeBool=*/false) ? kIntegers : 0;
}

// The operators for each kind of dtype, with spaces between the names.  A name
// omits the overload, and the underscore of an in-place variant.  The names
// come from torch's own lists (tests/oracle.py).
constexpr std::pair<unsigned, std::string_view> kOperators[] = {
    {kBool,
     "avg_pool3d bernoulli ceil dot floor floor_divide fmod "
     "max_pool2d_with_indices reflection_pad1d reflection_pad2d "
     "reflection_pad3d remainder replication_pad1d replication_pad2d "
     "replication_pad3d silu trunc vdot"},
    {kIntegers, "histc"},
    {kHalves,
     "_cdist_backward _cdist_forward avg_pool3d avg_pool3d_backward "
     "special_bessel_j0 special_bessel_j1 special_bessel_y0 "
     "special_bessel_y1 special_chebyshev_polynomial_t "
     "special_chebyshev_polynomial_u special_chebyshev_polynomial_v "
     "special_chebyshev_polynomial_w special_erfcx "
     "special_hermite_polynomial_h special_hermite_polynomial_he "
     "special_modified_bessel_i0 special_modified_bessel_i1 "
     "special_modified_bessel_k0 special_modified_bessel_k1 "
     "special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 "
     "special_shifted_chebyshev_polynomial_t "
     "special_shifted_chebyshev_polynomial_u "
     "special_shifted_chebyshev_polynomial_v "
     "special_shifted_chebyshev_polynomial_w special_spherical_bessel_j0 "
     "special_zeta"}};

unsigned KindsOf(std::string_view name) {
  static const auto *kinds = [] {
    auto *kinds = new std::unordered_map<std::string, unsigned>;
    for (const auto &[kind, names] : kOperators) {
      std::istringstream words{std::string(names)};
      for (std::string word; words >> word;) (*kinds)[word] |= kind;
    }
    return kinds;
  }();
  constexpr std::string_view kNamespace = "aten::";
  if (name.starts_with(kNamespace)) name.remove_prefix(kNamespace.size());
  name = name.substr(0, name.find('.'));
  if (name.ends_with('_')) name.remove_suffix(1);
  auto found = kinds->find(std::string(name));
  return found == kinds->end() ? 0 : found->second;
}

}  // namespace

bool IsWidened(std::string_view name) { return KindsOf(name) != 0; }

std::optional<ScalarType> DtypeToWiden(const c10::OperatorHandle &op,
                                       const torch::jit::Stack &stack) {
  unsigned kinds = KindsOf(op.schema().name());
  at::native::ResultTypeState state = {};
  bool has_number = false;
  const auto &arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue &value = torch::jit::peek(stack, i, arguments.size());
    if (value.isTensor() && value.toTensor().defined())
      state = at::native::update_result_type_state(value.toTensor(), state);
    else if (arguments[i].type()->kind() == c10::TypeKind::NumberType)
      has_number |= value.isInt() || value.isDouble();
  }
  // The CPU's kernel would compute in the promoted dtype of the arguments.
  ScalarType type = at::native::result_type(state);
  if (!(KindOf(type) & kinds)) return std::nullopt;
  // The kernel promotes a bool tensor and a number to the number's dtype, not
  // to bool.
  if (type == ScalarType::Bool && has_number) return std::nullopt;
  return type;
}

Widening::Widening(ScalarType narrow)
    : narrow_(narrow),
      wide_(KindOf(narrow) == kHalves ? ScalarType::Float
                                      : ScalarType::Double) {}

void Widening::WidenArguments(const c10::FunctionSchema &schema,
                              torch::jit::Stack *stack) {
  size_t count = schema.arguments().size();
  for (size_t i = 0; i < count; ++i) {
    c10::IValue &value = torch::jit::peek(*stack, i, count);
    if (!value.isTensor() || !value.toTensor().defined() ||
        value.toTensor().scalar_type() != narrow_)
      continue;
    const c10::AliasInfo *alias = schema.arguments()[i].alias_info();
    at::Tensor narrow = value.toTensor();
    at::Tensor wide = narrow.to(wide_);
    copies_.push_back({narrow, wide, alias && alias->isWrite()});
    value = wide;
  }
}

void Widening::NarrowResults(const c10::FunctionSchema &schema,
                             torch::jit::Stack *stack) const {
  for (const Copy &copy : copies_)
    if (copy.written) copy.narrow.resize_(copy.wide.sizes()).copy_(copy.wide);
  size_t count = schema.returns().size();
  for (size_t i = 0; i < count; ++i) {
    c10::IValue &value = torch::jit::peek(*stack, i, count);
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    auto copy = std::find_if(
        copies_.begin(), copies_.end(),
        [&](const Copy &copy) { return copy.wide.is_same(value.toTensor()); });
    if (copy != copies_.end())
      value = copy->narrow;
    else if (value.toTensor().scalar_type() == wide_)
      value = value.toTensor().to(narrow_);
  }
}

}  // namespace mps_emulator

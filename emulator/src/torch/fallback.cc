#include "torch/fallback.h"

#include <ATen/core/Generator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "core/counters.h"
#include "core/environment.h"
#include "core/stream.h"
#include "torch/generator.h"
#include "torch/host_alias.h"
#include "torch/mps_operators.inc"
#include "torch/operators.h"
#include "torch/refusals.h"
#include "torch/widening.h"

namespace mps_emulator {

namespace {

using c10::IValue;
using torch::jit::Stack;

// Operators that, on a Mac too, accept CPU tensors beside mps tensors, for
// example indices or lengths.
constexpr std::array<std::string_view, 7> kMixesDevices = {
    "aten::index",
    "aten::index_put",
    "aten::index_put_",
    "aten::_index_put_impl_",
    "aten::_unsafe_index",
    "aten::_ctc_loss",
    "aten::_pack_padded_sequence"};

bool MayMixDevices(const std::string &name) {
  return std::find(kMixesDevices.begin(), kMixesDevices.end(), name) !=
         kMixesDevices.end();
}

// Operators whose implementation in torch is the same for all devices.
constexpr const char *kViews[] = {
    "_reshape_alias", "as_strided",      "unfold",
    "view",           "view_as_complex", "view_as_real",
};
// Operators that make, split or copy sparse COO tensors.  The implementation in
// torch is the same for all devices.
constexpr const char *kOfSparseTensors[] = {
    "_coalesced_",
    "_indices",
    "_nnz",
    "_sparse_coo_tensor_with_dims",
    "_sparse_coo_tensor_with_dims_and_tensors",
    "_values",
    "clone",
    "copy_",
    "copy_sparse_to_sparse_",
    "dense_dim",
    "empty.memory_format",
    "empty_like",
    "indices",
    "is_coalesced",
    "sparse_dim",
    "sparse_resize_",
    "sparse_resize_and_clear_",
    "values",
    "zero_",
};

bool Has(std::span<const char *const> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Runs the CPU's kernel on the mps tensors themselves, without aliases.
template <c10::DispatchKey key>
void RunUnchanged(const c10::OperatorHandle &op, Stack *stack) {
  op.redispatchBoxed(c10::DispatchKeySet(key), stack);
}

// Converts the arguments of a call for the CPU's kernel.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle &op, HostAliases *aliases)
      : schema_(op.schema()), aliases_(aliases) {}

  void ToHost(Stack *stack) {
    size_t count = schema_.arguments().size();
    for (size_t i = 0; i < count; ++i) {
      IValue &value = torch::jit::peek(*stack, i, count);
      const c10::Argument &argument = schema_.arguments()[i];
      bool writes = argument.alias_info() && argument.alias_info()->isWrite();
      if (value.isTensor()) {
        value = ToHost(value.toTensor(), writes);
      } else if (value.isList()) {
        List kind = KindOf(argument.type());
        if (kind != List::kOfOthers) value = ListToHost(value, kind, writes);
      } else if (value.isGenerator()) {
        const at::Generator generator = value.toGenerator();
        TORCH_CHECK(generator.device().is_mps(),
                    "Expected a 'mps' device type for generator but found '",
                    generator.device().type(), "'");
        value = NextCpuEngine(generator);
      } else if (value.isDevice()) {
        if (value.toDevice().is_mps()) value = c10::Device(c10::kCPU);
      } else if (value.isNone() && argument.name() == "generator") {
        value = NextCpuEngine(DefaultGenerator());
      }
    }
    if (saw_mps_ && saw_cpu_ && !MayMixDevices(schema_.name()))
      TORCH_CHECK(false,
                  "Expected all tensors to be on the same device, but found at "
                  "least two devices, mps:0 and cpu!");
  }

 private:
  at::Tensor ToHost(const at::Tensor &tensor, bool writes) {
    if (!tensor.defined()) return tensor;
    if (tensor.is_mps()) {
      saw_mps_ = true;
      return aliases_->Make(tensor, writes);
    }
    // torch accepts a CPU scalar beside tensors of any device.
    if (tensor.dim() > 0) saw_cpu_ = true;
    return tensor;
  }

  enum class List { kOfOthers, kOfTensors, kOfOptionalTensors };

  static List KindOf(const c10::TypePtr &type) {
    auto list = type->cast<c10::ListType>();
    if (!list) return List::kOfOthers;
    const c10::TypePtr &element = list->getElementType();
    if (element->kind() == c10::TypeKind::TensorType) return List::kOfTensors;
    auto optional = element->cast<c10::OptionalType>();
    return optional && optional->getElementType()->kind() ==
                           c10::TypeKind::TensorType
               ? List::kOfOptionalTensors
               : List::kOfOthers;
  }

  // Returns a list with the element type `kind`, which is the type in the
  // schema.  A list from TorchScript may have a narrower element type, such as
  // Tensor instead of Tensor?.
  IValue ListToHost(const IValue &value, List kind, bool writes) {
    c10::List<at::Tensor> tensors;
    c10::List<std::optional<at::Tensor>> optionals;
    for (const IValue &element : value.toListRef()) {
      std::optional<at::Tensor> host;
      if (!element.isNone()) host = ToHost(element.toTensor(), writes);
      if (kind == List::kOfTensors)
        tensors.push_back(*host);
      else
        optionals.push_back(host);
    }
    if (kind == List::kOfTensors) return tensors;
    return optionals;
  }

  const c10::FunctionSchema &schema_;
  HostAliases *aliases_;
  bool saw_mps_ = false;
  bool saw_cpu_ = false;
};

void ResultsToDevice(HostAliases *aliases, size_t count, Stack *stack) {
  for (size_t i = 0; i < count; ++i) {
    IValue &value = torch::jit::peek(*stack, i, count);
    if (value.isTensor()) {
      value = aliases->ToDevice(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor &tensor : value.toTensorVector())
        list.push_back(aliases->ToDevice(tensor));
      value = std::move(list);
    }
  }
}

void Run(const c10::OperatorHandle &op, Stack *stack) {
  CheckRefusals(op, *stack);
  RunOnHost(op, stack);
}

void RunWidened(const c10::OperatorHandle &op, Stack *stack) {
  CheckRefusals(op, *stack);
  RunOnHost(op, stack, DtypeToWiden(op, *stack));
}

torch::CppFunction KernelFor(std::string_view name) {
  return IsWidened(name)
             ? torch::CppFunction::makeFromBoxedFunction<&RunWidened>()
             : torch::CppFunction::makeFromBoxedFunction<&Run>();
}

// Called for an operator that has no mps kernel on a Mac.  Throws torch's error
// or, if PYTORCH_ENABLE_MPS_FALLBACK is set, runs the operator on the CPU.
void Refuse(const c10::OperatorHandle &op, Stack *stack) {
  static const bool fall_back = EnvironmentFlag("PYTORCH_ENABLE_MPS_FALLBACK");
  TORCH_CHECK_NOT_IMPLEMENTED(
      fall_back, "The operator '", op.operator_name(),
      "' is not currently implemented for the MPS device. (The emulated device "
      "has the operators that torch has for MPS on a Mac. As on a Mac, "
      "PYTORCH_ENABLE_MPS_FALLBACK=1 runs this operator on the CPU.)");
  TORCH_WARN_ONCE("The operator '", op.operator_name(),
                  "' is not currently supported on the MPS backend and will "
                  "fall back to run on the CPU. This may have performance "
                  "implications.");
  RunOnHost(op, stack);
}

TORCH_LIBRARY_IMPL(_, MPS, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&Refuse>());
}

// Registers each operator by its name, because torch prefers a composition of
// other operators to a fallback.  A Mac runs the operator's own kernel.
TORCH_LIBRARY_IMPL(aten, MPS, m) {
  for (const char *name : kMpsOperators)
    if (!HasOwnKernel(name) && !Has(kViews, name))
      m.impl(name, KernelFor(name));
  for (const char *name : kViews)
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<
                     &RunUnchanged<c10::DispatchKey::CPU>>());
}

// Registers no fallback for sparse COO tensors, because torch on a Mac has no
// such fallback either.
TORCH_LIBRARY_IMPL(aten, SparseMPS, m) {
  for (const char *name : kSparseMpsOperators)
    if (!Has(kOfSparseTensors, name))
      m.impl(name, torch::CppFunction::makeFromBoxedFunction<&Run>());
  for (const char *name : kOfSparseTensors)
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<
                     &RunUnchanged<c10::DispatchKey::SparseCPU>>());
}

}  // namespace

void RunOnHost(const c10::OperatorHandle &op, Stack *stack,
               std::optional<c10::ScalarType> to_widen) {
  const c10::FunctionSchema &schema = op.schema();
  Count(kOperators);
  at::AutoDispatchBelowADInplaceOrView guard;
  // Keeps the arguments alive until after the scope, see HostAliases.
  Stack arguments = torch::jit::last(*stack, schema.arguments().size()).vec();
  HostAliases aliases;
  OperatorScope scope(schema.name().c_str());
  Arguments(op, &aliases).ToHost(stack);
  c10::DispatchKey key = aliases.any_sparse() ? c10::DispatchKey::SparseCPU
                                              : c10::DispatchKey::CPU;
  std::optional<Widening> widening;
  if (to_widen) widening.emplace(*to_widen).WidenArguments(schema, stack);
  op.redispatchBoxed(c10::DispatchKeySet(key), stack);
  if (widening) widening->NarrowResults(schema, stack);
  aliases.Settle();
  OperatorScope::LeaveEncoderOpen(schema.name().c_str());
  ResultsToDevice(&aliases, schema.returns().size(), stack);
}

}  // namespace mps_emulator

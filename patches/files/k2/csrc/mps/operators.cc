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

#include <atomic>
#include <memory>
#include <mutex>  // NOLINT
#include <string>

#include "ATen/core/dispatch/Dispatcher.h"
#include "ATen/record_function.h"
#include "k2/csrc/mps/counters.h"

// Counts torch's operators on mps.  While OnBegin() and OnEnd() are registered,
// torch calls these two functions at the beginning and at the end of each
// operator, in all threads.

namespace k2 {
namespace mps {

namespace {

std::mutex g_watch_mutex;
int32_t g_num_watching = 0;
at::CallbackHandle g_handle = 0;

// How many operators of this thread were counted.
thread_local int64_t t_count = 0;

bool IsOnMps(const at::Tensor &tensor) {
  return tensor.defined() && tensor.is_mps();
}

bool IsOnMps(const c10::IValue &value) {
  if (value.isTensor()) return IsOnMps(value.toTensor());
  if (!value.isList()) return false;
  for (const c10::IValue &element : value.toListRef())
    if (IsOnMps(element)) return true;
  return false;
}

template <typename Values>
bool AnyIsOnMps(const Values &values) {
  for (const c10::IValue &value : values)
    if (IsOnMps(value)) return true;
  return false;
}

// Returns whether an operator copies between mps and the CPU, and returns only
// when the copy is done.
bool IsBlockingCopy(const char *name, c10::ArrayRef<const c10::IValue> inputs) {
  const std::string copy = name;
  if (copy != "aten::copy_" && copy != "aten::_copy_from" &&
      copy != "aten::_copy_from_and_resize")
    return false;
  if (inputs.size() < 2 || !inputs[0].isTensor() || !inputs[1].isTensor() ||
      IsOnMps(inputs[0]) == IsOnMps(inputs[1]))
    return false;
  return inputs.size() < 3 || !inputs[2].isBool() || !inputs[2].toBool();
}

struct Begin : public at::ObserverContext {
  Begin(int64_t count, bool is_on_mps, bool is_blocking_copy)
      : count(count),
        is_on_mps(is_on_mps),
        is_blocking_copy(is_blocking_copy) {}

  const int64_t count;  // t_count when the operator began
  const bool is_on_mps, is_blocking_copy;
};

std::unique_ptr<at::ObserverContext> OnBegin(
    const at::RecordFunction &function) {
  return std::make_unique<Begin>(
      t_count, AnyIsOnMps(function.inputs()),
      IsBlockingCopy(function.name(), function.inputs()));
}

// Returns whether an operator only allocates, or only makes or changes a view.
// Such an operator gives the GPU no work.
bool IsIdle(const c10::OperatorName &name, const c10::FunctionSchema &schema,
            const c10::optional<c10::OperatorHandle> &op) {
  for (const char *prefix : {"aten::empty", "aten::new_empty"})
    if (name.name.rfind(prefix, 0) == 0) return true;
  for (const c10::Argument &ans : schema.returns()) {
    const c10::AliasInfo *alias = ans.alias_info();
    if (alias != nullptr && !alias->isWrite()) return true;
  }
  return op.has_value() && op->hasTag(at::Tag::inplace_view);
}

// Returns whether an operator returns a number.  Such an operator must wait for
// the number if the GPU computes it.
bool ReturnsNumber(const c10::optional<c10::OperatorHandle> &op) {
  return op.has_value() && op->hasTag(at::Tag::data_dependent_output);
}

// Returns whether an operator returns a tensor whose shape depends on values.
// If the GPU computes these values, the operator must wait for the shape.
// After the wait, the operator gives the GPU the work that fills the tensor.
bool ReturnsDynamicShape(const c10::optional<c10::OperatorHandle> &op) {
  return op.has_value() && op->hasTag(at::Tag::dynamic_output_shape);
}

void OnEnd(const at::RecordFunction &function, at::ObserverContext *context) {
  const auto *begin = static_cast<Begin *>(context);
  const auto name = function.operator_name();
  const auto schema = function.operator_schema();
  if (!name.has_value() || !schema.has_value()) return;
  if (!begin->is_on_mps && !AnyIsOnMps(function.outputs())) return;
  const auto op = c10::Dispatcher::singleton().findSchema(*name);
  const bool has_dynamic_shape = begin->is_on_mps && ReturnsDynamicShape(op);
  // An operator is not counted if k2 has counted an operator that this operator
  // called.
  if (t_count == begin->count && !IsIdle(*name, *schema, op)) {
    ++t_count;
    CountOperator();
    if (begin->is_blocking_copy || has_dynamic_shape ||
        (begin->is_on_mps && ReturnsNumber(op)))
      CountTorchWait();
  }
  if (has_dynamic_shape) NoteQueuedWork();
}

}  // namespace

void StartWatchingOperators() {
  std::lock_guard<std::mutex> lock(g_watch_mutex);
  if (g_num_watching++ != 0) return;
  g_handle = at::addGlobalCallback(at::RecordFunctionCallback(OnBegin, OnEnd)
                                       .needsInputs(true)
                                       .needsOutputs(true)
                                       .scopes({at::RecordScope::FUNCTION}));
}

void StopWatchingOperators() {
  std::lock_guard<std::mutex> lock(g_watch_mutex);
  if (--g_num_watching == 0) at::removeCallback(g_handle);
}

}  // namespace mps
}  // namespace k2

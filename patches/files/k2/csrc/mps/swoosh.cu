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

#include <cmath>
#include <cstdint>
#include <mutex>  // NOLINT
#include <string>
#include <utility>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "k2/csrc/mps/kernels/swoosh.h"
#include "k2/csrc/mps/metal.h"
#include "k2/csrc/mps/swoosh.h"

namespace k2 {

namespace {

constexpr double kSwooshCoeff = 0.08;
// The forward pass saves swoosh'(x) + kSwooshCoeff, which is at most 1, as a
// number of steps of this size.  Random rounding adds less than 1 step, so the
// number fits into eight bits.
constexpr double kStepOfDeriv = 1.005 / 255;

// swoosh(x) = log(1 + exp(x - shift)) - kSwooshCoeff x - offset
struct Function {
  double shift, offset;

  double Sigmoid(double x) const { return 1 / (1 + std::exp(shift - x)); }

  double Value(double x) const {
    const double z = x - shift;
    return (z > 0 ? z + std::log1p(std::exp(-z)) : std::log1p(std::exp(z))) -
           kSwooshCoeff * x - offset;
  }

  double Deriv(double x) const { return Sigmoid(x) - kSwooshCoeff; }

  // Returns the zero that Newton's method finds if it starts at `x`.
  double Zero(double x) const {
    for (int32_t i = 0; i != 50; ++i) x -= Value(x) / Deriv(x);
    return x;
  }
};

// A number as the sum of two floats: the number rounded to a float, and the
// rounding error.
struct Sum {
  float high, low;

  explicit Sum(double x) : high(x), low(x - high) {}
};

/* Returns a table of a function's values and slopes at equidistant nodes.

   @param [in] base   One of the nodes.  `base` is a float, so that the host and
                      the kernels compute the same nodes.
   @param [in] step   The distance from one node to the next.
   @param [in] first  The approximate position of the first node.
 */
SwooshTable MakeTable(const Function &function, float base, double step,
                      double first) {
  SwooshTable table = {};
  SwooshGrid &grid = table.grid;
  const int32_t before = std::lround((base - first) / step);
  grid.base = base;
  grid.step = step;
  grid.before = before;
  grid.cells_per_unit = 1 / step;
  grid.first_cell = before - base / step;
  for (int32_t i = 0; i != kSwooshCells; ++i) {
    const float node = std::fmaf(i - before, grid.step, grid.base);
    const Sum value(function.Value(node)), slope(function.Deriv(node));
    table.cells[i] = {value.high, value.low, slope.high, slope.low};
  }
  return table;
}

SwooshTail MakeTail(double slope, double intercept) {
  const Sum of_slope(slope), of_intercept(intercept);
  return {of_slope.high, of_slope.low, of_intercept.high, of_intercept.low};
}

// The constants that the kernels need to compute a function.
struct Constants {
  SwooshTable table, deriv_table;
  SwooshParams params;  // of which only the shift and the tails are set
};

/* Returns the constants of a function.

   @param [in] base   One of the two zeros of swoosh, as a float.
   @param [in] step   The distance between nodes: a fraction of the distance
                      between the zeros, so that both zeros are nodes.

   For swoosh_l and swoosh_r, the table of values covers all x from shift - 8 to
   shift + 4.9.  The table of the derivative covers all x from shift - 7 to
   shift + 6.  Most values of x are in these ranges.  Beyond these ranges,
   log(1 + exp(z)) is max(z, 0) + e - e^2 / 2 with e = exp(-|z|).
 */
Constants MakeConstants(const Function &function, float base, double step) {
  constexpr double kFirst = -8.2, kDerivFirst = -7.3, kDerivStep = 0.44;
  Constants ans = {};
  ans.table = MakeTable(function, base, step, function.shift + kFirst);
  ans.deriv_table = MakeTable(
      function, function.shift + std::log(kSwooshCoeff / (1 - kSwooshCoeff)),
      kDerivStep, function.shift + kDerivFirst);
  ans.params.shift = function.shift;
  ans.params.left = MakeTail(-kSwooshCoeff, -function.offset);
  ans.params.right =
      MakeTail(1 - kSwooshCoeff, -(function.shift + function.offset));
  return ans;
}

Constants MakeConstantsOfL() {
  const Function l = {4, 0.035};
  const double lower = l.Zero(-5), upper = l.Zero(4);
  return MakeConstants(l, lower, (upper - lower) / 7);
}

Constants MakeConstantsOfR() {
  const Function r = {1, 0.313261687};
  // The upper zero is within 3e-9 of 0, so 0 takes the place of this zero.  The
  // resulting error is smaller than the error of float64 near the zero.
  return MakeConstants(r, 0, -r.Zero(-5) / 9);
}

const Constants &ConstantsOf(SwooshKind kind) {
  static const Constants l = MakeConstantsOfL();
  static const Constants r = MakeConstantsOfR();
  return kind == SwooshKind::kL ? l : r;
}

// Returns whether there are kernels that read this type.
bool HasKernels(torch::ScalarType type) {
  return type == torch::kFloat || type == torch::kHalf ||
         type == torch::kBFloat16;
}

// Returns x, or a copy of x if kernels do not read the type of x, or if the
// memory of x has gaps.
torch::Tensor Input(torch::Tensor x) {
  x = x.detach();
  if (!HasKernels(x.scalar_type())) x = x.to(torch::kFloat);
  return x.is_non_overlapping_and_dense() ? x : x.contiguous();
}

// Returns an uninitialized tensor with the shape and strides of x.
torch::Tensor Output(const torch::Tensor &x, torch::ScalarType type) {
  return torch::empty_strided(x.sizes(), x.strides(), x.options().dtype(type));
}

// Returns whether a thread may load a chunk's elements as one vector.
bool IsAligned(const torch::Tensor &x) {
  return x.storage_offset() % kSwooshOfChunk == 0;
}

// Returns whether the elements of two tensors of the same shape are in the same
// order in memory.
bool HaveOneOrder(const torch::Tensor &x, const torch::Tensor &y) {
  for (int64_t i = 0; i != x.dim(); ++i)
    if (x.size(i) != 1 && x.stride(i) != y.stride(i)) return false;
  return true;
}

std::string Kernel(const char *name, torch::ScalarType type) {
  const char *suffix = type == torch::kHalf       ? "_half"
                       : type == torch::kBFloat16 ? "_bfloat"
                                                  : "";
  return std::string(name) + suffix;
}

// Launches a kernel with threads for all elements, if x has elements.
void LaunchFor(const std::string &kernel, const torch::Tensor &x,
               const mps::Arguments &arguments) {
  constexpr int64_t kThreads = 128;
  constexpr int64_t kElements = kThreads * kSwooshChunks * kSwooshOfChunk;
  const int64_t groups = (x.numel() + kElements - 1) / kElements;
  TORCH_CHECK(groups * kThreads * kSwooshChunks <= int64_t{1} << 32,
              "swoosh takes 2^34 elements at most. Given: ", x.numel());
  mps::Launch("swoosh", kernel,
              {static_cast<uint32_t>(groups), static_cast<uint32_t>(kThreads)},
              arguments);
}

SwooshParams ParamsFor(const Constants &constants, const torch::Tensor &x) {
  SwooshParams params = constants.params;
  params.size = x.numel();
  params.is_aligned = IsAligned(x);
  return params;
}

uint64_t NextSeed() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard<std::mutex> lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

}  // namespace

torch::Tensor SwooshMps(SwooshKind kind, torch::Tensor x) {
  x = Input(x);
  torch::Tensor y = Output(x, torch::kFloat);
  const Constants &constants = ConstantsOf(kind);
  if (x.numel() != 0)
    LaunchFor(Kernel("swoosh", x.scalar_type()), x,
              {mps::In(kSwooshX, x), mps::Out(kSwooshY, y),
               mps::In(kSwooshParams, ParamsFor(constants, x)),
               mps::In(kSwooshTable, constants.table)});
  return y;
}

std::pair<torch::Tensor, torch::Tensor> SwooshAndDerivMps(SwooshKind kind,
                                                          torch::Tensor x) {
  x = Input(x);
  torch::Tensor y = Output(x, torch::kFloat), deriv = Output(x, torch::kFloat);
  const Constants &constants = ConstantsOf(kind);
  if (x.numel() != 0)
    LaunchFor(Kernel("swoosh_and_deriv", x.scalar_type()), x,
              {mps::In(kSwooshX, x), mps::Out(kSwooshY, y),
               mps::Out(kSwooshDeriv, deriv),
               mps::In(kSwooshParams, ParamsFor(constants, x)),
               mps::In(kSwooshTable, constants.table),
               mps::In(kSwooshDerivTable, constants.deriv_table)});
  return {y, deriv};
}

std::pair<torch::Tensor, torch::Tensor> SwooshForwardMps(SwooshKind kind,
                                                         torch::Tensor x,
                                                         float dropout_prob) {
  x = Input(x);
  torch::Tensor y = Output(x, torch::kFloat), deriv = Output(x, torch::kByte);
  if (x.numel() == 0) return {y, deriv};
  const Constants &constants = ConstantsOf(kind);
  SwooshParams params = ParamsFor(constants, x);
  const uint64_t seed = NextSeed();
  params.seed[0] = static_cast<uint32_t>(seed);
  params.seed[1] = static_cast<uint32_t>(seed >> 32);
  params.dropout_limit = std::lround(dropout_prob * (1 << kSwooshDropoutBits));
  params.kept_scale = 1.0f / (1.0f - dropout_prob);
  LaunchFor(
      Kernel("swoosh_forward", x.scalar_type()), x,
      {mps::In(kSwooshX, x), mps::Out(kSwooshY, y), mps::Out(kSwooshG, deriv),
       mps::In(kSwooshParams, params), mps::In(kSwooshTable, constants.table)});
  return {y, deriv};
}

torch::Tensor SwooshBackwardMps(const torch::Tensor &y_grad,
                                const torch::Tensor &deriv, float dropout_prob,
                                torch::ScalarType type) {
  torch::Tensor from = y_grad.detach().to(torch::kFloat);
  if (!HaveOneOrder(from, deriv))
    from = Output(deriv, torch::kFloat).copy_(from);
  torch::Tensor x_grad = Output(deriv, HasKernels(type) ? type : torch::kFloat);
  SwooshGradParams params = {};
  params.size = deriv.numel();
  params.is_aligned = IsAligned(from);
  params.scale = kStepOfDeriv / (1.0 - dropout_prob);
  params.offset = kSwooshCoeff / (1.0 - dropout_prob);
  if (deriv.numel() != 0)
    LaunchFor(Kernel("swoosh_backward", x_grad.scalar_type()), deriv,
              {mps::In(kSwooshYGrad, from), mps::In(kSwooshG, deriv),
               mps::Out(kSwooshXGrad, x_grad), mps::In(kSwooshParams, params)});
  return x_grad;
}

}  // namespace k2

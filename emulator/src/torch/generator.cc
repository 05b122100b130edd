#include "torch/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GeneratorImpl.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <vector>

namespace mps_emulator {

namespace {

// 44 bytes, in the layout of a Mac's state.
struct __attribute__((packed)) State {
  // A Mac passes these words to MPSGraph; the last two are the seed.  Here only
  // set_state() changes the other words.
  uint32_t graph[7];
  uint64_t seed;
  uint64_t offset;  // in results of Philox, of 128 bits each
};

State StateOf(uint64_t seed) {
  return {{1, 1, 1, 1, 1, static_cast<uint32_t>(seed),
           static_cast<uint32_t>(seed >> 32)},
          seed,
          0};
}

class MpsGenerator final : public c10::GeneratorImpl {
 public:
  explicit MpsGenerator(const State &state = StateOf(c10::default_rng_seed_val))
      : GeneratorImpl(c10::Device(c10::DeviceType::MPS, 0),
                      c10::DispatchKeySet(c10::DispatchKey::MPS)),
        state_(state) {}

  void set_current_seed(uint64_t seed) override { state_ = StateOf(seed); }
  uint64_t current_seed() const override { return state_.seed; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return state_.seed;
  }
  void set_offset(uint64_t offset) override { state_.offset = offset; }
  uint64_t get_offset() const override { return state_.offset; }

  void set_state(const c10::TensorImpl &state) override {
    at::detail::check_rng_state(state);
    TORCH_CHECK(state.numel() == sizeof state_, "RNG state is wrong size");
    std::memcpy(&state_, state.data(), sizeof state_);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::Tensor state = at::empty({sizeof state_}, at::kByte);
    std::memcpy(state.data_ptr(), &state_, sizeof state_);
    return state.getIntrusivePtr();
  }

  static c10::DeviceType device_type() { return c10::DeviceType::MPS; }

 private:
  MpsGenerator *clone_impl() const override { return new MpsGenerator(state_); }

  State state_;
};

uint64_t Quarter(uint64_t count) { return (count + 3) / 4; }

// The number of elements that an operator fills: those of all its tensors, in
// one shape.
uint64_t CountElements(c10::ArrayRef<c10::IValue> arguments) {
  std::vector<int64_t> sizes;
  for (const c10::IValue &argument : arguments)
    if (argument.isTensor())
      sizes = at::infer_size(sizes, argument.toTensor().sizes());
  return c10::multiply_integers(sizes);
}

// By how much an operator advances the offset on a Mac, with torch 2.13.
uint64_t Advance(std::string_view name, c10::ArrayRef<c10::IValue> arguments) {
  if (name == "randperm") {
    uint64_t n = arguments[0].toInt();
    const at::Tensor out = arguments.back().toTensor();
    bool is_small =
        n <= 384 && out.is_contiguous() &&
        (out.scalar_type() == at::kInt || out.scalar_type() == at::kLong);
    if (is_small) return Quarter(n ? n - 1 : 0);
    return Quarter(n) + (n >= 1 << 15 ? n : 0);
  }
  if (name == "multinomial") {
    const at::Tensor weights = arguments[0].toTensor();
    uint64_t samples = arguments[1].toInt();
    bool replaces = arguments[2].toBool() && samples != 1;
    if (!replaces) return Quarter(weights.numel());
    return Quarter(weights.dim() == 2 ? weights.size(0) * samples : samples);
  }
  // An `out` may have another shape before the call.
  if (name == "bernoulli") return arguments[0].toTensor().numel();
  if (name == "normal") return Quarter(CountElements(arguments.slice(0, 2)));
  const at::Tensor self = arguments[0].toTensor();
  uint64_t count = self.numel();
  if (name == "_standard_gamma" || name == "_sample_dirichlet")
    return 32 * count;
  if (name == "bernoulli_" && arguments[1].isTensor() &&
      arguments[1].toTensor().dim() > 0)
    return count;
  if (name == "random_" && self.element_size() == 8) return (count + 1) / 2;
  return Quarter(self.is_complex() ? 2 * count : count);
}

}  // namespace

const at::Generator &DefaultGenerator() {
  static auto *generator =
      new at::Generator(at::make_generator<MpsGenerator>());
  return *generator;
}

at::Generator NewGenerator() { return at::make_generator<MpsGenerator>(); }

at::Generator CpuEngineFor(const at::Generator &generator,
                           std::string_view name,
                           c10::ArrayRef<c10::IValue> arguments) {
  uint64_t advance = Advance(name, arguments);
  c10::GeneratorImpl *state = generator.unsafeGetGeneratorImpl();
  std::lock_guard<std::mutex> lock(state->mutex_);
  uint64_t offset = state->get_offset();
  state->set_offset(offset + advance);
  // The CPU's generator makes use of 32 bits of a seed.
  uint32_t seed = at::Philox4_32(state->current_seed(), 0, offset)();
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

}  // namespace mps_emulator

#include "torch/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GeneratorImpl.h>

#include <cstring>
#include <mutex>

namespace mps_emulator {

namespace {

// The state of a generator: 44 bytes, in the layout that a Mac's torch uses.
struct __attribute__((packed)) State {
  // On a Mac, torch passes these words to MPSGraph.  The last two words are the
  // seed.  In the emulator, a new seed sets the other five words to 1, and only
  // set_state() can give the five words other values.
  uint32_t graph[7];
  uint64_t seed;
  uint64_t offset;
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

}  // namespace

const at::Generator &DefaultGenerator() {
  static auto *generator =
      new at::Generator(at::make_generator<MpsGenerator>());
  return *generator;
}

at::Generator NewGenerator() { return at::make_generator<MpsGenerator>(); }

at::Generator NextCpuEngine(const at::Generator &generator) {
  c10::GeneratorImpl *state = generator.unsafeGetGeneratorImpl();
  std::lock_guard<std::mutex> lock(state->mutex_);
  uint64_t offset = state->get_offset();
  state->set_offset(offset + 1);
  // The CPU's generator uses only 32 bits of a seed.
  uint32_t seed = at::Philox4_32(state->current_seed(), 0, offset)();
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

}  // namespace mps_emulator

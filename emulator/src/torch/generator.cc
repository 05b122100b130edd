#include "torch/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GeneratorImpl.h>

namespace mps_emulator {

namespace {

class MpsGenerator final : public c10::GeneratorImpl {
 public:
  MpsGenerator()
      : GeneratorImpl(c10::Device(c10::DeviceType::MPS, 0),
                      c10::DispatchKeySet(c10::DispatchKey::MPS)),
        engine_(at::make_generator<at::CPUGeneratorImpl>(
            c10::default_rng_seed_val)) {}

  const at::Generator &engine() const { return engine_; }

  void set_current_seed(uint64_t seed) override {
    engine_.set_current_seed(seed);
  }
  uint64_t current_seed() const override { return engine_.current_seed(); }
  uint64_t seed() override { return engine_.seed(); }
  void set_offset(uint64_t offset) override { engine_.set_offset(offset); }
  uint64_t get_offset() const override { return engine_.get_offset(); }

  void set_state(const c10::TensorImpl &state) override {
    engine_.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return engine_.unsafeGetGeneratorImpl()->get_state();
  }

  static c10::DeviceType device_type() { return c10::DeviceType::MPS; }

 private:
  MpsGenerator *clone_impl() const override {
    auto *copy = new MpsGenerator;
    copy->engine_ = engine_.clone();
    return copy;
  }

  at::Generator engine_;
};

}  // namespace

const at::Generator &DefaultGenerator() {
  static auto *generator =
      new at::Generator(at::make_generator<MpsGenerator>());
  return *generator;
}

at::Generator NewGenerator() { return at::make_generator<MpsGenerator>(); }

at::Generator CpuEngineOf(const at::Generator &generator) {
  return static_cast<MpsGenerator *>(generator.unsafeGetGeneratorImpl())
      ->engine();
}

}  // namespace mps_emulator

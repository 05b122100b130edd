// Random numbers on the mps device.
#pragma once

#include <ATen/core/Generator.h>

namespace mps_emulator {

// The device's default generator, torch.mps.manual_seed()'s.
const at::Generator &DefaultGenerator();

at::Generator NewGenerator();

// The CPU generator behind a generator of the mps device, because the CPU's
// operators draw the numbers.  On a Mac the same seed gives other numbers.
at::Generator CpuEngineOf(const at::Generator &generator);

}  // namespace mps_emulator

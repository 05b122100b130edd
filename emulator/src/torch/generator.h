// Random numbers on the mps device.
#pragma once

#include <ATen/core/Generator.h>

namespace mps_emulator {

// The device's default generator, torch.mps.manual_seed()'s.
const at::Generator &DefaultGenerator();

at::Generator NewGenerator();

// The CPU generator whose numbers a generator of the mps device hands out: the
// operators that draw numbers are the CPU's.  On a Mac other numbers come out
// of the same seed.
at::Generator CpuEngineOf(const at::Generator &generator);

}  // namespace mps_emulator

// torch.Generator of the mps device.
#pragma once

#include <ATen/core/Generator.h>

namespace mps_emulator {

// The device's default generator, which torch.mps.manual_seed() seeds.
const at::Generator &DefaultGenerator();

at::Generator NewGenerator();

// Returns a CPU generator for one call of an operator, because the CPU's
// kernels draw the numbers.  The CPU generator's seed depends on the seed and
// the offset of `generator`, which must be a generator of mps.  Advances the
// offset of `generator` by one.  From the same state, a Mac draws other
// numbers, and advances the offset by the count of these numbers.
at::Generator NextCpuEngine(const at::Generator &generator);

}  // namespace mps_emulator

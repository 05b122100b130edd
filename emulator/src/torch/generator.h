// torch.Generator of the mps device.
#pragma once

#include <ATen/core/Generator.h>

namespace mps_emulator {

// The device's default generator, torch.mps.manual_seed()'s.
const at::Generator &DefaultGenerator();

at::Generator NewGenerator();

// A CPU generator for one call of an operator, because the CPU's kernels draw
// the numbers.  The seed follows from the state of `generator`, a generator of
// the mps device, whose offset advances by one.  A Mac draws other numbers from
// the same state, and advances the offset by as many as it draws.
at::Generator NextCpuEngine(const at::Generator &generator);

}  // namespace mps_emulator

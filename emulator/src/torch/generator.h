// torch.Generator of the mps device.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>

#include <string_view>

namespace mps_emulator {

// The device's default generator, torch.mps.manual_seed()'s.
const at::Generator &DefaultGenerator();

at::Generator NewGenerator();

// A CPU generator for one call of aten's operator `name`, because the CPU's
// kernels draw the numbers.  The seed follows from the state of `generator`, a
// generator of the mps device, whose offset advances as on a Mac.  A Mac draws
// other numbers from the same state.
//
// Args:
//   name: without namespace and overload, e.g. "uniform_".
//   arguments: all of the operator's, on any device.
at::Generator CpuEngineFor(const at::Generator &generator,
                           std::string_view name,
                           c10::ArrayRef<c10::IValue> arguments);

}  // namespace mps_emulator

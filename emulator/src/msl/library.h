// A compiled kernel library: a shared object with its own description.
#pragma once

#include <memory>
#include <string>

#include "msl/msl.h"

namespace mps_emulator::msl {

// Loads a library that was compiled from `source` with `options`, for the rest
// of the process.  Returns nullptr and sets `*error` if the file is not a
// kernel library of this version.
std::shared_ptr<const Library> LoadLibrary(const std::string &path,
                                           const std::string &source,
                                           const CompileOptions &options,
                                           std::string *error);

}  // namespace mps_emulator::msl

// A compiled kernel library: a shared object with its own description.
#pragma once

#include <memory>
#include <string>

#include "msl/msl.h"

namespace mps_emulator::msl {

// Returns nullptr and sets `*error` if the file is no kernel library of this
// version. A library stays loaded for the rest of the process.  `source` and
// `options` are those of its compilation.
std::shared_ptr<const Library> LoadLibrary(const std::string &path,
                                           const std::string &source,
                                           const CompileOptions &options,
                                           std::string *error);

}  // namespace mps_emulator::msl

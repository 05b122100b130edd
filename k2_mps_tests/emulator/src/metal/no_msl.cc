// Stands in for the Metal Shading Language front end while it is not part of
// the tree: no source compiles.
#include "core/fatal.h"
#include "msl/msl.h"

namespace mps_emulator::msl {

std::shared_ptr<const Library> Compile(const std::string &,
                                       const CompileOptions &,
                                       std::string *diagnostics) {
  *diagnostics = "this build of the emulator has no MSL front end";
  return nullptr;
}

void Run(const Dispatch &) { Fatal("no MSL front end"); }

}  // namespace mps_emulator::msl

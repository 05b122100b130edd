#include "msl/library.h"

#include <dlfcn.h>

#include "abi.h"
#include "msl/executor.h"

namespace mps_emulator::msl {

namespace {

Kernel Describe(const mps_emulator_msl_kernel &from) {
  Kernel kernel;
  kernel.name = from.name;
  kernel.static_threadgroup_bytes = from.static_threadgroup_bytes;
  kernel.max_total_threads = from.max_total_threads;
  kernel.needs_fibers = (from.flags & kMpsEmulatorMslNeedsFibers) != 0;
  kernel.entry = &from;
  for (unsigned i = 0; i < from.parameter_count; ++i) {
    const mps_emulator_msl_parameter &p = from.parameters[i];
    kernel.parameters.push_back({static_cast<Parameter::Kind>(p.kind), p.name,
                                 p.index, p.writable != 0, p.by_reference != 0,
                                 p.active != 0, p.in_constant != 0,
                                 p.element_size, p.alignment});
  }
  for (unsigned i = 0; i < from.function_constant_count; ++i) {
    const mps_emulator_msl_function_constant &c = from.function_constants[i];
    kernel.function_constants.push_back(
        {c.name, c.type, c.index, c.defined != 0});
  }
  return kernel;
}

}  // namespace

std::shared_ptr<const Library> LoadLibrary(const std::string &path,
                                           const std::string &source,
                                           const CompileOptions &options,
                                           std::string *error) {
  // Never closed: a command buffer that never runs may hold one of the kernels
  // until the end of the process.
  void *object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) {
    *error = dlerror();
    return nullptr;
  }
  auto *module = static_cast<const mps_emulator_msl_module *>(
      dlsym(object, "mps_emulator_msl_description"));
  if (module == nullptr || module->abi_version != kMpsEmulatorMslAbiVersion) {
    *error = path + " is not a kernel library of this version of the emulator";
    dlclose(object);
    return nullptr;
  }
  *module->runtime = Runtime();
  auto library = std::make_shared<Library>(Library{{}, source, options});
  for (unsigned i = 0; i < module->kernel_count; ++i)
    library->kernels.push_back(Describe(module->kernels[i]));
  return library;
}

}  // namespace mps_emulator::msl

#include "msl/library.h"

#include <dlfcn.h>

#include "abi.h"
#include "msl/executor.h"

namespace mps_emulator::msl {

namespace {

class SharedObjectLibrary : public Library {
 public:
  SharedObjectLibrary(std::vector<Kernel> kernels, std::string source,
                      CompileOptions options)
      : kernels_(std::move(kernels)),
        source_(std::move(source)),
        options_(std::move(options)) {}

  const std::vector<Kernel> &kernels() const override { return kernels_; }

  const Kernel *Find(std::string_view name) const override {
    for (const Kernel &kernel : kernels_)
      if (kernel.name == name) return &kernel;
    return nullptr;
  }

  const std::string &source() const override { return source_; }
  const CompileOptions &options() const override { return options_; }

 private:
  const std::vector<Kernel> kernels_;
  const std::string source_;
  const CompileOptions options_;
};

Parameter::Kind KindOf(unsigned kind) {
  switch (kind) {
    case kMpsEmulatorMslBuffer:
      return Parameter::Kind::kBuffer;
    case kMpsEmulatorMslThreadgroup:
      return Parameter::Kind::kThreadgroup;
    default:
      return Parameter::Kind::kBuiltin;
  }
}

Kernel Describe(const mps_emulator_msl_kernel &from) {
  Kernel kernel;
  kernel.name = from.name;
  kernel.static_threadgroup_bytes = from.static_threadgroup_bytes;
  kernel.max_total_threads = from.max_total_threads;
  kernel.needs_fibers = (from.flags & kMpsEmulatorMslNeedsFibers) != 0;
  kernel.entry = const_cast<mps_emulator_msl_kernel *>(&from);
  for (unsigned i = 0; i < from.parameter_count; ++i) {
    const mps_emulator_msl_parameter &p = from.parameters[i];
    Parameter parameter;
    parameter.kind = KindOf(p.kind);
    parameter.name = p.name;
    parameter.index = p.index;
    parameter.writable = p.writable != 0;
    parameter.by_reference = p.by_reference != 0;
    parameter.active = p.active != 0;
    parameter.constant = p.in_constant != 0;
    parameter.element_size = p.element_size;
    parameter.alignment = p.alignment;
    kernel.parameters.push_back(std::move(parameter));
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
  // Never closed: a command buffer that never runs may have a kernel of it
  // until the end of the process.
  void *object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) {
    *error = dlerror();
    return nullptr;
  }
  auto *module = static_cast<const mps_emulator_msl_module *>(
      dlsym(object, "mps_emulator_msl_description"));
  if (module == nullptr || module->abi_version != kMpsEmulatorMslAbiVersion) {
    *error = path + " is no kernel library of this version of the emulator";
    dlclose(object);
    return nullptr;
  }
  *module->runtime = Runtime();
  std::vector<Kernel> kernels;
  for (unsigned i = 0; i < module->kernel_count; ++i)
    kernels.push_back(Describe(module->kernels[i]));
  return std::make_shared<SharedObjectLibrary>(std::move(kernels), source,
                                               options);
}

}  // namespace mps_emulator::msl

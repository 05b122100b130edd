// Metal's shader validation, which the environment variable
// MTL_SHADER_VALIDATION=1 turns on: an access outside of a kernel's memory does
// not end the program.  A load gives zeros, and a store has no effect.
//
// With MTL_SHADER_VALIDATION_REPORT_TO_STDERR=1 each place in a kernel that
// makes such an access is printed once for each dispatch, in Metal's words.
// Without that variable nothing is printed, because a Mac reports only to its
// system log.
//
// The validator needs kernels that report their accesses: see
// ReportsAccesses().
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "msl/kernel_memory.h"
#include "msl/msl.h"

namespace mps_emulator::msl {

// Returns whether shaders are validated.  MPS_EMULATOR_CHECK_RACES, which ends
// the program at such an access, comes first.
bool ValidatesShaders();

// Returns whether Compile() makes kernels that report their accesses: if races
// are checked, or if shaders are validated.
bool ReportsAccesses();

class Validator {
 public:
  // The arguments are those of RaceChecker::Begin().
  void Begin(const Dispatch &dispatch, const mps_emulator_msl_launch *launch,
             const char *threadgroup_memory, size_t threadgroup_bytes,
             const std::vector<ThreadgroupPiece> *pieces);
  ~Validator() { End(); }

  // Ends the dispatch.
  void End();

  // Called when a kernel is about to access memory.  If the memory is not the
  // kernel's, reports the access and makes its bytes zero until the kernel
  // reports its next access: then these bytes are again what they were.
  // flags: a combination of bits of abi.h, such as kMpsEmulatorMslWrite.
  // place: the address of the kernel's code that follows the access.
  void Access(const void *address, size_t size, unsigned flags,
              const void *place);

  // Gives the bytes of the last accesses outside of the kernel's memory the
  // values that they had.
  void Restore();

 private:
  void Print(const KernelMemory::Found &found, unsigned flags,
             const void *place) const;
  // Lends zeros to the kernel at `begin`.
  void Lend(char *begin, size_t size);

  struct Lent {
    char *begin;
    std::vector<char> bytes;  // what was there
  };

  const Dispatch *dispatch_ = nullptr;
  bool prints_ = false;
  KernelMemory memory_;
  std::set<const void *> printed_;  // places
  std::vector<Lent> lent_;
  std::vector<char *> pages_;  // pages that Lend() has added to the process
};

}  // namespace mps_emulator::msl

#include "msl/validator.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "core/environment.h"
#include "core/fatal.h"
#include "core/limits.h"
#include "msl/process.h"
#include "msl/race_checker.h"

namespace mps_emulator::msl {

bool ValidatesShaders() {
  return EnvironmentFlag("MTL_SHADER_VALIDATION") && !CheckRaces();
}

bool ReportsAccesses() { return CheckRaces() || ValidatesShaders(); }

void Validator::Begin(const Dispatch &dispatch,
                      const mps_emulator_msl_launch *launch,
                      const char *threadgroup_memory, size_t threadgroup_bytes,
                      const std::vector<ThreadgroupPiece> *pieces) {
  End();
  dispatch_ = &dispatch;
  prints_ = EnvironmentFlag("MTL_SHADER_VALIDATION_REPORT_TO_STDERR");
  printed_.clear();
  memory_.Begin(dispatch, launch, threadgroup_memory, threadgroup_bytes,
                pieces);
}

void Validator::End() {
  Restore();
  for (char *page : pages_) munmap(page, kPage);
  pages_.clear();
}

void Validator::Access(const void *address, size_t size, unsigned flags,
                       const void *place) {
  if ((flags & kMpsEmulatorMslSecond) == 0) Restore();
  const KernelMemory::Found found =
      memory_.Find(reinterpret_cast<uintptr_t>(address), size);
  if (found.kind != KernelMemory::Found::kOutside) return;
  if (prints_ && printed_.insert(place).second) Print(found, flags, place);
  Lend(static_cast<char *>(const_cast<void *>(address)), size);
}

void Validator::Print(const KernelMemory::Found &found, unsigned flags,
                      const void *place) const {
  std::string at = Text("offset %td", found.offset), where = "buffer: unknown";
  if (found.piece != nullptr)
    where = Text("threadgroup memory, length:%zu", found.piece->bytes);
  else if (found.in_threadgroup)
    where = "threadgroup memory that the kernel does not use";
  else if (found.buffer != nullptr)
    where = Text("buffer: \"%s\", length:%zu", found.buffer->parameter->name,
                 found.buffer->size);
  else
    at = "an address far from all buffers";
  fprintf(stderr,
          "Invalid %s %s at %s, executing kernel function: \"%s\"\n"
          "%s, encoder: \"%s\", emulated\n"
          "  * frame #0: %s() - %s\n",
          found.in_threadgroup ? "threadgroup" : "device",
          flags & kMpsEmulatorMslWrite ? "store" : "load", at.c_str(),
          dispatch_->kernel->name, where.c_str(), dispatch_->label.c_str(),
          dispatch_->kernel->name, LineInSource(place).c_str());
}

void Validator::Lend(char *begin, size_t size) {
  const auto first = reinterpret_cast<uintptr_t>(begin);
  for (uintptr_t page = first / kPage * kPage; page < first + size;
       page += kPage) {
    void *wanted = reinterpret_cast<void *>(page);
    // If the process has memory there, the call fails.  If the process may not
    // write to that memory, memset() faults, and faults.cc reports the access.
    void *added =
        mmap(wanted, kPage, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (added == wanted) pages_.push_back(static_cast<char *>(added));
  }
  lent_.push_back({begin, std::vector<char>(begin, begin + size)});
  memset(begin, 0, size);
}

void Validator::Restore() {
  // The last first, because two accesses may overlap.
  for (auto lent = lent_.rbegin(); lent != lent_.rend(); ++lent)
    memcpy(lent->begin, lent->bytes.data(), lent->bytes.size());
  lent_.clear();
}

}  // namespace mps_emulator::msl

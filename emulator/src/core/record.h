// Records, in a folder, a program's work on the device.  A replay repeats the
// work.  mps_emulator/replay/README.md describes the folder.
//
// The recorder sees only commands.  For each buffer, the recorder keeps the
// contents that the buffer would have after the recorded commands alone.  When
// the next command uses the buffer, the recorder compares the buffer with these
// contents, and stores the differences.  The differences come from other
// writers: torch's operators, the CPU, or a copy that torch has encoded.
#pragma once

#include <atomic>
#include <string>

#include "core/commands.h"

namespace mps_emulator {

extern std::atomic<bool> is_recording;

inline bool IsRecording() {
  return is_recording.load(std::memory_order_relaxed);
}

// The emulator calls these functions before and after each command.  `device`:
// the addresses of the device copies of the command's buffers.  The caller must
// hold the execution lock.
void RecordBefore(const Command &command, char *const *device);
void RecordAfter(const Command &command, char *const *device);

// For Command::describe: writes the program `text` to the folder, unless the
// recording already has the program.  Returns the program's number in the
// recording.
//   members: further members of the program's JSON object.
size_t RecordProgram(const std::string &text, const std::string &members);

}  // namespace mps_emulator

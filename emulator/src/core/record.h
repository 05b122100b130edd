// Recordings: the work of a program on the device, in a folder from which a
// replay repeats it.  mps_emulator/replay/README.md describes the folder.
//
// The recorder watches only commands, and knows the contents that the recorded
// commands alone would leave in a buffer.  When the next command uses the
// buffer, the recorder compares, and stores the changes by other writers:
// torch's operators, the CPU, an encoded copy.
#pragma once

#include <atomic>
#include <string>

#include "core/commands.h"

namespace mps_emulator {

extern std::atomic<bool> recording;

inline bool IsRecording() { return recording.load(std::memory_order_relaxed); }

// Called before and after a command runs, with its buffers at `device`.  The
// caller holds the execution lock.
void RecordBefore(const Command &command, char *const *device);
void RecordAfter(const Command &command, char *const *device);

// For Command::describe: writes a program to the folder once; returns its
// number in the recording.
//   members: further members of the program's JSON object.
size_t RecordProgram(const std::string &text, const std::string &members);

}  // namespace mps_emulator

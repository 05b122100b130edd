// Recordings: what a program asks of the device, in a folder from which the
// same work can be done again elsewhere.  mps_emulator/replay/README.md says
// what is in the folder.
//
// Nothing but commands is watched.  What else changes a buffer (operators of
// torch, the CPU, an encoded copy) shows when the next command uses it: the
// recorder keeps what each buffer would hold if only recorded commands had
// written to it, and notes where the device copy differs.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "core/commands.h"

namespace mps_emulator {

extern std::atomic<bool> recording;

inline bool IsRecording() { return recording.load(std::memory_order_relaxed); }

// Around the run of a command, whose buffers are at `device`.  The execution
// lock is held.
void RecordBefore(const Command &command, char *const *device);
void RecordAfter(const Command &command, char *const *device);

// Something else that happens in the order of commands: `kind` is "operator",
// "wait" or "commit".
void RecordEvent(const char *kind, const std::string &name = {});

// A program for the device, written to the folder once.
//   members: what else there is to say of it, as members of a JSON object.
// Returns its number in the recording.  For Command::describe.
size_t RecordProgram(const std::string &text, const std::string &members);

}  // namespace mps_emulator

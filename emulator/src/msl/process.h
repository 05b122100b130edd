// Runs another program and reads its output, also to name lines of source.
#pragma once

#include <string>
#include <vector>

namespace mps_emulator::msl {

struct ProcessResult {
  // The exit status; -1 if the program was not started or died of a signal.
  int status = -1;
  // The text on stdout and stderr, or the reason why the program did not start.
  std::string output;
};

// Runs `command[0]` from PATH with this process's environment and without
// input, and waits for its end.  Takes no lock.
ProcessResult RunProcess(const std::vector<std::string> &command);

// "line 12" for an address behind a call, by binutils.  For code of the
// emulator's headers: the program's line that calls this code.
std::string LineInSource(const void *place);

}  // namespace mps_emulator::msl

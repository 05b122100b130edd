// Runs another program and reads its output.
#pragma once

#include <string>
#include <vector>

namespace mps_emulator::msl {

struct ProcessResult {
  // The exit status; -1 if the program was not started or died of a signal.
  int status = -1;
  // The text on stdout and stderr, or why the program was not started.
  std::string output;
};

// Runs `command[0]`, looked up in PATH, with the environment of this process
// and without an input, and waits for its end.  Takes no lock.
ProcessResult RunProcess(const std::vector<std::string> &command);

}  // namespace mps_emulator::msl

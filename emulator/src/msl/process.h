// Runs other programs and reads their output.
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

// Runs the program `command[0]`, which PATH finds, with the other words as its
// arguments.  The program has this process's environment and an empty stdin.
// Waits until the program has ended.  Takes no lock.
ProcessResult RunProcess(const std::vector<std::string> &command);

// Returns the line of a kernel's source for `place`, the address after a call,
// for example "line 12".  addr2line of binutils finds the line.  If the call is
// in the emulator's headers, returns the line of the program that calls the
// header's code.
std::string LineInSource(const void *place);

}  // namespace mps_emulator::msl

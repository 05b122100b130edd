#include "msl/process.h"

#include <dlfcn.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace mps_emulator::msl {

namespace {

// Quotes a word for a shell.
std::string Quoted(const std::string &word) {
  std::string text = "'";
  for (char c : word)
    text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

ProcessResult RunProcess(const std::vector<std::string> &command) {
  ProcessResult result;
  std::string line = "exec";
  for (const std::string &word : command) line += " " + Quoted(word);
  FILE *pipe = popen((line + " 2>&1 </dev/null").c_str(), "re");
  if (pipe == nullptr) {
    result.output = command[0] + ": " + strerror(errno);
    return result;
  }
  char chunk[4096];
  while (size_t size = fread(chunk, 1, sizeof(chunk), pipe))
    result.output.append(chunk, size);
  int status = pclose(pipe);
  if (status < 0)
    result.output += std::string("\npclose: ") + strerror(errno) +
                     " (does this process ignore SIGCHLD?)";
  else if (WIFEXITED(status))
    result.status = WEXITSTATUS(status);
  else
    result.output += "\nended by signal " + std::to_string(WTERMSIG(status));
  return result;
}

std::string LineInSource(const void *place) {
  Dl_info info;
  if (dladdr(place, &info) == 0 || info.dli_fname == nullptr) return "?";
  std::ostringstream offset;
  offset << std::hex
         << static_cast<const char *>(place) -
                static_cast<const char *>(info.dli_fbase) - 1;
  ProcessResult result =
      RunProcess({"addr2line", "-i", "-e", info.dli_fname, offset.str()});
  std::istringstream lines(result.output);
  std::string line;
  while (std::getline(lines, line)) {
    size_t colon = line.rfind(':');
    if (colon == std::string::npos) continue;
    if (line.find("/implementation/") != std::string::npos) continue;
    return "line " + std::to_string(atoi(line.c_str() + colon + 1));
  }
  return "an unknown line (is addr2line of binutils installed?)";
}

}  // namespace mps_emulator::msl

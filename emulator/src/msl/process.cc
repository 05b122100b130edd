#include "msl/process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

extern char **environ;

namespace mps_emulator::msl {

ProcessResult RunProcess(const std::vector<std::string> &command) {
  ProcessResult result;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    result.output = std::string("pipe: ") + strerror(errno);
    return result;
  }

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null",
                                   O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);

  std::vector<char *> arguments;
  for (const std::string &argument : command)
    arguments.push_back(const_cast<char *>(argument.c_str()));
  arguments.push_back(nullptr);

  pid_t child;
  int error = posix_spawnp(&child, arguments[0], &actions, nullptr,
                           arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    result.output = command[0] + ": " + strerror(error);
    return result;
  }

  char chunk[4096];
  for (;;) {
    ssize_t size = read(ends[0], chunk, sizeof(chunk));
    if (size > 0) {
      result.output.append(chunk, static_cast<size_t>(size));
    } else if (size == 0 || errno != EINTR) {
      break;
    }
  }
  close(ends[0]);

  int status = 0;
  pid_t ended;
  do {
    ended = waitpid(child, &status, 0);
  } while (ended < 0 && errno == EINTR);
  if (ended < 0) {
    result.output += "\nwaitpid: ";
    result.output += strerror(errno);
    result.output += " (does this process ignore SIGCHLD?)";
  } else if (WIFEXITED(status)) {
    result.status = WEXITSTATUS(status);
  } else if (WIFSIGNALED(status)) {
    result.output += "\nended by signal " + std::to_string(WTERMSIG(status));
  }
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

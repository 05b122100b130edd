// Plants a fault at one chosen change of a file, for test_faults.py.
//
// The processes that load this library and have the same FAULT_FILE together
// count their calls that change files.  Before call number FAULT_AT, the
// library kills all of these processes.  With FAULT_FULL, the library kills no
// process.  Instead, from call number FAULT_AT on, all calls that need space
// fail, as on a full disk.  FAULT_AT=0 plants no fault.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

// The content of FAULT_FILE, which all the processes map into their memory.
struct shared {
  atomic_int calls;
  atomic_int processes;
  pid_t ids[900];
};

static struct shared *state;
static int at, full;

__attribute__((constructor)) static void start(void) {
  const char *path = getenv("FAULT_FILE");
  int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  state = mmap(0, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  at = atoi(getenv("FAULT_AT"));
  full = getenv("FAULT_FULL") != 0;
  state->ids[atomic_fetch_add(&state->processes, 1) % 900] = getpid();
}

__attribute__((destructor)) static void end(void) {
  // Removes this process's id, because a later process may get the same id.
  for (int i = 0; state && i < 900; ++i)
    if (state->ids[i] == getpid()) state->ids[i] = 0;
}

// Counts a call; returns -1 if the call must fail for lack of space.
static int count(int needs_space) {
  if (!state) return 0;
  int number = atomic_fetch_add(&state->calls, 1) + 1;
  if (full) {
    if (!at || number < at || !needs_space) return 0;
    errno = ENOSPC;
    return -1;
  }
  if (number != at) return 0;
  pid_t self = getpid();
  for (int i = 0; i < state->processes && i < 900; ++i)
    if (state->ids[i] > 0 && state->ids[i] != self) kill(state->ids[i], SIGKILL);
  kill(self, SIGKILL);
  return 0;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRAP(result, name, space, parameters, arguments) \
  result name parameters {                               \
    if (count(space)) return -1;                         \
    return NEXT(name) arguments;                         \
  }

WRAP(int, rename, 0, (const char *a, const char *b), (a, b))
WRAP(int, renameat, 0, (int d, const char *a, int e, const char *b), (d, a, e, b))
WRAP(int, link, 1, (const char *a, const char *b), (a, b))
WRAP(int, symlink, 1, (const char *a, const char *b), (a, b))
WRAP(int, unlink, 0, (const char *a), (a))
WRAP(int, unlinkat, 0, (int d, const char *a, int f), (d, a, f))
WRAP(int, mkdir, 1, (const char *a, mode_t m), (a, m))
WRAP(int, rmdir, 0, (const char *a), (a))
WRAP(int, chmod, 0, (const char *a, mode_t m), (a, m))
WRAP(int, ftruncate64, 0, (int f, off64_t n), (f, n))
WRAP(ssize_t, pwrite64, 1, (int f, const void *b, size_t n, off64_t o), (f, b, n, o))

ssize_t write(int file, const void *bytes, size_t length) {
  // lseek() fails for a pipe or a terminal, so writes to these are not counted.
  if (file > 2 && lseek(file, 0, SEEK_CUR) >= 0 && count(1)) return -1;
  return NEXT(write)(file, bytes, length);
}

#define OPEN(name)                                            \
  int name(const char *path, int flags, ...) {                \
    va_list more;                                             \
    va_start(more, flags);                                    \
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0; \
    va_end(more);                                             \
    if (flags & (O_CREAT | O_TRUNC) && count(1)) return -1;   \
    return NEXT(name)(path, flags, mode);                     \
  }

OPEN(open)
OPEN(open64)

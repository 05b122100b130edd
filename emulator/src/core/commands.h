// Command buffers and command queues: the device's work, the time at which it
// runs, and the time at which its results become visible.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/memory.h"
#include "core/serial_queue.h"

namespace mps_emulator {

class CommandQueue;

// For the running command: device memory [begin, end) of its buffers that the
// host has written since the commit of the command buffer.
using HostWrites = std::vector<std::pair<const char *, const char *>>;
const HostWrites &HostWritesInFlight();

// For the running command: what it read and wrote, by addresses of device
// copies.  A kernel whose races are checked sets it.
std::optional<Accesses> &AccessesInFlight();

// One piece of work.
struct Command {
  std::string name;  // for messages, e.g. "kernel axpy"
  std::vector<BufferUse> uses;
  // Gets the device addresses of `uses`, in that order.
  std::function<void(char *const *device)> run;
  // Members of a JSON object from which a replay repeats the command, see
  // core/record.h.  Empty for a command that no replay can repeat.
  std::function<std::string()> describe = {};
  // The number of the encoder, and the encoders for whose fences it waited.
  uint64_t encoder = 0;
  std::set<uint64_t> after = {};
};

// MTLCommandBufferErrorTimeout, the code of a failure, and Metal's text for it.
inline constexpr int kTimeout = 2;
inline constexpr const char *kTimeoutText =
    "Caused GPU Timeout Error "
    "(00000002:kIOGPUCommandBufferCallbackErrorTimeout)";

// One MTLCommandBuffer.  As on a Mac only status(), and the functions that the
// queue calls, are thread-safe.
class CommandBuffer : public std::enable_shared_from_this<CommandBuffer> {
 public:
  // MTLCommandBufferStatus
  enum class Status {
    kNotEnqueued,
    kEnqueued,
    kCommitted,
    kScheduled,
    kCompleted,
    kError
  };
  using Handler = std::function<void()>;

  explicit CommandBuffer(CommandQueue *queue) : queue_(queue) {}
  ~CommandBuffer();

  Status status() const { return status_.load(std::memory_order_acquire); }
  bool committed() const { return status() >= Status::kCommitted; }
  bool ended() const { return status() >= Status::kCompleted; }

  // An encoder opens or closes.  Two open encoders, or an encoder after the
  // commit, end the program.  `kind` names the encoder for messages.
  void OpenEncoder(const char *kind);
  void CloseEncoder();

  void Encode(Command command);

  // A kernel will be encoded, see FailKernels().
  void NoteKernel();

  void Commit();

  // Waits until the commands have run, and publishes their results.
  void Wait();

  // Runs the commands encoded so far.  The caller holds the execution lock.
  void Run();

  // torch leaves its kernels' encoder open on its command buffer, until one of
  // torch's functions ends the encoder.  `kernel`: the last encoded kernel;
  // nullptr: torch ends the encoder.
  void SetCoalescing(const char *kernel) { coalescing_ = kernel; }

  // commandBufferWithUnretainedReferences made this command buffer.
  bool retains_references = true;

  void AddCompletedHandler(Handler handler);
  // torch's own handler, called if the device does not complete the commands.
  void SetFailedHandler(Handler handler) {
    failed_handler_ = std::move(handler);
  }

  std::string label;

 private:
  friend class CommandQueue;

  void RequireNotCommitted(const char *what) const;

  CommandQueue *const queue_;
  std::atomic<Status> status_{Status::kNotEnqueued};
  const char *open_encoder_ = nullptr;
  const char *coalescing_ = nullptr;
  // If the order of commands is checked: the host's bytes at the commit, and
  // what the program knew to have ended.
  HostSnapshot committed_contents_;
  std::optional<UsedBlocks::Order> known_at_commit_;
  std::deque<Command> commands_;
  std::vector<Handler> completed_handlers_;
  Handler failed_handler_;
  bool has_kernel_ = false;
  bool fails_ = false;
};

// The `n`-th command buffer that gets a kernel from now on, counted from 1,
// will fail: the device runs neither the kernel nor the later commands.
void FailKernels(int64_t n);

// One MTLCommandQueue.  Its committed command buffers run, in their order, when
// a thread waits for one of them.  A queue never runs by itself.
class CommandQueue {
 public:
  explicit CommandQueue(std::string label_ = {}) : label(std::move(label_)) {}

  // Runs the committed buffers up to `last` (nullptr: all).  Calls their
  // handlers, or appends them to `handlers` if that is not null.
  void Run(const CommandBuffer *last = nullptr,
           std::vector<CommandBuffer::Handler> *handlers = nullptr);

  // Makes the results of all commands that ran on this queue visible.
  void Publish();

  // False only if the queue got no command since the last Publish().
  bool has_work() const { return has_work_.load(std::memory_order_acquire); }
  void NoteWork() { has_work_.store(true, std::memory_order_release); }

  // A thread that runs commands or works on device copies holds this lock.
  static std::recursive_mutex &execution_lock();

  // The blocks in use.  The execution lock protects them.
  UsedBlocks &used() { return used_; }

  std::string label;

 private:
  friend class CommandBuffer;

  // Compares a command, which has run, with earlier ones.  `device`: the
  // addresses of its buffers.
  void CheckOrder(const Command &command, char *const *device);

  // Ends the program if a command of another encoder conflicts with this one on
  // a buffer that Metal does not track, and no fence orders the two.
  void CheckFences(const Command &command, const BufferUse &use,
                   const Accesses &accesses);

  struct Untracked {
    uint64_t encoder;
    Accesses accesses;
    std::string command;
  };
  std::map<uint64_t, std::vector<Untracked>>
      untracked_;     // by buffer; a wait empties the map
  std::mutex mutex_;  // protects committed_
  std::deque<std::shared_ptr<CommandBuffer>> committed_;  // and not run
  std::atomic<size_t> commands_left_{0};                  // encoded, not run
  UsedBlocks used_{&label};
  std::atomic<bool> has_work_{false};
};

}  // namespace mps_emulator

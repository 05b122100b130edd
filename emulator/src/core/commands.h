// Command buffers and command queues, which hold the device's work, run the
// work, and make its results visible to the host.
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

// Ranges [begin, end) of addresses in device copies.
using HostWrites = std::vector<std::pair<const char *, const char *>>;

// Returns the bytes that the host has written, after the commit, to the buffers
// of the running command.  The list is empty unless the order of commands is
// checked.
const HostWrites &HostWritesInFlight();

// What the running command has read and written, as addresses in device copies.
// nullopt unless the command is a kernel whose races are checked.
std::optional<Accesses> &AccessesInFlight();

// A piece of work, such as a kernel, a blit or a copy.
struct Command {
  std::string name;  // for messages, e.g. "kernel axpy"
  std::vector<BufferUse> uses;
  // Runs the command.  `device`: the addresses of the device copies of `uses`,
  // in the order of `uses`.
  std::function<void(char *const *device)> run;
  // Returns members of a JSON object from which a replay repeats the command,
  // see core/record.h.  Null for a command that no replay can repeat.
  std::function<std::string()> describe = {};
  // encoder: the number of the encoder that encoded the command.  after: the
  // numbers of the encoders that precede that encoder because of fences.
  uint64_t encoder = 0;
  std::set<uint64_t> after = {};
};

// The error code and the text with which Metal reports a GPU timeout.  The code
// is MTLCommandBufferErrorTimeout.
inline constexpr int kTimeout = 2;
inline constexpr const char *kTimeoutText =
    "Caused GPU Timeout Error "
    "(00000002:kIOGPUCommandBufferCallbackErrorTimeout)";

// One MTLCommandBuffer.  As on a Mac, only one thread at a time may use a
// command buffer.  The exceptions are status() and the functions that
// CommandQueue calls, which may run on any thread.
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

  // Open and close an encoder.  OpenEncoder() ends the program if another
  // encoder is open, or if the command buffer is committed.  `kind` names the
  // encoder for messages.
  void OpenEncoder(const char *kind);
  void CloseEncoder();

  void Encode(Command command);

  // Notes that a kernel will be encoded, see FailKernels().
  void NoteKernel();

  void Commit();

  // Waits until the commands have run, and publishes their results.
  void Wait();

  // Runs the commands encoded so far.  The caller must hold the execution lock.
  void Run();

  // torch encodes its kernels with an encoder that stays open on torch's
  // command buffer, until one of torch's functions ends the encoder.  `kernel`
  // names the last kernel that torch encoded.  A caller passes nullptr when
  // torch uses or ends the encoder.
  void SetCoalescing(const char *kernel) { coalescing_ = kernel; }

  // False for a command buffer of commandBufferWithUnretainedReferences.
  bool retains_references = true;

  void AddCompletedHandler(Handler handler);
  // When the commands began and ended to run, in seconds of a clock; 0 before
  // all commands have run.
  double start_time() const { return ended() ? start_time_ : 0; }
  double end_time() const { return ended() ? end_time_ : 0; }

  // Sets torch's own handler, which is called if the command buffer fails.
  void SetFailedHandler(Handler handler) {
    failed_handler_ = std::move(handler);
  }

  std::string label;

 private:
  friend class CommandQueue;

  void RequireNotCommitted(const char *what) const;
  // Runs a command.  `written`: what the host has written since the commit.
  void RunCommand(const Command &command,
                  const std::vector<HostSnapshot::Write> &written);
  // Prepares the device copies of a command's buffers; returns their addresses.
  std::vector<char *> BeginUses(
      const Command &command, const std::vector<HostSnapshot::Write> &written);

  CommandQueue *const queue_;
  std::atomic<Status> status_{Status::kNotEnqueued};
  const char *open_encoder_ = nullptr;
  const char *coalescing_ = nullptr;
  // These members are set only if the order of commands is checked.
  // committed_contents_ has the host's bytes at the commit.  ended_at_commit_
  // has the uses of which the program knew, at the commit, that they had ended.
  HostSnapshot committed_contents_;
  std::optional<UsedBlocks::VectorClock> ended_at_commit_;
  std::deque<Command> commands_;
  std::vector<Handler> completed_handlers_;
  Handler failed_handler_;
  // 0: no command has run.  Some commands may run before the commit.
  double start_time_ = 0;
  double end_time_ = 0;
  bool has_kernel_ = false;
  bool fails_ = false;
};

// Makes one command buffer fail: the `n`-th, counted from 1, that gets its
// first kernel after this call.  As soon as that kernel is encoded, the device
// runs no more commands of the command buffer.
void FailKernels(int64_t n);

// One MTLCommandQueue.  When a thread waits for a committed command buffer,
// that thread runs the queue's committed command buffers, in the order of their
// commits.  A queue never runs by itself.
class CommandQueue {
 public:
  explicit CommandQueue(std::string label_ = {}) : label(std::move(label_)) {}

  // Runs the committed command buffers up to `last`, or all if `last` is
  // nullptr.  Calls their completed handlers, or appends the handlers to
  // `handlers` if that is not nullptr.
  void Run(const CommandBuffer *last = nullptr,
           std::vector<CommandBuffer::Handler> *handlers = nullptr);

  // Makes the results of all commands that have run on this queue visible to
  // the host.
  void Publish();

  // Returns false only if the queue got no command since the last Publish().
  bool has_work() const { return has_work_.load(std::memory_order_acquire); }
  void NoteWork() { has_work_.store(true, std::memory_order_release); }

  // A thread must hold this lock while it runs commands or works on device
  // copies.
  static std::recursive_mutex &execution_lock();

  // The blocks that the queue's commands use.  The execution lock protects
  // these blocks.
  UsedBlocks &used() { return used_; }

  std::string label;

 private:
  friend class CommandBuffer;

  // Ends the program if an earlier command conflicts with `command`, which has
  // run, and nothing orders the two.  `device`: the addresses of the device
  // copies of the command's buffers.
  void CheckOrder(const Command &command, char *const *device);

  // Ends the program if an earlier command of another encoder conflicts with
  // `command` on a buffer that Metal does not track, and no fence orders the
  // two.
  void CheckFences(const Command &command, const BufferUse &use,
                   const Accesses &accesses);

  struct Untracked {
    uint64_t encoder;
    Accesses accesses;
    std::string command;
  };
  std::map<uint64_t, std::vector<Untracked>>
      untracked_;     // by the buffer's id; a wait empties the map
  std::mutex mutex_;  // protects committed_
  // The committed command buffers that have not run.
  std::deque<std::shared_ptr<CommandBuffer>> committed_;
  std::atomic<size_t> commands_left_{0};  // encoded and not run
  UsedBlocks used_{&label};
  std::atomic<bool> has_work_{false};
};

}  // namespace mps_emulator

// Command buffers and command queues: what was given to the device, when it
// runs and when its results become visible.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/memory.h"
#include "core/serial_queue.h"

namespace mps_emulator {

class CommandQueue;

// While a command runs: device memory [begin, end) of its buffers that the host
// has written since the command buffer was committed.
using HostWrites = std::vector<std::pair<const char *, const char *>>;
const HostWrites &HostWritesInFlight();

// One piece of work.
struct Command {
  std::string name;  // for messages, e.g. "kernel axpy"
  std::vector<BufferUse> uses;
  // Gets the device addresses of `uses`, in that order.
  std::function<void(char *const *device)> run;
  // Members of a JSON object from which it can be done again, for a recording
  // (core/record.h).  None: nobody can.
  std::function<std::string()> describe = {};
};

// One MTLCommandBuffer.  Not thread-safe, as on a Mac, but for status() and
// the functions that its queue calls.
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

  CommandQueue *queue() const { return queue_; }
  Status status() const { return status_.load(std::memory_order_acquire); }
  bool committed() const { return status() >= Status::kCommitted; }

  // An encoder opens and closes.  Two at a time, or one after the commit, end
  // the program.  `kind` names the encoder for messages.
  void OpenEncoder(const char *kind);
  void CloseEncoder();
  bool encoder_open() const { return open_encoder_ != nullptr; }

  void Encode(Command command);

  void Enqueue();
  void Commit();

  // Returns when the commands have run, and publishes their results.
  void Wait();

  // As Wait() without publishing: status polling makes the device progress.
  void Poll();

  // Runs what has been encoded so far.  The execution lock is held.
  void Run();

  // torch leaves the encoder of its kernels open on its command buffer, until
  // one of torch's own functions ends the encoder.  `kernel` names the kernel
  // that was encoded last; nullptr: the encoder is ended.
  void SetCoalescing(const char *kernel) { coalescing_ = kernel; }

  // Made by commandBufferWithUnretainedReferences.
  bool retains_references = true;

  void AddScheduledHandler(Handler handler);
  void AddCompletedHandler(Handler handler);

  std::string label;

  // Seconds on a steady clock, 0 until then.
  double start_time() const { return start_time_; }
  double end_time() const { return end_time_; }

 private:
  friend class CommandQueue;

  void RequireNotCommitted(const char *what) const;

  CommandQueue *const queue_;
  std::atomic<Status> status_{Status::kNotEnqueued};
  const char *open_encoder_ = nullptr;
  const char *coalescing_ = nullptr;
  HostSnapshot committed_contents_;  // where the order of commands is checked
  std::deque<Command> commands_;
  std::vector<Handler> scheduled_handlers_;
  std::vector<Handler> completed_handlers_;  // called after those
  double start_time_ = 0;
  double end_time_ = 0;
};

// One MTLCommandQueue.  Its committed command buffers run, in order, when
// somebody waits for one of them; a queue never runs by itself.
class CommandQueue {
 public:
  explicit CommandQueue(std::string label_ = {}) : label(std::move(label_)) {}

  // Runs the committed buffers, up to `last` (nullptr: all of them).  Their
  // handlers are called, or appended to `handlers` where that is given.
  void Run(const CommandBuffer *last = nullptr,
           std::vector<CommandBuffer::Handler> *handlers = nullptr);

  // Makes the results of everything that ran on this queue visible.
  void Publish();

  // False only if nothing was given to this queue since the last Publish().
  bool has_work() const { return has_work_.load(std::memory_order_acquire); }
  void NoteWork() { has_work_.store(true, std::memory_order_release); }

  // The lock that whoever runs commands or works on device copies holds.
  static std::recursive_mutex &execution_lock();

  // The blocks in use.  The execution lock protects them.
  UsedBlocks &used() { return used_; }

  std::string label;

 private:
  friend class CommandBuffer;

  std::mutex mutex_;  // protects enqueued_
  std::deque<std::shared_ptr<CommandBuffer>> enqueued_;
  std::atomic<size_t> commands_left_{0};  // encoded, not run
  UsedBlocks used_{&label};
  std::atomic<bool> has_work_{false};
};

}  // namespace mps_emulator

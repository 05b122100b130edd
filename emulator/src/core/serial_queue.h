// A serial queue with the semantics of libdispatch, for dispatch/dispatch.h.
// The queue also checks that only one thread at a time uses torch's stream.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

namespace mps_emulator {

// Returns the number of the calling thread, which is never 0.
uint32_t ThisThread();

class SerialQueue {
 public:
  explicit SerialQueue(std::string label) : label_(std::move(label)) {}

  const std::string &label() const { return label_; }

  // Waits for all work that was queued before, runs `work`, and returns.  Ends
  // the program if the calling thread already runs work of this queue, because
  // on a Mac the thread would wait for itself for ever.  Also ends the program
  // if `work` throws, because no exception may cross libdispatch.
  template <typename Work>
  void Sync(Work &&work) {
    Enter();
    try {
      work();
    } catch (...) {
      DieOfException();
    }
    Leave();
  }

  // While a Turn exists, the calling thread is in the queue.  A Turn replaces
  // Sync() for work that may throw.
  class Turn {
   public:
    explicit Turn(SerialQueue *queue) : queue_(queue) { queue_->Enter(); }
    ~Turn() { queue_->Leave(); }
    Turn(const Turn &) = delete;

   private:
    SerialQueue *queue_;
  };

  // Enter() waits for the calling thread's turn.  Leave() ends the turn.
  void Enter();
  void Leave();

  bool RunsOnThisThread() const {
    return owner_.load(std::memory_order_relaxed) == ThisThread();
  }

  // While a Bypass exists, the calling thread may use the object that the queue
  // protects, although the thread is not in the queue.  For example, torch's
  // MPSStream::synchronize() commits and drops the stream's command buffer, and
  // does not enter the stream's queue.  The program ends if another thread is
  // in the queue at the same time, or has a Bypass too.  `what` is a string
  // literal that names the use.
  class Bypass {
   public:
    Bypass(SerialQueue *queue, const char *what);
    ~Bypass();
    Bypass(const Bypass &) = delete;

   private:
    // nullptr if the thread is in the queue, or already had a Bypass.
    SerialQueue *queue_;
  };

 private:
  [[noreturn]] void DieOfException() const;
  [[noreturn]] void DieOfBypass(const char *what, const char *other) const;
  void CheckNoBypass() const;

  const std::string label_;
  std::mutex mutex_;
  std::condition_variable turn_changed_;
  std::atomic<uint32_t> owner_{0};  // the thread that is in the queue; 0: none
  std::atomic<uint32_t> bypasser_{0};
  std::atomic<const char *> bypass_{nullptr};  // what bypasser_ does
  // A thread that enters takes a ticket, and waits until the number of the
  // ticket is served.
  uint64_t next_ticket_ = 0;
  uint64_t served_ = 0;
};

}  // namespace mps_emulator

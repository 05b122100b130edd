// A serial queue with libdispatch's semantics, behind dispatch/dispatch.h, and
// the check that torch's stream is used by one thread at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

namespace mps_emulator {

// A number for the calling thread, never 0.
uint32_t ThisThread();

class SerialQueue {
 public:
  explicit SerialQueue(std::string label) : label_(std::move(label)) {}

  const std::string &label() const { return label_; }

  // Runs `work` after all work queued before, and returns after `work`.  Ends
  // the program if the calling thread runs work of this queue (on a Mac the
  // thread waits for itself for ever), or if `work` throws (an exception must
  // not cross libdispatch).
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

  // During its lifetime the calling thread is in the queue: Sync() for work
  // that may throw.
  class Turn {
   public:
    explicit Turn(SerialQueue *queue) : queue_(queue) { queue_->Enter(); }
    ~Turn() { queue_->Leave(); }
    Turn(const Turn &) = delete;

   private:
    SerialQueue *queue_;
  };

  // Enter() waits for the calling thread's turn, Leave() ends it.
  void Enter();
  void Leave();

  bool RunsOnThisThread() const {
    return owner_.load(std::memory_order_relaxed) == ThisThread();
  }

  // A use of the protected object by a thread outside the queue.  For example
  // torch's MPSStream::synchronize() commits and drops the stream's command
  // buffer without entering the stream's queue.  The program ends if another
  // thread is in the queue, or makes such a use, at the same time.  `what` is a
  // string literal that names the use.
  class Bypass {
   public:
    Bypass(SerialQueue *queue, const char *what);
    ~Bypass();
    Bypass(const Bypass &) = delete;

   private:
    SerialQueue *queue_;  // nullptr: the thread is in the queue, or nested
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
  std::atomic<const char *> bypass_{nullptr};  // the use of that thread
  // A thread that enters draws a ticket and waits for its number.
  uint64_t next_ticket_ = 0;
  uint64_t served_ = 0;
};

}  // namespace mps_emulator

#include "core/serial_queue.h"

#include <exception>

#include "core/fatal.h"

namespace mps_emulator {

uint32_t ThisThread() {
  static std::atomic<uint32_t> last{0};
  thread_local uint32_t mine = ++last;
  return mine;
}

void SerialQueue::Enter() {
  if (RunsOnThisThread())
    Fatal(
        "dispatch_sync on queue \"%s\" from work that runs on that queue: on a "
        "Mac this work waits for itself for ever.  Call the block directly",
        label_.c_str());
  std::unique_lock<std::mutex> lock(mutex_);
  uint64_t ticket = next_ticket_++;
  turn_changed_.wait(lock, [&] { return served_ == ticket; });
  owner_.store(ThisThread());
  CheckNoBypass();
}

void SerialQueue::Leave() {
  bool others_wait;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    owner_.store(0);
    others_wait = ++served_ != next_ticket_;
  }
  if (others_wait) turn_changed_.notify_all();
}

void SerialQueue::CheckNoBypass() const {
  uint32_t bypasser = bypasser_.load();
  if (bypasser == 0 || bypasser == ThisThread()) return;
  const char *bypass = bypass_.load();
  DieOfBypass(bypass ? bypass : "unprotected use",
              "this thread started work in that queue");
}

void SerialQueue::DieOfBypass(const char *what, const char *other) const {
  Fatal(
      "%s ran outside the dispatch queue \"%s\" on one thread while %s: "
      "torch's stream is not thread-safe outside its queue, and a Mac corrupts "
      "the stream's command buffer.  Call the function inside "
      "dispatch_sync(torch::mps::get_dispatch_queue(), ...)",
      what, label_.c_str(), other);
}

SerialQueue::Bypass::Bypass(SerialQueue *queue, const char *what)
    : queue_(nullptr) {
  if (queue->RunsOnThisThread()) return;
  uint32_t nobody = 0;
  if (!queue->bypasser_.compare_exchange_strong(nobody, ThisThread())) {
    if (nobody == ThisThread()) return;
    queue->DieOfBypass(what, "another thread did the same");
  }
  queue_ = queue;
  queue->bypass_.store(what);
  if (queue->owner_.load() != 0)
    queue->DieOfBypass(what, "another thread was at work in that queue");
}

SerialQueue::Bypass::~Bypass() {
  if (!queue_) return;
  queue_->bypass_.store(nullptr);
  queue_->bypasser_.store(0);
}

void SerialQueue::DieOfException() const {
  std::string what = "of an unknown type";
  try {
    throw;
  } catch (const std::exception &exception) {
    what = exception.what();
  } catch (...) {
  }
  Fatal(
      "a C++ exception left a block given to queue \"%s\" (%s): on a Mac the "
      "exception ends the program; catch the exception in the block and "
      "rethrow it outside of the block",
      label_.c_str(), what.c_str());
}

}  // namespace mps_emulator

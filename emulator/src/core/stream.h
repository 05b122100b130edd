// torch's streams on the device, for the torch operators.
//
// The behaviour is that of torch on a Mac, read from its macOS libraries;
// core/release.h has the differences between releases.
//
// - torch::mps::synchronize() ends the coalesced encoder, commits the stream's
//   command buffer, waits for the buffer and drops it.  Without a command
//   buffer the function does nothing.
// - torch::mps::commit() ends the coalesced encoder and calls
//   commitAndContinue on the stream's MPSCommandBuffer: the object stays valid
//   for encoding.
// - torch::mps::get_command_buffer() ends the coalesced encoder, and creates
//   the command buffer if there is none.
// - aten operators encode inside dispatch_sync on the queue.  Blocking copies
//   between host and device, like item(), wait inside the queue; non-blocking
//   copies commit.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/commands.h"
#include "core/release.h"
#include "core/serial_queue.h"

namespace mps_emulator {

// Each thread has a current stream, to which the functions below apply.
int CurrentStream();
void SetCurrentStream(int id);

// During its lifetime another stream is the thread's current one.
class OnStream {
 public:
  explicit OnStream(int id) : before_(CurrentStream()) { SetCurrentStream(id); }
  ~OnStream() { SetCurrentStream(before_); }
  OnStream(const OnStream &) = delete;

 private:
  int before_;
};

// The next stream of the pool, in turn.
int StreamFromPool();

// Commits and waits inside the queue of each stream.  The pool has streams from
// the first call of StreamFromPool() on.
void SynchronizeAllStreams();

// The queue that guards the stream.
SerialQueue &StreamDispatchQueue();

// Whether the functions of the stream must be called inside its queue: from
// torch 2.15 on, and with MPS_EMULATOR_ASSERT_QUEUE=1.
bool QueueIsAsserted();
// The same for the stream's commandEncoder(), with that switch alone.
bool EncoderIsAsserted();

// The queue of the stream's command buffers.
CommandQueue &StreamCommandQueue();

// The stream's open command buffer, or nullptr.  The stream
// (metal/mps_stream.mm), which owns the Metal object, sets it.
const std::shared_ptr<CommandBuffer> &OpenCommandBuffer();
void SetOpenCommandBuffer(std::shared_ptr<CommandBuffer> buffer);

// The parts of at::mps::MPSStream that the emulator needs, implemented in
// metal/mps_stream.mm.
void SynchronizeStream();
void CommitStream();
void *StreamCommandBuffer();  // an MPSCommandBuffer *
void EndStreamCoalescing();

// During its lifetime the calling thread may work on device copies, like an
// aten operator's command: the thread is in the stream's queue and holds the
// execution lock, and all commands of the stream have run.  Scopes may be
// nested.  `name` is the name of the operator, for messages.
class OperatorScope {
 public:
  explicit OperatorScope(const char *name);
  ~OperatorScope();
  OperatorScope(const OperatorScope &) = delete;

  // On a Mac torch's own encoder encodes the operator's kernel and stays open.
  // `name` must live for ever.
  static void LeaveEncoderOpen(const char *name);

  // The device copy of a live buffer, of which the operator uses `bytes`.
  static char *Use(Buffer *buffer, bool writes, bool overwrites_all = false,
                   ByteRange bytes = kAllBytes) {
    return StreamCommandQueue().used().UseNow(buffer, writes, overwrites_all,
                                              bytes);
  }

 private:
  // For the outermost scope of a thread.
  std::optional<SerialQueue::Turn> turn_;
  std::unique_lock<std::recursive_mutex> execution_;
  // The handlers of the command buffers that ran at the begin of the scope. The
  // scope calls them outside of the queue, because a Mac runs them on a thread
  // of Metal.
  std::vector<CommandBuffer::Handler> handlers_;
};

// The name of the operator in whose scope the calling thread is, or for which
// it runs earlier work; "" if there is none.
const char *CurrentOperator();

// Commits and waits inside the stream's queue, like a blocking copy.  The
// calling thread must not be in an OperatorScope.  `for_operator` names the
// operator whose time includes the wait.
void SynchronizeInQueue(const char *for_operator = "");

// Commits inside the stream's queue.
void CommitInQueue();

// Encodes `command` on the stream.  The calling thread must not
// be in the stream's queue.
void EncodeOnStream(Command command);

}  // namespace mps_emulator

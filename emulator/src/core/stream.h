// torch's streams on the emulated device.
//
// The streams behave as torch's streams do on a Mac.  The behaviour was read
// from torch's macOS libraries.  core/release.h has the differences between
// releases.  torch encodes its kernels with one encoder, the coalesced encoder,
// which stays open between kernels.
//
// - torch::mps::synchronize() ends the coalesced encoder, commits the stream's
//   command buffer, waits for the command buffer and drops it.  If there is no
//   command buffer, the function does nothing.
// - torch::mps::commit() ends the coalesced encoder and calls commitAndContinue
//   on the stream's MPSCommandBuffer.  The MPSCommandBuffer stays valid for
//   encoding.
// - torch::mps::get_command_buffer() ends the coalesced encoder.  If there is
//   no command buffer, the function creates one.
// - aten operators encode inside dispatch_sync on the stream's queue.  A
//   blocking copy between host and device, such as item(), waits inside the
//   queue.  A non-blocking copy commits.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/commands.h"
#include "core/release.h"
#include "core/serial_queue.h"

namespace mps_emulator {

// Each thread has a current stream.  The functions below apply to that stream.
int CurrentStream();
void SetCurrentStream(int id);

// While an OnStream exists, stream `id` is the calling thread's current stream.
class OnStream {
 public:
  explicit OnStream(int id) : before_(CurrentStream()) { SetCurrentStream(id); }
  ~OnStream() { SetCurrentStream(before_); }
  OnStream(const OnStream &) = delete;

 private:
  int before_;
};

// Returns the id of the next stream of the pool; the pool's streams take turns.
int StreamFromPool();

// Commits and waits for the work of every stream, inside the stream's queue.
// The pool's streams are included from the first call of StreamFromPool() on.
void SynchronizeAllStreams();

// The dispatch queue that protects the current stream.
SerialQueue &StreamDispatchQueue();

// Returns whether the stream's functions must be called inside the stream's
// queue: from torch 2.15 on, and with any torch if MPS_EMULATOR_ASSERT_QUEUE=1.
bool QueueIsAsserted();
// Whether the stream's commandEncoder(), too, must be called inside the queue:
// only with MPS_EMULATOR_ASSERT_QUEUE=1.
bool EncoderIsAsserted();

// The command queue to which the current stream commits.
CommandQueue &StreamCommandQueue();

// The stream's open command buffer, or nullptr.  metal/mps_stream.mm sets the
// command buffer, because the MPSStream in that file owns the Objective-C
// object of the command buffer.
const std::shared_ptr<CommandBuffer> &OpenCommandBuffer();
void SetOpenCommandBuffer(std::shared_ptr<CommandBuffer> buffer);

// The parts of at::mps::MPSStream that the emulator needs, implemented in
// metal/mps_stream.mm.
void SynchronizeStream();
void CommitStream();
void *StreamCommandBuffer();  // an MPSCommandBuffer *
void EndStreamCoalescing();

// While an OperatorScope exists, the calling thread runs an aten operator, and
// may work on device copies.  The thread is in the stream's queue and holds the
// execution lock, and all earlier commands of the stream have run.  Scopes may
// be nested.  `name` is the name of the operator, for messages.
class OperatorScope {
 public:
  explicit OperatorScope(const char *name);
  ~OperatorScope();
  OperatorScope(const OperatorScope &) = delete;

  // On a Mac, torch's own encoder encodes the operator's kernel and stays open.
  // This function notes that the encoder would be open.  `name` must never be
  // freed.
  static void LeaveEncoderOpen(const char *name);

  // Returns the device copy of a live buffer.  `bytes`: the bytes that the
  // operator uses.
  static char *Use(Buffer *buffer, bool writes, bool overwrites_all = false,
                   ByteRange bytes = kAllBytes) {
    return StreamCommandQueue().used().UseNow(buffer, writes, overwrites_all,
                                              bytes);
  }

 private:
  // Only the outermost scope of a thread sets the following members.
  std::optional<SerialQueue::Turn> turn_;
  std::unique_lock<std::recursive_mutex> execution_;
  // The completed handlers of the command buffers that ran at the beginning of
  // the scope.  The scope calls these handlers outside of the queue, because a
  // Mac runs handlers on a thread of Metal.
  std::vector<CommandBuffer::Handler> handlers_;
};

// Returns the name of the operator in whose scope the calling thread is, or for
// which the thread waits in SynchronizeInQueue(); "" if there is none.
const char *CurrentOperator();

// Commits and waits inside the stream's queue, as a blocking copy does.  The
// calling thread must not be in an OperatorScope.  `for_operator` names the
// operator whose time includes the wait.
void SynchronizeInQueue(const char *for_operator = "");

// Commits inside the stream's queue.
void CommitInQueue();

// Encodes `command` on the stream.  The calling thread must not be in the
// stream's queue.
void EncodeOnStream(Command command);

}  // namespace mps_emulator

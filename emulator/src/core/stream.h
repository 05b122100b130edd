// torch's one stream on the device, as the torch operators see it.
//
// What torch 2.13 does on a Mac (read from its macOS library), and so here:
//
// - torch::mps::synchronize() ends the coalesced encoder, commits the stream's
//   command buffer, waits for it and drops it.  With no command buffer it does
//   nothing.  It does not enter the stream's dispatch queue.
// - torch::mps::commit() ends the coalesced encoder and calls
//   commitAndContinue on the stream's MPSCommandBuffer: the object stays valid
//   for encoding.  It does not enter the queue either.
// - torch::mps::get_command_buffer() ends the coalesced encoder and creates
//   the command buffer if there is none; no queue.
// - aten operators encode inside dispatch_sync on the queue.  Copies between
//   host and device wait inside it, unless they are non_blocking: those commit.
//   item() is such a blocking copy.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/commands.h"
#include "core/serial_queue.h"

namespace mps_emulator {

// The queue that torch::mps::get_dispatch_queue() returns.
SerialQueue &StreamDispatchQueue();
void *StreamDispatchQueueHandle();  // the same as a dispatch_queue_t

// Where the stream's command buffers go.
CommandQueue &StreamCommandQueue();

// The stream's command buffer that is being encoded, or nullptr.  The stream
// (metal/mps_stream.mm), which owns the Metal object, sets it.
const std::shared_ptr<CommandBuffer> &OpenCommandBuffer();
void SetOpenCommandBuffer(std::shared_ptr<CommandBuffer> buffer);

// The parts of at::mps::MPSStream that the rest of the emulator needs;
// implemented in metal/mps_stream.mm.
void SynchronizeStream();
void CommitStream();
void *StreamCommandBuffer();  // an MPSCommandBuffer *
void EndStreamCoalescing();

// While one lives, the calling thread may work on device copies, as an aten
// operator's command does: it is in the stream's queue, everything that was
// encoded on the stream has run, and the execution lock is held.  May be
// nested.  `name` is the operator's, for messages.
class OperatorScope {
 public:
  explicit OperatorScope(const char *name);
  ~OperatorScope();
  OperatorScope(const OperatorScope &) = delete;

  // On a Mac the operator's kernel is encoded with torch's own encoder, which
  // stays open.  `name` must outlive everything.
  static void LeaveEncoderOpen(const char *name);

  // The device copy of a live buffer.
  static char *Use(Buffer *buffer, bool writes, bool overwrites_all = false) {
    return StreamCommandQueue().used().UseNow(buffer, writes, overwrites_all);
  }

 private:
  // Of the outermost scope of a thread.
  std::optional<SerialQueue::Turn> turn_;
  std::unique_lock<std::recursive_mutex> execution_;
  // Of command buffers that had to run first; called when the queue is left,
  // since on a Mac they run on a thread of Metal's.
  std::vector<CommandBuffer::Handler> handlers_;
};

// The name of the operator in whose scope the calling thread is, or that it
// runs work for which has to come first; "" if there is none.
const char *CurrentOperator();

// Commits and waits inside the stream's queue, as a blocking copy does.  The
// calling thread must not be in an OperatorScope.  `for_operator` names the
// operator whose time the wait is a part of.
void SynchronizeInQueue(const char *for_operator = "");

// Commits inside the stream's queue.
void CommitInQueue();

// Encodes `command` on the stream, to run later.  The calling thread must not
// be in the stream's queue.
void EncodeOnStream(Command command);

}  // namespace mps_emulator

#include "core/stream.h"

#include "core/fatal.h"
#include "core/record.h"
#include "metal/dispatch_queue.h"

namespace mps_emulator {

namespace {

thread_local unsigned operator_depth = 0;
// The name of the outermost scope.
thread_local const char *operator_name = "";

// The stream's queue protects it.
std::shared_ptr<CommandBuffer> &Open() {
  static auto *open = new std::shared_ptr<CommandBuffer>;
  return *open;
}

}  // namespace

DispatchQueue &StreamDispatchQueueObject() {
  static auto *queue = new DispatchQueue("metal gpu stream");
  return *queue;
}

SerialQueue &StreamDispatchQueue() { return StreamDispatchQueueObject(); }

void *StreamDispatchQueueHandle() {
  return ToHandle(&StreamDispatchQueueObject());
}

CommandQueue &StreamCommandQueue() {
  static auto *queue = new CommandQueue("torch's stream");
  return *queue;
}

const std::shared_ptr<CommandBuffer> &OpenCommandBuffer() { return Open(); }

void SetOpenCommandBuffer(std::shared_ptr<CommandBuffer> buffer) {
  Open() = std::move(buffer);
}

OperatorScope::OperatorScope(const char *name) {
  if (operator_depth) {
    ++operator_depth;
    return;
  }
  if (StreamDispatchQueue().RunsOnThisThread())
    Fatal(
        "%s on an mps tensor inside dispatch_sync on torch's dispatch queue: "
        "the operator enters the same queue, so a Mac waits for ever.  Call "
        "the operator outside of the queue",
        name);
  operator_name = name;
  turn_.emplace(&StreamDispatchQueue());
  EndStreamCoalescing();
  CommandQueue &commands = StreamCommandQueue();
  commands.NoteWork();
  commands.Run(/*last=*/nullptr, &handlers_);
  execution_ = std::unique_lock(CommandQueue::execution_lock());
  UsedBlocks::BeginBatch();
  commands.used().SetCommand(name);
  if (CommandBuffer *open = Open().get()) {
    // A Mac's operator would open its own encoder here.
    open->OpenEncoder(name);
    open->CloseEncoder();
    open->Run();
  }
  ++operator_depth;
}

void OperatorScope::LeaveEncoderOpen(const char *name) {
  if (CommandBuffer *open = Open().get()) open->SetCoalescing(name);
}

OperatorScope::~OperatorScope() {
  if (--operator_depth) return;
  if (IsRecording()) RecordEvent("operator", operator_name);
  operator_name = "";
  execution_.unlock();
  turn_.reset();
  for (CommandBuffer::Handler &handler : handlers_) handler();
}

const char *CurrentOperator() { return operator_name; }

void SynchronizeInQueue(const char *for_operator) {
  SerialQueue::Turn turn(&StreamDispatchQueue());
  operator_name = for_operator;
  SynchronizeStream();
  operator_name = "";
}

void CommitInQueue() {
  SerialQueue::Turn turn(&StreamDispatchQueue());
  CommitStream();
}

void EncodeOnStream(Command command) {
  SerialQueue::Turn turn(&StreamDispatchQueue());
  StreamCommandBuffer();
  Open()->OpenEncoder(command.name.c_str());
  Open()->Encode(std::move(command));
  Open()->CloseEncoder();
}

}  // namespace mps_emulator

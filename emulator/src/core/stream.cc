#include "core/stream.h"

#include <array>
#include <atomic>

#include "core/environment.h"
#include "core/fatal.h"
#include "metal/dispatch_queue.h"

namespace mps_emulator {

namespace {

thread_local unsigned operator_depth = 0;
// The value of CurrentOperator().
thread_local const char *operator_name = "";

thread_local int current_stream = 0;

// Counts the calls of StreamFromPool().
std::atomic<unsigned> taken_from_pool{0};

struct Stream {
  DispatchQueue queue{"metal gpu stream"};
  CommandQueue commands{"torch's stream"};
  // The open command buffer.  `queue` protects it.
  std::shared_ptr<CommandBuffer> open;
};

Stream &Current() {
  static auto *streams = new std::array<Stream, kStreams>;
  return (*streams)[static_cast<size_t>(current_stream)];
}

std::shared_ptr<CommandBuffer> &Open() { return Current().open; }

}  // namespace

int CurrentStream() { return current_stream; }

void SetCurrentStream(int id) { current_stream = id; }

int StreamFromPool() {
  if (kStreams == 1) return 0;
  return 1 + static_cast<int>(taken_from_pool++ % (kStreams - 1));
}

void SynchronizeAllStreams() {
  int count = taken_from_pool ? kStreams : 1;
  for (int id = 0; id < count; ++id) {
    OnStream on(id);
    SynchronizeInQueue();
  }
}

DispatchQueue &StreamDispatchQueueObject() { return Current().queue; }

SerialQueue &StreamDispatchQueue() { return StreamDispatchQueueObject(); }

bool EncoderIsAsserted() {
  static const bool asserted = EnvironmentFlag("MPS_EMULATOR_ASSERT_QUEUE");
  return asserted;
}

bool QueueIsAsserted() { return kFunctionsKnowQueues || EncoderIsAsserted(); }

CommandQueue &StreamCommandQueue() { return Current().commands; }

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
  if (ChecksCommands()) commands.used().OrderAfter(UsedBlocks::KnownEnded());
  if (CommandBuffer *open = Open().get()) {
    // On a Mac, the operator would open its own encoder here.
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

#include "core/commands.h"

#include <chrono>

#include "core/environment.h"
#include "core/export.h"
#include "core/fatal.h"
#include "core/record.h"
#include "core/trace.h"

namespace mps_emulator {

namespace {

// Ends the uses of a command after the command has run, even if a handler of
// Fatal() throws an exception.
class EndUsesLater {
 public:
  explicit EndUsesLater(const Command &command) : command_(command) {}
  ~EndUsesLater() {
    for (const BufferUse &use : command_.uses) EndUse(use);
  }
  EndUsesLater(const EndUsesLater &) = delete;

 private:
  const Command &command_;
};

// The time of the clock of GPUStartTime, in seconds.
double Seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

thread_local HostWrites host_writes;
thread_local std::optional<Accesses> accesses_of_command;

// If this number is positive, the first kernel of each command buffer
// decrements it.  The command buffer whose kernel decrements the number to 0
// fails.
std::atomic<int64_t> until_failure{0};

}  // namespace

const HostWrites &HostWritesInFlight() { return host_writes; }

std::optional<Accesses> &AccessesInFlight() { return accesses_of_command; }

void FailKernels(int64_t n) { until_failure = n; }

CommandBuffer::~CommandBuffer() {
  // These commands never ran: the command buffer was not committed, or nothing
  // waited for it.
  for (const Command &command : commands_)
    for (const BufferUse &use : command.uses) EndUse(use);
  queue_->commands_left_ -= commands_.size();
}

void CommandBuffer::RequireNotCommitted(const char *what) const {
  if (committed())
    Fatal(
        "%s: the command buffer was committed before; get a new one "
        "(torch::mps::get_command_buffer()) for each piece of work",
        what);
}

void CommandBuffer::OpenEncoder(const char *kind) {
  RequireNotCommitted(kind);
  if (open_encoder_)
    Fatal(
        "%s: a %s is already encoding to this command buffer; end it with "
        "endEncoding first",
        kind, open_encoder_);
  if (coalescing_)
    Fatal(
        "%s: torch's own encoder is open on this command buffer: %s ran after "
        "torch::mps::get_command_buffer() returned it, and torch leaves the "
        "encoder open for its next kernels.  On a Mac, Metal ends the "
        "program.  Call get_command_buffer() after the last operator: the call "
        "ends torch's encoder",
        kind, coalescing_);
  open_encoder_ = kind;
}

void CommandBuffer::CloseEncoder() { open_encoder_ = nullptr; }

void CommandBuffer::NoteKernel() {
  if (has_kernel_) return;
  has_kernel_ = true;
  fails_ = until_failure > 0 && --until_failure == 0;
}

void CommandBuffer::Encode(Command command) {
  ++queue_->commands_left_;
  queue_->NoteWork();
  commands_.push_back(std::move(command));
}

void CommandBuffer::Commit() {
  RequireNotCommitted("commit");
  if (open_encoder_)
    Fatal("commit: the %s of this command buffer lacks endEncoding",
          open_encoder_);
  if (coalescing_)
    Fatal(
        "commit: torch's own encoder, of %s, is open on this command buffer; "
        "torch::mps::commit() ends it",
        coalescing_);
  // Not ChecksCommands(), which has the value at the last BeginBatch().
  if (EnvironmentFlag("MPS_EMULATOR_CHECK_RACES")) {
    ended_at_commit_ = UsedBlocks::KnownEnded();
    for (const Command &command : commands_) {
      // Commands after a wait for an event run only after another queue's
      // signal.  So the host may write to the buffers of these commands after
      // the commit.
      if (command.name == "encodeWaitForEvent:value:") break;
      committed_contents_.Take(command.uses);
    }
  }
  UsedBlocks::NoteCommit();
  queue_->NoteWork();
  std::lock_guard<std::mutex> lock(queue_->mutex_);
  status_ = Status::kCommitted;
  queue_->committed_.push_back(shared_from_this());
}

void CommandBuffer::Wait() {
  if (!committed())
    Fatal(
        "waitUntilCompleted: the command buffer was not committed, so on a Mac "
        "the wait never ends; commit the command buffer first");
  if (!ended()) queue_->Run(this);
  queue_->Publish();
}

void CommandBuffer::AddCompletedHandler(Handler handler) {
  RequireNotCommitted("addCompletedHandler:");
  completed_handlers_.push_back(std::move(handler));
}

void CommandBuffer::Run() {
  if (start_time_ == 0) start_time_ = Seconds();
  struct NoteEnd {
    CommandBuffer *buffer;
    ~NoteEnd() { buffer->end_time_ = Seconds(); }
  } note_end{this};
  UsedBlocks::BeginBatch();
  std::vector<HostSnapshot::Write> written;
  if (ChecksCommands()) {
    if (committed()) written = committed_contents_.Writes();
    queue_->used().OrderAfter(ended_at_commit_ ? *ended_at_commit_
                                               : UsedBlocks::KnownEnded());
  }
  while (!commands_.empty()) {
    Command command = std::move(commands_.front());
    commands_.pop_front();
    --queue_->commands_left_;
    command_begin = IsTracing() ? TraceTime() : 0;
    EndUsesLater end_uses(command);
    if (!fails_) RunCommand(command, written);
  }
}

void CommandBuffer::RunCommand(
    const Command &command, const std::vector<HostSnapshot::Write> &written) {
  queue_->used().SetCommand(command.name.c_str());
  const std::vector<char *> device = BeginUses(command, written);
  const bool recorded = IsRecording();
  if (recorded) RecordBefore(command, device.data());
  accesses_of_command.reset();
  command.run(device.data());
  host_writes.clear();
  if (ChecksCommands()) queue_->CheckOrder(command, device.data());
  if (recorded) RecordAfter(command, device.data());
  for (const BufferUse &use : command.uses)
    if (use.writes) CheckRedzone(use, command.name.c_str());
}

std::vector<char *> CommandBuffer::BeginUses(
    const Command &command, const std::vector<HostSnapshot::Write> &written) {
  std::vector<char *> device;
  host_writes.clear();
  for (const BufferUse &use : command.uses) {
    if (!retains_references && !IsAlive(use))
      Fatal(
          "%s: MTLBuffer #%lu (%zu bytes) was freed before the command ran: "
          "a command buffer of commandBufferWithUnretainedReferences keeps "
          "no buffer alive.  Keep the buffer until the command buffer has "
          "completed",
          command.name.c_str(), use.buffer_id, use.size);
    char *memory = queue_->used().Begin(use);
    device.push_back(memory);
    for (const HostSnapshot::Write &write : written)
      if (write.buffer_id == use.buffer_id)
        host_writes.emplace_back(memory + write.begin, memory + write.end);
  }
  return device;
}

std::recursive_mutex &CommandQueue::execution_lock() {
  static auto *lock = new std::recursive_mutex;
  return *lock;
}

void CommandQueue::Run(const CommandBuffer *last,
                       std::vector<CommandBuffer::Handler> *handlers) {
  for (;;) {
    std::shared_ptr<CommandBuffer> buffer;
    {
      std::lock_guard<std::recursive_mutex> execution(execution_lock());
      {
        std::lock_guard<std::mutex> lock(mutex_);
        if (last && last->ended()) return;
        if (committed_.empty()) return;
        buffer = committed_.front();
        committed_.pop_front();
      }
      buffer->status_ = CommandBuffer::Status::kScheduled;
      buffer->Run();
      UsedBlocks::NoteRun();
      buffer->status_ = buffer->fails_ ? CommandBuffer::Status::kError
                                       : CommandBuffer::Status::kCompleted;
      if (buffer->fails_ && buffer->failed_handler_) buffer->failed_handler_();
      // A completed handler tells the program that these commands have ended.
      if (!buffer->completed_handlers_.empty()) used_.NoteAllEnded();
    }
    // A handler may use the device, so it runs without the execution lock.
    for (CommandBuffer::Handler &handler : buffer->completed_handlers_) {
      if (handlers)
        handlers->push_back(std::move(handler));
      else
        handler();
    }
    buffer->completed_handlers_.clear();
    if (buffer.get() == last) return;
  }
}

void CommandQueue::CheckOrder(const Command &command, char *const *device) {
  for (size_t i = 0; i < command.uses.size(); ++i) {
    const BufferUse &use = command.uses[i];
    Accesses accesses = AccessesOf(use);
    if (accesses_of_command) {
      auto begin = reinterpret_cast<uintptr_t>(device[i]);
      const uintptr_t end = begin + use.size;
      accesses = {Clip(accesses_of_command->reads, begin, end),
                  Clip(accesses_of_command->writes, begin, end)};
    }
    if (use.untracked) CheckFences(command, use, accesses);
    used_.NoteAccesses(use, std::move(accesses));
  }
}

void CommandQueue::CheckFences(const Command &command, const BufferUse &use,
                               const Accesses &accesses) {
  std::vector<Untracked> &before = untracked_[use.buffer_id];
  for (const Untracked &other : before) {
    if (other.encoder == command.encoder || command.after.count(other.encoder))
      continue;
    if (auto conflict = FindConflict(other.accesses, accesses))
      Fatal(
          "a race between two encoders on MTLBuffer #%lu (%zu bytes), at byte "
          "%zu: %s %s it, %s of another encoder %s it, and Metal does not "
          "order the two: the buffer has "
          "MTLResourceHazardTrackingModeUntracked.  Let the first encoder "
          "updateFence: and the second waitForFence:, or let Metal track the "
          "buffer",
          use.buffer_id, use.size, conflict->byte, other.command.c_str(),
          conflict->first_writes ? "writes" : "reads", command.name.c_str(),
          conflict->second_writes ? "writes" : "reads");
  }
  before.push_back({command.encoder, accesses, command.name});
}

void CommandQueue::Publish() {
  std::lock_guard<std::recursive_mutex> execution(execution_lock());
  untracked_.clear();
  used_.Publish();
  std::lock_guard<std::mutex> lock(mutex_);
  if (committed_.empty() && commands_left_ == 0)
    has_work_.store(false, std::memory_order_release);
}

}  // namespace mps_emulator

MPS_EMULATOR_EXPORT void mps_emulator_fail_command_buffer(int64_t n) {
  mps_emulator::FailKernels(n);
}

// What all encoders have in common, and MTLComputeCommandEncoder.
#include "metal/encoders.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/counters.h"
#include "core/fatal.h"
#include "core/json.h"
#include "core/record.h"
#include "core/residency.h"
#include "core/stream.h"
#include "core/trace.h"
#include "metal/foundation_internal.h"
#include "metal/metal_internal.h"

using namespace mps_emulator;

namespace {

constexpr NSUInteger kMaxSetBytes = 4096;

// An element of the compute encoder's argument table.
struct Argument {
  enum class Kind { kNone, kBuffer, kBytes } kind = Kind::kNone;
  BufferUse use;      // kBuffer: keeps the block until the encoder ends
  size_t offset = 0;  // kBuffer
  std::shared_ptr<std::vector<char>> bytes;  // kBytes

  void Clear() {
    if (kind == Kind::kBuffer) EndUse(use);
    bytes = nullptr;
    kind = Kind::kNone;
  }
};

struct ComputeState : EncoderState {
  MTLDispatchType dispatch_type;
  MPSEmulatorPipeline *pipeline = nil;
  std::array<Argument, msl::kMaxBuffers> arguments;
  std::array<size_t, msl::kMaxBuffers> threadgroup_bytes{};
  std::vector<BufferUse> resources;  // the buffers of useResource:usage:
  // For a concurrent encoder, the number of the present group of dispatches.
  // The dispatches from one barrier to the next are a group.  On a Mac, the
  // dispatches of a group can run at the same time.  0: the encoder is serial.
  uint64_t concurrent_group = 0;

  void BeginConcurrentGroup() {
    static std::atomic<uint64_t> last{0};
    if (dispatch_type == MTLDispatchTypeConcurrent) concurrent_group = ++last;
  }
};

void CheckIndex(NSUInteger index, const char *what) {
  if (index >= msl::kMaxBuffers)
    Fatal("%s: index %lu is not below %u", what, index, msl::kMaxBuffers);
}

void CheckOffset(NSUInteger offset, const BufferUse &use, const char *what) {
  if (offset >= use.size)
    Fatal("%s: offset %lu is beyond the %zu bytes of MTLBuffer #%lu", what,
          offset, use.size, use.buffer_id);
}

std::string ToString(MTLSize size) {
  return std::to_string(size.width) + " x " + std::to_string(size.height) +
         " x " + std::to_string(size.depth);
}

// Returns the members of a JSON object from which a replay repeats the dispatch
// (core/record.h).
//
// places: for each buffer argument, in the order of the command's uses, the
//   index in the argument table and the offset in bytes.
std::string DescribeDispatch(
    const msl::Dispatch &dispatch,
    const std::vector<std::pair<unsigned, size_t>> &places) {
  const msl::Library &library = *dispatch.library;
  std::string threadgroup_bytes;
  std::vector<Json> arguments;
  for (unsigned index = 0; index < msl::kMaxBuffers; ++index) {
    if (size_t bytes = dispatch.threadgroup_bytes[index])
      threadgroup_bytes += (threadgroup_bytes.empty() ? "" : ",") +
                           Members({{std::to_string(index), bytes}});
    const msl::Binding &bytes = dispatch.buffers[index];
    auto place = std::find_if(places.begin(), places.end(),
                              [&](const auto &p) { return p.first == index; });
    if (place != places.end())
      arguments.push_back(Object({{"index", index},
                                  {"use", place - places.begin()},
                                  {"offset", place->second}}));
    else if (bytes.data)
      arguments.push_back(
          Object({{"index", index},
                  {"bytes", Hexadecimal({static_cast<const char *>(bytes.data),
                                         bytes.size})}}));
  }
  return Members(
      {{"kind", "dispatch"},
       {"kernel", dispatch.kernel->name},
       {"program", RecordProgram(library.source,
                                 Members({{"fast_math", library.fast_math}}))},
       {"grid", List(dispatch.grid)},
       {"threadgroup", List(dispatch.threadgroup)},
       {"threadgroup_bytes", Json::Written("{" + threadgroup_bytes + "}")},
       {"arguments", List(arguments)}});
}

// Ends the program if Metal would refuse the sizes of a dispatch.
void CheckSizes(const ComputeState &state, MTLSize grid, MTLSize group,
                const char *what) {
  const msl::Kernel &kernel = *state.pipeline->_kernel;
  NSUInteger threads = group.width * group.height * group.depth;
  NSUInteger most = state.pipeline->_maxTotalThreads;
  if (threads == 0 || threads > most)
    Fatal("%s: a threadgroup of %s threads is outside 1 .. %lu, the limit of "
          "kernel %s's pipeline (maxTotalThreadsPerThreadgroup)",
          what, ToString(group).c_str(), most, kernel.name);
  constexpr NSUInteger kMaxGrid = UINT32_MAX;
  if (grid.width > kMaxGrid || grid.height > kMaxGrid || grid.depth > kMaxGrid)
    Fatal("%s: a grid of %s threads is over the limit of %lu a side", what,
          ToString(grid).c_str(), kMaxGrid);
  size_t threadgroup_bytes = kernel.static_threadgroup_bytes;
  for (size_t bytes : state.threadgroup_bytes) threadgroup_bytes += bytes;
  if (threadgroup_bytes > msl::kMaxThreadgroupBytes)
    Fatal("%s: kernel %s gets %zu bytes of threadgroup memory (%u of them for "
          "its own variables), over the limit of %u",
          what, kernel.name, threadgroup_bytes, kernel.static_threadgroup_bytes,
          msl::kMaxThreadgroupBytes);
}

// Returns a dispatch of the encoder's kernel.  The dispatch has no buffers yet.
std::shared_ptr<msl::Dispatch> NewDispatch(const ComputeState &state,
                                           MTLSize grid, MTLSize group) {
  auto dispatch = std::make_shared<msl::Dispatch>();
  dispatch->library = *state.pipeline->_library;
  dispatch->kernel = state.pipeline->_kernel;
  dispatch->threadgroup_bytes = state.threadgroup_bytes;
  dispatch->grid = {static_cast<uint32_t>(grid.width),
                    static_cast<uint32_t>(grid.height),
                    static_cast<uint32_t>(grid.depth)};
  dispatch->threadgroup = {static_cast<uint32_t>(group.width),
                           static_cast<uint32_t>(group.height),
                           static_cast<uint32_t>(group.depth)};
  dispatch->label = state.label;
  dispatch->concurrent_group = state.concurrent_group;
  return dispatch;
}

// What the arguments of a dispatch refer to.
struct BoundArguments {
  // First the buffer arguments, then the buffers of useResource:usage:.
  std::vector<BufferUse> uses;
  // For each buffer argument, its index in the argument table and its offset.
  std::vector<std::pair<unsigned, size_t>> places;
  // The bytes of setBytes:.  The command keeps these bytes alive.
  std::vector<std::shared_ptr<std::vector<char>>> bytes;
};

// Gives the bytes of setBytes: to the dispatch, and announces the uses of its
// buffers, whose addresses are known only when the command runs.
BoundArguments Bind(const ComputeState &state, msl::Dispatch *dispatch) {
  BoundArguments ans;
  for (const msl::Parameter &parameter : msl::ParametersOf(*dispatch->kernel)) {
    if (parameter.kind != kMpsEmulatorMslBuffer) continue;
    const Argument &argument = state.arguments[parameter.index];
    switch (argument.kind) {
      case Argument::Kind::kNone:
        break;  // msl::Run() reports the missing buffer
      case Argument::Kind::kBytes:
        dispatch->buffers[parameter.index] = {argument.bytes->data(),
                                              argument.bytes->size()};
        ans.bytes.push_back(argument.bytes);
        break;
      case Argument::Kind::kBuffer:
        ans.uses.push_back(AnnounceUse(argument.use, parameter.writable));
        ans.places.emplace_back(parameter.index, argument.offset);
        break;
    }
  }
  for (const BufferUse &use : state.resources)
    ans.uses.push_back(AnnounceUse(use, use.writes));
  return ans;
}

// Returns the command that runs a dispatch.
Command NewCommand(const ComputeState &state,
                   const std::shared_ptr<msl::Dispatch> &dispatch,
                   BoundArguments arguments) {
  Command command;
  command.name = std::string("kernel ") + dispatch->kernel->name;
  if (!state.label.empty()) command.name += " (" + state.label + ")";
  command.uses = arguments.uses;
  command.describe = [dispatch, places = arguments.places] {
    return DescribeDispatch(*dispatch, places);
  };
  const std::string pipeline = ToStdString([state.pipeline label]);
  command.run = [dispatch, arguments = std::move(arguments),
                 pipeline](char *const *device) {
    for (size_t i = 0; i < arguments.places.size(); ++i) {
      auto [index, offset] = arguments.places[i];
      dispatch->buffers[index] = {device[i] + offset,
                                  arguments.uses[i].size - offset};
    }
    dispatch->host_writes = &HostWritesInFlight();
    dispatch->accesses = &AccessesInFlight();
    Residency residency(arguments.uses);
    dispatch->resident = residency.resident;
    dispatch->absent = residency.absent;
    Count(kDispatches);
    msl::Run(*dispatch);
    if (command_begin)
      TraceDispatch(dispatch->label, pipeline, dispatch->kernel->name,
                    CurrentOperator(), command_begin, TraceTime());
  };
  return command;
}

}  // namespace

@implementation MPSEmulatorEncoder

- (instancetype)initWithState:(EncoderState *)state {
  _state = state;
  state->buffer->OpenEncoder(state->kind);
  return self;
}

- (void)dealloc {
  [self checkEnded];
  delete _state;
  [super dealloc];
}

- (void)checkEnded {
  if (!_state->ended)
    Fatal("a %s%s%s was released without endEncoding", _state->kind,
          _state->label.empty() ? "" : " ", _state->label.c_str());
}

- (void)checkOpen:(const char *)what {
  if (_state->ended)
    Fatal("%s: this %s was ended by endEncoding before", what, _state->kind);
  if (_state->buffer->committed())
    Fatal("%s: the command buffer of this %s was committed before", what,
          _state->kind);
}

- (void)endEncoding {
  [self checkOpen:"endEncoding"];
  _state->ended = true;
  _state->buffer->CloseEncoder();
}

GETTER(NSString *, label, ToNSString(_state->label))

- (void)setLabel:(NSString *)label {
  _state->label = ToStdString(label);
}

// The emulator runs commands in the order of their encoding, so fences have no
// effect on the order.  A fence only notes encoders for
// CommandQueue::CheckFences(): if Metal does not track a buffer, only a fence
// orders two uses of the buffer by different encoders.
- (void)updateFence:(id<MTLFence>)fence {
  [self checkOpen:"updateFence:"];
  std::set<uint64_t> &encoders = *((MPSEmulatorFence *)fence)->_encoders;
  encoders = _state->after;
  encoders.insert(_state->number);
}

- (void)waitForFence:(id<MTLFence>)fence {
  [self checkOpen:"waitForFence:"];
  const std::set<uint64_t> &encoders = *((MPSEmulatorFence *)fence)->_encoders;
  _state->after.insert(encoders.begin(), encoders.end());
}

@end

@interface MPSEmulatorComputeEncoder
    : MPSEmulatorEncoder <MTLComputeCommandEncoder>
@end

@implementation MPSEmulatorComputeEncoder

GETTER(ComputeState *, state, static_cast<ComputeState *>(_state))

- (void)dealloc {
  [self checkEnded];
  [[self state]->pipeline release];
  [super dealloc];
}

- (void)endEncoding {
  [super endEncoding];
  // The argument table's uses can end, because each command has announced its
  // own uses.
  for (Argument &argument : [self state]->arguments) argument.Clear();
  for (const BufferUse &use : [self state]->resources) EndUse(use);
  [self state]->resources.clear();
}

- (void)setComputePipelineState:(id<MTLComputePipelineState>)pipeline {
  [self checkOpen:"setComputePipelineState:"];
  if (!pipeline)
    Fatal("setComputePipelineState: the pipeline is nil; check the NSError of "
          "the call that should have created the pipeline");
  Assign(&[self state]->pipeline, (MPSEmulatorPipeline *)pipeline);
}

- (void)setBytes:(const void *)bytes
          length:(NSUInteger)length
         atIndex:(NSUInteger)index {
  const char *what = "setBytes:length:atIndex:";
  [self checkOpen:what];
  CheckIndex(index, what);
  if (length > kMaxSetBytes)
    Fatal("%s: a length of %lu bytes is over the limit of %lu; use a buffer",
          what, length, kMaxSetBytes);
  if (!bytes || !length) Fatal("%s: there are no bytes", what);
  Argument &argument = [self state]->arguments[index];
  argument.Clear();
  const char *begin = static_cast<const char *>(bytes);
  argument.bytes = std::make_shared<std::vector<char>>(begin, begin + length);
  argument.kind = Argument::Kind::kBytes;
}

- (void)setBuffer:(id<MTLBuffer>)buffer
           offset:(NSUInteger)offset
          atIndex:(NSUInteger)index {
  const char *what = "setBuffer:offset:atIndex:";
  [self checkOpen:what];
  CheckIndex(index, what);
  Argument &argument = [self state]->arguments[index];
  if (!buffer) {
    argument.Clear();
    return;
  }
  BufferUse use = AnnounceUse(RequireLiveBuffer(buffer, what), false);
  argument.Clear();
  argument.use = use;
  argument.offset = offset;
  argument.kind = Argument::Kind::kBuffer;
  CheckOffset(offset, use, what);
}

- (void)setThreadgroupMemoryLength:(NSUInteger)length
                           atIndex:(NSUInteger)index {
  const char *what = "setThreadgroupMemoryLength:atIndex:";
  [self checkOpen:what];
  CheckIndex(index, what);
  if (length % 16)
    Fatal("%s: the length, %lu bytes, must be a multiple of 16", what, length);
  [self state]->threadgroup_bytes[index] = length;
}

- (void)dispatchThreadgroups:(MTLSize)threadgroupsPerGrid
       threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup {
  MTLSize threads =
      MTLSizeMake(threadgroupsPerGrid.width * threadsPerThreadgroup.width,
                  threadgroupsPerGrid.height * threadsPerThreadgroup.height,
                  threadgroupsPerGrid.depth * threadsPerThreadgroup.depth);
  [self dispatch:threads
      threadsPerThreadgroup:threadsPerThreadgroup
                       what:"dispatchThreadgroups:threadsPerThreadgroup:"];
}

- (void)dispatchThreads:(MTLSize)threadsPerGrid
    threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup {
  [self dispatch:threadsPerGrid
      threadsPerThreadgroup:threadsPerThreadgroup
                       what:"dispatchThreads:threadsPerThreadgroup:"];
}

- (void)dispatch:(MTLSize)grid
    threadsPerThreadgroup:(MTLSize)group
                     what:(const char *)what {
  [self checkOpen:what];
  ComputeState *state = [self state];
  if (!state->pipeline)
    Fatal("%s: no pipeline is set; call setComputePipelineState: first", what);
  CheckSizes(*state, grid, group, what);
  // Metal accepts an empty grid and runs nothing.
  if (!grid.width || !grid.height || !grid.depth) return;
  auto dispatch = NewDispatch(*state, grid, group);
  state->buffer->NoteKernel();
  state->Encode(NewCommand(*state, dispatch, Bind(*state, dispatch.get())));
}

- (void)useResource:(id<MTLResource>)resource usage:(MTLResourceUsage)usage {
  const char *what = "useResource:usage:";
  [self checkOpen:what];
  [self state]->resources.push_back(AnnounceUse(
      RequireLiveBuffer(resource, what), (usage & MTLResourceUsageWrite) != 0));
}

// The emulator runs an encoder's commands one after the other.  So a barrier
// only begins a new group, for the race checker.
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
  [self checkOpen:"memoryBarrierWithScope:"];
  [self state]->BeginConcurrentGroup();
}

@end

namespace mps_emulator {

id<MTLComputeCommandEncoder> NewComputeEncoder(
    const std::shared_ptr<CommandBuffer> &buffer,
    MTLDispatchType dispatch_type) {
  ComputeState *state = new ComputeState;
  state->buffer = buffer;
  state->kind = "compute command encoder";
  state->dispatch_type = dispatch_type;
  state->BeginConcurrentGroup();
  return [[[MPSEmulatorComputeEncoder alloc] initWithState:state] autorelease];
}

}  // namespace mps_emulator

#include "extension.h"

#include <ATen/mps/MPSStream.h>
#include <torch/mps.h>

#include <chrono>
#include <thread>

void SynchronizeOutsideQueue() { torch::mps::synchronize(); }

void SynchronizeInQueue() {
  dispatch_sync(torch::mps::get_dispatch_queue(), ^{
    torch::mps::synchronize();
  });
}

void Synchronize() {
#if TORCH_KNOWS_QUEUES
  SynchronizeOutsideQueue();
#else
  SynchronizeInQueue();
#endif
}

void CommitInQueue() {
  dispatch_sync(torch::mps::get_dispatch_queue(), ^{
    torch::mps::commit();
  });
}

void CommitOutsideQueue() { torch::mps::commit(); }

void TakeEncoder(bool in_queue) {
  at::mps::MPSStream *stream = at::mps::getCurrentMPSStream();
  if (in_queue)
    at::mps::dispatch_sync_with_rethrow(stream->queue(), ^{
      stream->commandEncoder();
    });
  else
    stream->commandEncoder();
  Synchronize();
}

double NanosecondsOfIdleWait(int64_t repetitions) {
  Synchronize();
  auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < repetitions; ++i) Synchronize();
  std::chrono::duration<double, std::nano> time =
      std::chrono::steady_clock::now() - start;
  return time.count() / static_cast<double>(repetitions);
}

std::pair<int, std::string> StatusAfterDispatch(at::Tensor x) {
  __block std::pair<int, std::string> found;
  @autoreleasepool {
    id<MTLCommandBuffer> buffer = StreamBuffer();
    id<MTLComputeCommandEncoder> encoder = [buffer computeCommandEncoder];
    [encoder setComputePipelineState:Pipeline("fill_with_index")];
    [encoder setBuffer:BufferOf(x) offset:0 atIndex:0];
    Dispatch(encoder, x.numel(), 1);
    [encoder endEncoding];
    [buffer addCompletedHandler:^(id<MTLCommandBuffer> done) {
      found.first = static_cast<int>([done status]);
      if (NSError *error = [done error])
        found.second = [[error localizedDescription] UTF8String];
    }];
    Synchronize();
  }
  return found;
}

void HoldQueue(int64_t milliseconds) {
  dispatch_sync(torch::mps::get_dispatch_queue(), ^{
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  });
}

void ThrowThroughRethrow() {
  at::mps::dispatch_sync_with_rethrow(torch::mps::get_dispatch_queue(), ^{
    TORCH_CHECK(false, "thrown inside the queue");
  });
}

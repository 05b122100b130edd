// The command encoders.
#pragma once

#include <Metal/Metal.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "core/commands.h"
#include "metal/metal_internal.h"

namespace mps_emulator {

// Return autoreleased encoders that encode into `buffer`.
id<MTLComputeCommandEncoder> NewComputeEncoder(
    const std::shared_ptr<CommandBuffer> &buffer,
    MTLDispatchType dispatch_type);
id<MTLBlitCommandEncoder> NewBlitEncoder(
    const std::shared_ptr<CommandBuffer> &buffer);

// The state of a compute encoder or of a blit encoder.
struct EncoderState {
  virtual ~EncoderState() = default;

  std::shared_ptr<CommandBuffer> buffer;
  const char *kind;
  std::string label;
  bool ended = false;
  // Encoders are numbered from 1.
  const uint64_t number = [] {
    static std::atomic<uint64_t> last{0};
    return ++last;
  }();
  // The encoders that precede this encoder because of fences.
  std::set<uint64_t> after;

  void Encode(Command command) {
    command.encoder = number;
    command.after = after;
    buffer->Encode(std::move(command));
  }
};

}  // namespace mps_emulator

// What compute encoders and blit encoders have in common.
@interface MPSEmulatorEncoder : MPSEmulatorObject <MTLCommandEncoder> {
  mps_emulator::EncoderState *_state;
}
- (instancetype)initWithState:(mps_emulator::EncoderState *)state;
- (void)checkOpen:(const char *)what;
- (void)checkEnded;
- (void)updateFence:(id<MTLFence>)fence;
- (void)waitForFence:(id<MTLFence>)fence;
@end

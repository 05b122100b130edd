// MTLBlitCommandEncoder.
#include <string.h>

#include "core/fatal.h"
#include "core/json.h"
#include "metal/encoders.h"

using namespace mps_emulator;

namespace {

// Ends the program unless bytes begin .. begin + size are in the buffer.
// `what` names the method, and `role` the buffer, for the message.
void CheckRange(const Buffer *buffer, NSUInteger begin, NSUInteger size,
                const char *what, const char *role) {
  if (begin > buffer->size || size > buffer->size - begin)
    Fatal("%s: %lu bytes from byte %lu on are beyond the end of %s, MTLBuffer "
          "#%lu, which has %zu bytes",
          what, size, begin, role, buffer->id, buffer->size);
}

}  // namespace

@interface MPSEmulatorBlitEncoder : MPSEmulatorEncoder <MTLBlitCommandEncoder>
@end

@implementation MPSEmulatorBlitEncoder

- (void)copyFromBuffer:(id<MTLBuffer>)sourceBuffer
          sourceOffset:(NSUInteger)sourceOffset
              toBuffer:(id<MTLBuffer>)destinationBuffer
     destinationOffset:(NSUInteger)destinationOffset
                  size:(NSUInteger)size {
  const char *what =
      "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:";
  [self checkOpen:what];
  Buffer *source = RequireLiveBuffer(sourceBuffer, what);
  Buffer *destination = RequireLiveBuffer(destinationBuffer, what);
  CheckRange(source, sourceOffset, size, what, "the source");
  CheckRange(destination, destinationOffset, size, what, "the destination");
  if (sourceOffset % 4 || destinationOffset % 4 || size % 4)
    Fatal("%s: source offset %lu, destination offset %lu and size %lu must be "
          "multiples of 4",
          what, sourceOffset, destinationOffset, size);
  if (source == destination && sourceOffset < destinationOffset + size &&
      destinationOffset < sourceOffset + size && size)
    Fatal("%s: source and destination overlap in MTLBuffer #%lu", what,
          source->id);
  _state->Encode(
      {"blit copy",
       {AnnounceUse(source, false, {sourceOffset, sourceOffset + size}),
        AnnounceUse(destination, true,
                    {destinationOffset, destinationOffset + size})},
       [=](char *const *device) {
         memcpy(device[1] + destinationOffset, device[0] + sourceOffset, size);
       },
       [=] {
         return Members({{"kind", "copy"},
                         {"from", sourceOffset},
                         {"to", destinationOffset},
                         {"size", size}});
       }});
}

@end

namespace mps_emulator {

id<MTLBlitCommandEncoder> NewBlitEncoder(
    const std::shared_ptr<CommandBuffer> &buffer) {
  EncoderState *state = new EncoderState;
  state->buffer = buffer;
  state->kind = "blit command encoder";
  return [[[MPSEmulatorBlitEncoder alloc] initWithState:state] autorelease];
}

}  // namespace mps_emulator

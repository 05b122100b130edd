// What depends on the release of torch.  The facts are those of the macOS
// libraries of torch 2.13.0, 2.14.1 and 2.15.0.
#pragma once

#include <torch/headeronly/version.h>

// Whether torch is 2.`minor` or newer.
#define TORCH_AT_LEAST(minor) \
  (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

namespace mps_emulator {

// Streams: the default one, which has id 0, and those of a pool.
inline constexpr int kStreams = TORCH_AT_LEAST(14) ? 33 : 1;

// From 2.15 on, the functions of torch/mps.h follow the thread's current
// stream.  commit() and get_command_buffer() must be called inside its queue.
// synchronize() enters the queue of each stream, and throws if a command buffer
// has failed.  Before 2.15, these functions use the default stream, enter no
// queue, and do not ask whether a command buffer has failed.
inline constexpr bool kFunctionsKnowQueues = TORCH_AT_LEAST(15);

}  // namespace mps_emulator

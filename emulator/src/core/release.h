// Differences between releases of torch.  The differences were read from the
// macOS libraries of torch 2.13.0, 2.14.1 and 2.15.0.
#pragma once

#include <torch/headeronly/version.h>

// Whether torch is release 2.`minor` or newer.
#define TORCH_AT_LEAST(minor) \
  (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

namespace mps_emulator {

// The number of streams: the default stream, whose id is 0, and the streams of
// the pool.
inline constexpr int kStreams = TORCH_AT_LEAST(14) ? 33 : 1;

// From 2.15 on, the functions of torch/mps.h use the thread's current stream.
// commit() and get_command_buffer() must be called inside that stream's queue.
// synchronize() enters the queue of each stream, and throws if a command buffer
// has failed.  Before 2.15, these functions use the default stream, enter no
// queue, and do not check whether a command buffer has failed.
inline constexpr bool kFunctionsKnowQueues = TORCH_AT_LEAST(15);

}  // namespace mps_emulator

// A dispatch in a recording (core/record.h): members of a JSON object, from
// which a replay repeats the command.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "msl/msl.h"

namespace mps_emulator {

// places: (index in the argument table, offset in bytes) of the command's
//   buffers, in the order of its uses.
// pipeline: the label of the pipeline.
// encoder: the number of the encoder; concurrent: whether its dispatches run at
//   the same time between barriers.
std::string DescribeDispatch(
    const msl::Dispatch &dispatch,
    const std::vector<std::pair<unsigned, size_t>> &places,
    const std::string &pipeline, uint64_t encoder, bool concurrent);

}  // namespace mps_emulator

#include <metal_stdlib>

using namespace metal;

#include "k2/csrc/mps/kernels/best_path.h"

// starts, ends, frames, beams   [threads], the arguments of MayCutBestPath()
// found                         [threads], what the function returns
kernel void may_cut_best_path(device const float *starts [[buffer(0)]],
                              device const float *ends [[buffer(1)]],
                              device const int *frames [[buffer(2)]],
                              device const float *beams [[buffer(3)]],
                              device int *found [[buffer(4)]],
                              uint i [[thread_position_in_grid]]) {
  found[i] = MayCutBestPath(starts[i], ends[i], frames[i], beams[i]);
}

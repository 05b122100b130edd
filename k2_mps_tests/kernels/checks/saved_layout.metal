#include <metal_stdlib>

using namespace metal;

#include "k2/csrc/mps/kernels/pruned_stream.h"

// sizes    [3], the arguments of LayoutOfSaved()
// layout   [5], the fields of the result
kernel void layout_of_saved(device const int *sizes [[buffer(0)]],
                            device long *layout [[buffer(1)]]) {
  const SavedLayout saved = LayoutOfSaved(sizes[0], sizes[1], sizes[2]);
  layout[0] = saved.num_kept;
  layout[1] = saved.numbers;
  layout[2] = saved.next_states;
  layout[3] = saved.scores;
  layout[4] = saved.size;
}

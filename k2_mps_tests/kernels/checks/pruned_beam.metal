#include <metal_stdlib>

using namespace metal;

#include "k2/csrc/mps/kernels/pruned_beam.h"

// Computes the next beam of a frame whose beam shrinks, and of a frame whose
// beam returns to the usual beam.  Each thread computes for one pair of beams.

kernel void next_beams(device const float *beams [[buffer(0)]],
                       device const float *usual [[buffer(1)]],
                       device float *smaller [[buffer(2)]],
                       device float *returning [[buffer(3)]],
                       uint i [[thread_position_in_grid]]) {
  smaller[i] = ToFloat(Times(beams[i], -53));
  returning[i] = ToFloat(Plus(Times(beams[i], -53), Times(usual[i], -55)));
}

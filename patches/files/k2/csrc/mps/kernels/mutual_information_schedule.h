/**
 * Copyright      2026  The k2-mps authors
 *
 * See LICENSE for clarification regarding multiple authors
 *
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */

#ifndef K2_CSRC_MPS_KERNELS_MUTUAL_INFORMATION_SCHEDULE_H_
#define K2_CSRC_MPS_KERNELS_MUTUAL_INFORMATION_SCHEDULE_H_

#include "k2/csrc/mps/kernels/mutual_information.h"

// For kernels only: the recursion, and which thread computes which cell when.
//
// The recursion sums over the paths of RNN-T (A. Graves, Sequence Transduction
// with Recurrent Neural Networks, 2012, section 2.4) in the form of F. Kuang et
// al., Pruned RNN-T for Fast, Memory-Efficient ASR Training, Interspeech 2022.
// With symbols s, frames t and o = params.t_offset,
//
//   score[0][0] = 0
//   score[s][t] = log(exp(score[s - 1][t + o] + px[s - 1][t + o]) +
//                     exp(score[s][t - 1] + py[s][t - 1]))
//
// and ans is the score of the last cell.  The share of a cell is the part of
// its sum that comes from the row above,
//
//   share[s][t] = exp(score[s - 1][t + o] + px[s - 1][t + o] - score[s][t]),
//
// and the gradient of the last cell, which is the gradient of ans, flows back
// by shares:
//
//   grad[s][t]    = px_grad[s][t] + py_grad[s][t]
//   px_grad[s][t] = share[s + 1][t - o] * grad[s + 1][t - o]
//   py_grad[s][t] = (1 - share[s][t + 1]) * grad[s][t + 1]
//
// The backward kernel is the forward kernel with rows and columns counted from
// the last cell, and with shares in place of px and py.
//
// Four words say how the work is divided; docs/images/strips.svg of k2-mps
// draws them.
//
//   strip  32 rows.  One simdgroup, the chain of the strip, computes them: a
//          lane has one row, and computes one cell in each step.  A lane is
//          `skew` columns behind the lane above it, and gets that lane's cell
//          by a shuffle.
//   band   The strips that a threadgroup computes at once, up to kMiMaxStrips.
//          A strip gets the last row of the strip above it through a ring of
//          threadgroup memory.  The first strip of a band gets the last row of
//          the band above through device memory.
//   chunk  kMiColumns steps of a strip.  In a chunk, the chain reads and writes
//          two tiles of threadgroup memory, and no device memory.  Other
//          simdgroups, the movers of the strip, fill the tiles of the next
//          chunk and store the tiles of the last one.
//   round  What a threadgroup does from one barrier to the next: one chunk of
//          each strip.  A strip is `lag` chunks behind the strip above it.
//
// Threadgroups cannot wait for each other.  So a dispatch does only some rounds
// of a band, and the next dispatch continues.  A band that is `delay` rounds
// behind the band above it finds the row that it needs.  So a dispatch may do
// rounds of several bands, and idle cores of a GPU help with a long sequence.
// The bits of a cell do not depend on the dispatches, and are the same in each
// run.

// The part of a sequence to process: rows s_begin..s_end and columns
// t_begin..t_end, both ends included.
struct Boundary {
  int s_begin, t_begin, s_end, t_end;
};

inline Boundary GetBoundary(constant MutualInformationParams &params,
                            device const long *boundary, uint b) {  // NOLINT
  Boundary ans = {0, 0, params.S, params.T};
  if (params.has_boundary) {
    ans.s_begin = static_cast<int>(boundary[4 * b]);
    ans.t_begin = static_cast<int>(boundary[4 * b + 1]);
    ans.s_end = static_cast<int>(boundary[4 * b + 2]);
    ans.t_end = static_cast<int>(boundary[4 * b + 3]);
  }
  return ans;
}

// The place of a thread in the division of work.
struct Thread {
  int sequence, band;
  int strip;  // of the band
  int mover;  // of the strip; -1 in a chain
  int lane;
  int index, num_threads;  // in the threadgroup
  int strips;              // the most strips that the threadgroup can do
};

inline Thread GetThread(constant MutualInformationParams &params, uint group,
                        uint thread_index, uint num_threads) {
  Thread ans;
  ans.sequence = static_cast<int>(group) % params.num_sequences;
  ans.band = static_cast<int>(group) / params.num_sequences;
  ans.index = static_cast<int>(thread_index);
  ans.num_threads = static_cast<int>(num_threads);
  ans.strips = ans.num_threads / kMiThreadsPerStrip;
  ans.lane = ans.index % kMiRows;
  const int simdgroup = ans.index / kMiRows, mover = simdgroup - ans.strips;
  // The broadcasts tell the compiler that all lanes have the same values.
  ans.strip =
      metal::simd_broadcast_first(mover < 0 ? simdgroup : mover / kMiMovers);
  ans.mover = metal::simd_broadcast_first(mover < 0 ? -1 : mover % kMiMovers);
  return ans;
}

// The rounds of a band in one dispatch.
struct Schedule {
  int S, T;        // the last row and column, counted from the boundary's first
  int t_offset;    // as in the parameters
  int skew;        // columns that a lane is behind the lane above it
  int height;      // columns that the last lane is behind the first one
  int lag;         // chunks that a strip is behind the strip above it
  int pad;         // empty columns before column 0
  int chunks;      // of a strip
  int end_chunk;   // the chunk that ends with the last cell, if padded
  int first_row;   // of the band
  int strips;      // of the band
  bool has_next;   // whether there is a band below
  int begin, end;  // the rounds of this dispatch; in round 0 a band computes
                   // the first chunk of its first strip
  bool continues;  // whether a later dispatch continues the band
};

// pad_to_end  whether to pad so that the last step of a chunk is the last cell
template <bool kBands>
inline Schedule MakeSchedule(constant MutualInformationParams &params,
                             Boundary range, Thread me, bool pad_to_end) {
  Schedule ans;
  ans.S = metal::max(range.s_end - range.s_begin, 0);
  ans.T = metal::max(range.t_end - range.t_begin, 0);
  ans.t_offset = params.t_offset;
  // A lane's cell needs the cell above it, t_offset columns away, which the
  // lane above computed one step before.
  ans.skew = 1 + ans.t_offset;
  ans.height = (kMiRows - 1) * ans.skew;
  // The strip below must not need this chunk's cells of the last lane before
  // the next chunk.
  ans.lag = (kMiColumns - 1 + ans.height + ans.t_offset) / kMiColumns + 1;
  const int end_step = ans.T + ans.S % kMiRows * ans.skew;
  ans.pad = pad_to_end ? kMiColumns - 1 - end_step % kMiColumns : 0;
  ans.end_chunk = (end_step + ans.pad) / kMiColumns;
  const int last_lane = metal::min(kMiRows - 1, ans.S);
  ans.chunks = (ans.T + ans.pad + last_lane * ans.skew) / kMiColumns + 1;

  const int strips_left = ans.S / kMiRows + 1 - me.band * me.strips;
  ans.first_row = me.band * me.strips * kMiRows;
  ans.strips = kBands ? metal::clamp(strips_left, 0, me.strips) : strips_left;
  ans.has_next = strips_left > ans.strips;
  const int rounds = (ans.strips - 1) * ans.lag + ans.chunks;
  ans.begin = 0;
  ans.end = rounds;
  if (kBands) {
    const int begin = params.begin - me.band * params.delay;
    ans.begin = metal::max(begin, 0);
    ans.end = ans.strips == 0 ? 0 : metal::min(begin + params.length, rounds);
  }
  ans.continues = ans.end < rounds;
  return ans;
}

// The chunks that a strip computes in a dispatch.
struct Chunks {
  int first;
  uint number;

  bool Have(int chunk) const { return uint(chunk - first) < number; }
};

inline Chunks GetChunks(Schedule schedule, int strip) {
  if (strip >= schedule.strips) return Chunks{0, 0u};
  const int behind = strip * schedule.lag,
            first = metal::max(schedule.begin - behind, 0),
            end = metal::min(schedule.end - behind, schedule.chunks);
  return Chunks{first, uint(metal::max(end - first, 0))};  // NOLINT
}

#endif  // K2_CSRC_MPS_KERNELS_MUTUAL_INFORMATION_SCHEDULE_H_

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

#include <metal_stdlib>

#include "k2/csrc/mps/kernels/log_add.h"
#include "k2/csrc/mps/kernels/mutual_information.h"

// The recursion of MutualInformationCpu() and its derivative.
//
// One threadgroup does one sequence, whose rows are s and whose columns are t.
// A strip is what one simdgroup computes, its chain: kMiLayers rows for each
// lane.  In each step a lane does one cell of each of them, kMiLayers cells
// that do not wait for one another: a row is `apart` columns behind the row
// above it, so that this had what it hands down in the step before.  A lane is
// `skew` columns behind the lane above it.  The result of that comes through a
// shuffle, and kMiDelay steps later: nobody waits for the shuffle either.
//
// kMiColumns steps are a chunk, and what one layer of a strip, a row of each
// lane, reads and writes in a chunk is a tile of threadgroup memory.  A chain
// touches nothing else.  Each layer has kMiFetchers more simdgroups that bring
// inputs, and kMiDrainers that take outputs away.  Fetchers take turns: each
// loads its part of a tile into registers and moves it into the tile kMiAhead
// rounds later.  They do nothing else, so that they wait for device memory at
// no other place.  There are three tiles: one that is filled, one that is
// computed, one that is emptied.
//
// The strips of a threadgroup run at once, each `lag` chunks behind the one
// above it.  The last row of one goes to the next through a ring of threadgroup
// memory.
//
// All simdgroups go through the chunks in step, in rounds: the one barrier
// stands at the end of the loop, where all threads reach it.  Each cell is
// computed by one thread in one order: two runs give the same bits.
//
// If a sequence has more strips than fit, each pass over as many as fit has its
// own threadgroups, and the last row of a pass goes to the next one through
// device memory.  Threadgroups cannot wait for each other, so one of them does
// a slice of the rounds of its pass.  The next dispatch does the next slice,
// and at once slices of the passes below, which need what is done by then: the
// idle cores of a GPU help with a long sequence.  What a slice leaves to the
// next one is the state of its chains, and rings.  So there is no limit to the
// lengths, and cells are the same to the bit however they are sliced.

using namespace metal;

enum {
  kVectors = kMiColumns / 4,               // float4s in a row of a tile
  kTile = kMiSimdWidth * kVectors,         // float4s in a tile
  kTiles = 3,                              // of a layer
  kLayerTiles = kMiLayers * kTile,         // float4s in tiles that lie together
  kStripTiles = kTiles * 2 * kLayerTiles,  // x and y
  kRing = 32,                              // columns in a ring
  kRowsPerAccess = kMiSimdWidth / kMiColumns,  // of a simdgroup, to a tile
  kFetchersPerTile = kMiFetchers / kMiAhead,
  kFetchRowsApart = kRowsPerAccess * kFetchersPerTile,
  kFetches = kMiColumns / kFetchersPerTile,  // of a fetcher, for a tile
  kDrainRowsApart = kRowsPerAccess * kMiDrainers,
  kDrains = kMiColumns / kMiDrainers,  // of a drainer, for a tile
  // A sum at most doubles in a step, and has 127 doublings of room.
  kChunksToNormalize = 32 / kMiColumns,
};

static_assert(kMiColumns == 8 || kMiColumns == 16, "a tile is float4s");
static_assert(kMiSimdWidth % kMiColumns == 0, "an access is whole rows");
static_assert((kMiAhead & (kMiAhead - 1)) == 0, "turns are a bit mask");
static_assert(kMiFetchers % kMiAhead == 0 &&
                  kMiColumns % (kMiFetchers / kMiAhead) == 0 &&
                  kMiColumns % kMiDrainers == 0,
              "a tile is shared equally");
static_assert(kMiDelay == 2, "a chain has one delayed result");
static_assert(kRing == kMiSimdWidth, "each lane saves an entry");
static_assert(3 * kMiColumns <= kRing && (kRing & (kRing - 1)) == 0,
              "a ring holds what is written and not yet read");
static_assert(2 * kMiLayers + 4 <= kMiSavedSize / kMiSimdWidth &&
                  3 * kMiLayers + 2 <= kMiSavedSize / kMiSimdWidth,
              "what a lane saves");
static_assert(kMiMaxThreads <= 1024, "Metal's limit");
static_assert(kMiMaxStrips * (kStripTiles * 16 + kRing * 8) + kRing * 8 + 16 <=
                  32768,
              "Metal's limit of threadgroup memory");

// Stands for -infinity in the recursion, where it would make NaN.  Sums of it
// stay finite, and it absorbs whatever an input may be without being unusual.
constant float kNever = -1.0e30f;
// Scores below this are -infinity, or sums of inputs of such a size that the
// recursion by diagonals has to tell.
constant float kLowestScore = -5.0e29f;
// Inputs that are not at most this are unusual: also infinity and NaN.
constant float kLargestInput = 1.0e20f;

// Stands for a share that nobody needs, to tell that not all are finite.
constant float kNotAllFinite = 2.0f;

constant float kLog2 = 0.69314718055994531f;

// The part of a sequence to process: rows s_begin..s_end and columns
// t_begin..t_end of p, both ends included.
struct Boundary {
  int s_begin, t_begin, s_end, t_end;
};

inline Boundary GetBoundary(constant MutualInformationParams &params,
                            device const long *boundary, uint b) {
  Boundary ans = {0, 0, params.S, params.T};
  if (params.has_boundary) {
    ans.s_begin = int(boundary[4 * b]);
    ans.t_begin = int(boundary[4 * b + 1]);
    ans.s_end = int(boundary[4 * b + 2]);
    ans.t_end = int(boundary[4 * b + 3]);
  }
  return ans;
}

// When which simdgroup of a pass does what.
struct Schedule {
  int S, T;   // the last row and the last column, counted from the boundary
  int apart;  // columns that a row is behind the one above it of its lane
  int skew;   // columns that a lane is behind the lane above it
  int carry;  // steps from the last row of a strip to the first of the next
  int pad;    // empty columns before the first
  int last_chunk;  // that of the last cell
  int chunks;      // that have cells
  int lag;         // chunks that a strip is behind the strip above it
  int first_row;   // of this pass
  int strips;      // that this pass has
  bool has_next;   // whether there are rows below
  int begin, end;  // the rounds of this slice; in round 0 a pass computes the
                   // first chunk of its first strip
  bool continues;  // whether more slices of this pass follow
};

// sliced: whether there are more dispatches; if not, all is one slice of one
// pass.
// strips: those that a threadgroup can do at once.
// pad_to_end: whether the last cell is to be in the last step of its chunk, and
// nothing is to be done after it.
inline Schedule MakeSchedule(constant MutualInformationParams &params,
                             Boundary range, bool sliced, int pass, int strips,
                             bool pad_to_end) {
  Schedule ans;
  const int t_offset = params.t_offset;
  ans.S = max(range.s_end - range.s_begin, 0);
  ans.T = max(range.t_end - range.t_begin, 0);
  // What a row hands down is t_offset columns ahead of where it is used.
  ans.apart = 1 + t_offset;
  const int layers_apart = (kMiLayers - 1) * ans.apart;
  ans.skew = kMiDelay + layers_apart + t_offset;
  const int height = (kMiSimdWidth - 1) * ans.skew + layers_apart;
  ans.carry = height + t_offset;
  const int last = ans.T + ans.S % kMiRows / kMiLayers * ans.skew +
                   ans.S % kMiLayers * ans.apart;
  ans.pad = pad_to_end ? kMiColumns - 1 - last % kMiColumns : 0;
  // All lanes, unless there are fewer rows.
  const int last_lane = min(kMiSimdWidth - 1, ans.S / kMiLayers);
  ans.chunks =
      (ans.T + ans.pad + last_lane * ans.skew + layers_apart) / kMiColumns + 1;
  ans.last_chunk = (last + ans.pad) / kMiColumns;
  ans.lag = (kMiColumns - 1 + ans.carry) / kMiColumns + 1;
  ans.first_row = pass * strips * kMiRows;
  const int strips_left = ans.S / kMiRows + 1 - pass * strips;
  ans.strips = sliced ? clamp(strips_left, 0, strips) : strips_left;
  ans.has_next = sliced && strips_left > strips;
  // The strip of the last row ends last, since those above it have at most
  // `lag` more chunks.
  const int rounds =
      (ans.strips - 1) * ans.lag +
      (pad_to_end && !ans.has_next ? ans.last_chunk + 1 : ans.chunks);
  ans.begin = 0;
  ans.end = rounds;
  if (sliced) {
    const int begin = params.begin - pass * params.delay;
    ans.begin = max(begin, 0);
    ans.end = ans.strips == 0 ? 0 : min(begin + params.length, rounds);
  }
  ans.continues = ans.end < rounds;
  return ans;
}

// The chunks that a strip computes in a slice.
struct Chunks {
  int first;
  uint number;

  bool Have(int chunk) const { return uint(chunk - first) < number; }
};

inline Chunks GetChunks(Schedule schedule, int strip) {
  if (strip >= schedule.strips) return Chunks{0, 0u};
  const int behind = strip * schedule.lag,
            first = max(schedule.begin - behind, 0),
            end = min(schedule.end - behind, schedule.chunks);
  return Chunks{first, uint(max(end - first, 0))};
}

// How many rounds a threadgroup loops.  Fetchers begin before there is anything
// to compute, and drainers end after it.
inline int NumRounds(Schedule schedule) {
  return schedule.end > schedule.begin
             ? kMiAhead + schedule.end - schedule.begin + 2
             : 0;
}

// Who a simdgroup is.
enum Kind { kChain, kFetcher, kDrainer };

struct Role {
  Kind kind;
  int strip;  // of those at once
  int layer;  // of a fetcher or drainer
  int index;  // of those that its layer has
};

inline Role GetRole(int simdgroup, int num_simdgroups) {
  const int strips = num_simdgroups / kMiSimdgroupsPerStrip,
            fetcher = simdgroup - strips,
            drainer = fetcher - strips * kMiLayers * kMiFetchers;
  Role ans = {kChain, simdgroup, 0, 0};
  if (drainer >= 0) {
    const int layer = drainer / kMiDrainers;
    ans = {kDrainer, layer / kMiLayers, layer % kMiLayers,
           drainer % kMiDrainers};
  } else if (fetcher >= 0) {
    const int layer = fetcher / kMiFetchers;
    ans = {kFetcher, layer / kMiLayers, layer % kMiLayers,
           fetcher % kMiFetchers};
  }
  // It is what all lanes have.  A compiler that does not see this keeps the
  // numbers; else it may find them anew in each round, to save registers.  The
  // index is a constant where a layer has one drainer.
  ans.kind = Kind(simd_broadcast_first(int(ans.kind)));
  ans.strip = simd_broadcast_first(ans.strip);
  ans.layer = simd_broadcast_first(ans.layer);
  return ans;
}

// The tile that a strip uses in its first round, and the one after another.
inline int FirstTile(int chunk) { return (chunk + 64 * kTiles) % kTiles; }
inline int NextTile(int tile) { return tile == kTiles - 1 ? 0 : tile + 1; }

// Where float4 number `vector` of a row is in a tile.  Eight lanes that follow
// one another then touch different banks of memory.
inline int TileIndex(int row, int vector) {
  const int rows_apart = 8 / kVectors;
  return row * kVectors + (vector ^ (row / rows_apart % kVectors));
}

// The same for one float, in a row that is `further` below.  The order of the
// float4s comes again every 8 rows, and the compiler is to see that.
inline int TileElement(int row, int column, int further) {
  return TileIndex(row + further % 8, column / 4) * 4 + column % 4 +
         further / 8 * 8 * kMiColumns;
}

// p = r + log(m).  Moves powers of two from m, which is positive, to r.
inline void Normalize(thread float &r, thread float &m) {
  const int exponent = int(as_type<uint>(m) >> 23) - 127;
  r = fma(float(exponent), kLog2, r);
  m = as_type<float>(as_type<uint>(m) - (uint(exponent) << 23));
}

// The recursion of one sequence by diagonals in device memory, by the
// expressions of the CPU and from operands in the same order, so infinities
// and NaN go where they go there.  Much slower than the chains.
//
// Pointers are to the sequence.  Leaves in p what the forward kernel does.
template <typename Input>
inline void ForwardByDiagonals(constant MutualInformationParams &params,
                               Boundary range, device const Input *px,
                               device const Input *py, device float *p,
                               device float *ans, int thread_index,
                               int num_threads) {
  const int T = params.T, t_offset = params.t_offset;
  const int px_stride = T + 1 + t_offset, py_stride = T, p_stride = T + 1;
  const int num_rows = range.s_end - range.s_begin + 1,
            num_cols = range.t_end - range.t_begin + 1,
            num_diagonals = num_rows + num_cols - 1;

  for (int diagonal = 0; diagonal < num_diagonals; ++diagonal) {
    const int first_row = max(0, diagonal - num_cols + 1),
              last_row = min(diagonal, num_rows - 1);
    for (int row = first_row + thread_index; row <= last_row;
         row += num_threads) {
      const int s = range.s_begin + row, t = range.t_begin + diagonal - row;
      float value;
      if (s == range.s_begin && t == range.t_begin) {
        value = 0.0f;
      } else if (t == range.t_begin) {
        value = t_offset != 0 ? -INFINITY
                              : p[(s - 1) * p_stride + t] +
                                    float(px[(s - 1) * px_stride + t]);
      } else if (s == range.s_begin) {
        value = p[s * p_stride + t - 1] + float(py[s * py_stride + t - 1]);
      } else {
        value =
            LogAdd(p[(s - 1) * p_stride + t + t_offset] +
                       float(px[(s - 1) * px_stride + t + t_offset]),
                   p[s * p_stride + t - 1] + float(py[s * py_stride + t - 1]));
      }
      p[s * p_stride + t] = value;
      if (s == range.s_end && t == range.t_end) *ans = value;
    }
    threadgroup_barrier(mem_flags::mem_device);
  }

  // From the end, since a cell needs the scores of those before it.
  for (int diagonal = num_diagonals - 1; diagonal >= 0; --diagonal) {
    const int first_row = max(0, diagonal - num_cols + 1),
              last_row = min(diagonal, num_rows - 1);
    for (int row = first_row + thread_index; row <= last_row;
         row += num_threads) {
      const int s = range.s_begin + row, t = range.t_begin + diagonal - row;
      float share;
      if (s == range.s_begin && t == range.t_begin) {
        share = kNotAllFinite;
      } else if (t == range.t_begin) {
        share = 1.0f;
      } else if (s == range.s_begin) {
        share = 0.0f;
      } else {
        const float term1 = p[(s - 1) * p_stride + t + t_offset] +
                            float(px[(s - 1) * px_stride + t + t_offset]);
        float total = p[s * p_stride + t];
        if (total - total != 0.0f) total = 0.0f;
        share = precise::exp(term1 - total);
      }
      p[s * p_stride + t] = share;
    }
    threadgroup_barrier(mem_flags::mem_device);
  }
}

// The derivative of ForwardByDiagonals().
//
// p, px_grad and py_grad are to the last cell of the range, and what comes from
// it.
// diagonals  [3][S + 1], for the gradients of the cells of the last diagonals
template <typename Output>
inline void BackwardByDiagonals(constant MutualInformationParams &params,
                                Boundary range, device const float *p,
                                float ans_grad, device Output *px_grad,
                                device Output *py_grad, device float *diagonals,
                                int thread_index, int num_threads) {
  const int T = params.T, t_offset = params.t_offset;
  const int px_stride = T + 1 + t_offset, py_stride = T, p_stride = T + 1;
  const int num_rows = range.s_end - range.s_begin + 1,
            num_cols = range.t_end - range.t_begin + 1,
            num_diagonals = num_rows + num_cols - 1;

  for (int diagonal = 0; diagonal < num_diagonals; ++diagonal) {
    const int first_row = max(0, diagonal - num_cols + 1),
              last_row = min(diagonal, num_rows - 1);
    device float *grads = diagonals + diagonal % 3 * (params.S + 1);
    device const float *right = diagonals + (diagonal + 2) % 3 * (params.S + 1);
    device const float *below =
        diagonals + (diagonal + 2 + t_offset) % 3 * (params.S + 1) - 1;
    for (int row = first_row + thread_index; row <= last_row;
         row += num_threads) {
      // Both are counted from the end.
      const int column = diagonal - row;
      float grad = diagonal == 0 ? ans_grad : 0.0f;
      // From the cell below, or the one right of that if t_offset is not 0.
      if (row > 0 && column + t_offset >= 0) {
        const float share = p[-((row - 1) * p_stride + column + t_offset)];
        if (share - share == 0.0f) grad += share * below[row];
      }
      if (column > 0) {
        const float share = p[-(row * p_stride + column - 1)];
        if (share - share == 0.0f) grad += (1.0f - share) * right[row];
      }
      grads[row] = grad;
      const float share = p[-(row * p_stride + column)];
      const bool finite = share - share == 0.0f;
      if (row + 1 < num_rows && column + 1 - t_offset <= num_cols)
        px_grad[-(row * px_stride + column)] =
            Output(finite ? share * grad : 0.0f);
      if (column + 1 < num_cols)
        py_grad[-(row * py_stride + column)] =
            Output(finite ? (1.0f - share) * grad : 0.0f);
    }
    threadgroup_barrier(mem_flags::mem_device);
  }
}

// Of a chain: r and m of its rows, and of the row above them.
struct ForwardState {
  float r[kMiLayers], m[kMiLayers], delayed_r, delayed_m;
};

inline void Reset(thread ForwardState &state) {
#pragma unroll
  for (int j = 0; j < kMiLayers; ++j) {
    state.r[j] = kNever;
    state.m[j] = 1.0f;
  }
  state.delayed_r = kNever;
  state.delayed_m = 1.0f;
}

// What one slice leaves to the next: the state of the chain and the ring that
// it reads, an element of each lane at a time.  `saved` is that of the strip.
inline void Save(ForwardState state, threadgroup const float4 *ring, int lane,
                 device float *saved) {
  saved += lane;
#pragma unroll
  for (int j = 0; j < kMiLayers; ++j) {
    saved[2 * j * kMiSimdWidth] = state.r[j];
    saved[(2 * j + 1) * kMiSimdWidth] = state.m[j];
  }
  saved += 2 * kMiLayers * kMiSimdWidth;
  const float2 entry = ((threadgroup const float2 *)ring)[lane];
  saved[0] = state.delayed_r;
  saved[kMiSimdWidth] = state.delayed_m;
  saved[2 * kMiSimdWidth] = entry.x;
  saved[3 * kMiSimdWidth] = entry.y;
}

inline void Restore(thread ForwardState &state, threadgroup float4 *ring,
                    int lane, device const float *saved) {
  saved += lane;
#pragma unroll
  for (int j = 0; j < kMiLayers; ++j) {
    state.r[j] = saved[2 * j * kMiSimdWidth];
    state.m[j] = saved[(2 * j + 1) * kMiSimdWidth];
  }
  saved += 2 * kMiLayers * kMiSimdWidth;
  state.delayed_r = saved[0];
  state.delayed_m = saved[kMiSimdWidth];
  ((threadgroup float2 *)ring)[lane] =
      float2(saved[2 * kMiSimdWidth], saved[3 * kMiSimdWidth]);
}

// The chunk of a chain: reads x and y from its tiles, leaves in them, for each
// cell, the sum of paths from the row above and the sum of all, relative to r.
//
// ring        to read the row above from, (r, m) of two columns in an element
// ring_begin  the element to begin at
// next        the elements of the ring below to write the last row to
inline void ForwardChunk(threadgroup float4 *x_tiles,
                         threadgroup float4 *y_tiles,
                         threadgroup const float4 *ring, int ring_begin,
                         threadgroup float4 *next, int lane,
                         thread ForwardState &state) {
  // All of them first, so that nothing waits for a load within the chain.
  float4 x[kVectors][kMiLayers], y[kVectors][kMiLayers], above[kVectors][2];
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    const int at = TileIndex(lane, vector);
#pragma unroll
    for (int j = 0; j < kMiLayers; ++j) {
      x[vector][j] = x_tiles[j * kTile + at];
      y[vector][j] = y_tiles[j * kTile + at];
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
      above[vector][i] = ring[(ring_begin + 2 * vector + i) & (kRing / 2 - 1)];
  }

#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    float4 last[2];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float4 two = above[vector][i / 2];
      const float ring_r = i % 2 == 0 ? two.x : two.z,
                  ring_m = i % 2 == 0 ? two.y : two.w;
      const float first_r = lane == 0 ? ring_r : state.delayed_r,
                  first_m = lane == 0 ? ring_m : state.delayed_m;
      state.delayed_r = simd_shuffle_up(state.r[kMiLayers - 1], 1);
      state.delayed_m = simd_shuffle_up(state.m[kMiLayers - 1], 1);
      // From below, since a row takes what the one above had a step ago.
#pragma unroll
      for (int j = kMiLayers - 1; j >= 0; --j) {
        const float r_above = j == 0 ? first_r : state.r[max(j - 1, 0)],
                    m_above = j == 0 ? first_m : state.m[max(j - 1, 0)];
        const float from_above = r_above + x[vector][j][i],
                    from_left = state.r[j] + y[vector][j][i],
                    diff = from_above - from_left,
                    ratio = fast::exp(-metal::abs(diff));
        const bool above_is_larger = diff > 0.0f;
        const float m_from_above = m_above * (above_is_larger ? 1.0f : ratio);
        state.r[j] = max(from_above, from_left);
        state.m[j] =
            fma(state.m[j], above_is_larger ? ratio : 1.0f, m_from_above);
        x[vector][j][i] = m_from_above;
        y[vector][j][i] = state.m[j];
      }
      const float2 pair =
          float2(state.r[kMiLayers - 1], state.m[kMiLayers - 1]);
      if (i % 2 == 0)
        last[i / 2].xy = pair;
      else
        last[i / 2].zw = pair;
    }

    const int at = TileIndex(lane, vector);
#pragma unroll
    for (int j = 0; j < kMiLayers; ++j) {
      x_tiles[j * kTile + at] = x[vector][j];
      y_tiles[j * kTile + at] = y[vector][j];
    }
    if (lane == kMiSimdWidth - 1) {
      next[2 * vector] = last[0];
      next[2 * vector + 1] = last[1];
    }
  }
}

// px        [B][S][T + 1 + t_offset], of float, half or bfloat
// py        [B][S + 1][T], of the type of px
// boundary  [B][4]: s_begin, t_begin, s_end, t_end; not read if
//           !params.has_boundary
// p         [B][S + 1][T + 1], written inside of the boundary.  NOT the score
//           of a cell, but what the backward kernel needs of it: the share
//           that came from s - 1, exp(score[s-1][t+t_offset] +
//           px[s-1][t+t_offset] - score[s][t]).  It is 1 if t == t_begin, else
//           0 if s == s_begin.  If that of s_begin, t_begin is kNotAllFinite,
//           others may be anything, and what is not finite stands for no
//           gradient.
// ans       [B], the score of s_end, t_end
// scratch   [B][scratch_stride].  For slices: the last row of a pass,
//           [2][scratch_columns] (r and m), and what slices leave to the next,
//           [strips of all passes][kMiSavedSize].  For the recursion by
//           diagonals: [3][S + 1], and one element that is not 0 if it has to
//           do the sequence, where slices are to know of each other.
// sliced    whether there are more dispatches than this; if not, the sequence
//           has no more strips than the threadgroup does at once
//
// The threadgroup has kMiThreadsPerStrip threads for each strip at once.
//
// A score is kept as r + log(m): r is the score of the best path and m the sum
// of all paths relative to it.  So the chain of operations that one cell waits
// for in the one before has an addition and a maximum, and one fma for m.
template <typename Input>
METAL_FUNC void Forward(bool sliced, device const Input *px,
                        device const Input *py, device const long *boundary,
                        device float *p, device float *ans,
                        device float *scratch,
                        constant MutualInformationParams &params, uint group,
                        uint lane_index, uint simdgroup_index,
                        uint num_simdgroups, threadgroup float4 *tiles,
                        threadgroup float4 *rings,
                        threadgroup atomic_uint &unusual) {
  const int t_offset = params.t_offset;
  const int px_stride = params.T + 1 + t_offset, py_stride = params.T,
            p_stride = params.T + 1;
  const uint num_sequences = uint(params.num_sequences),
             b = sliced ? group % num_sequences : group;
  const int pass = sliced ? params.first_pass + int(group / num_sequences) : 0;
  px += ulong(b) * ulong(params.S) * ulong(px_stride);
  py += ulong(b) * ulong(params.S + 1) * ulong(py_stride);
  p += ulong(b) * ulong(params.S + 1) * ulong(p_stride);
  ans += b;
  scratch += ulong(b) * ulong(params.scratch_stride);

  const Role role = GetRole(int(simdgroup_index), int(num_simdgroups));
  const Boundary range = GetBoundary(params, boundary, b);
  const int strips = int(num_simdgroups) / kMiSimdgroupsPerStrip;
  const Schedule schedule =
      MakeSchedule(params, range, sliced, pass, strips, true);
  const int S = schedule.S, T = schedule.T, skew = schedule.skew;

  threadgroup float4 *strip_tiles = tiles + role.strip * kStripTiles;
  threadgroup float4 *ring = rings + role.strip * kRing / 2;

  // Of a chain.
  ForwardState state;
  Reset(state);

  // Of a fetcher: what it fetched.
  Input x[kFetches], y[kFetches];
  float r_above = kNever, m_above = 1.0f;
  // Strips take turns in another order, so that those at work in a round are
  // spread over the schedulers of a core, which get simdgroups in order.
  const int turn = (role.index + role.strip) % kMiAhead,
            first_access =
                role.kind == kFetcher ? role.index / kMiAhead : role.index;

  // If the range is empty, clamped indexes must still lie in px and py.
  device const Input *px_begin =
      px + min(range.s_begin, max(params.S - 1, 0)) * px_stride +
      min(range.t_begin, max(px_stride - 1, 0));
  device const Input *py_begin = py + range.s_begin * py_stride +
                                 min(range.t_begin, max(py_stride - 1, 0));
  device float *p_begin = p + range.s_begin * p_stride + range.t_begin;
  const uint last_px = uint(max(S - 1, 0) * px_stride + max(T + t_offset, 0)),
             last_py = uint(S * py_stride + max(T - 1, 0)),
             last_column = uint(max(params.scratch_columns - 1, 0));
  const int px_apart = kFetchRowsApart * (kMiLayers * px_stride - skew),
            py_apart = kFetchRowsApart * (kMiLayers * py_stride - skew),
            p_apart = kDrainRowsApart * (kMiLayers * p_stride - skew),
            columns = params.scratch_columns;
#pragma unroll
  for (int i = 0; i < kFetches; ++i) x[i] = y[i] = Input(0.0f);
  if (simdgroup_index == 0 && lane_index == 0)
    atomic_store_explicit(&unusual, 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);

  // A chunk is moved into its tile in the round before it is computed, and
  // stored in the round after that.
  int chunk = schedule.begin - role.strip * schedule.lag - kMiAhead -
              int(role.kind == kChain) - 2 * int(role.kind == kDrainer);
  int tile = FirstTile(chunk);
  const Chunks chunks = GetChunks(schedule, role.strip);
  const int lane = int(lane_index),
            first_row = schedule.first_row + role.strip * kMiRows;
  device float *saved =
      scratch + 2 * columns + (pass * strips + role.strip) * kMiSavedSize;
  if (sliced && role.kind == kChain && role.strip < schedule.strips) {
    if (schedule.begin > 0)
      Restore(state, ring, lane, saved);
    else
      ((threadgroup float2 *)ring)[lane] = float2(0.0f);  // Save() reads it
  }
  // The first element of a tile that a fetcher or a drainer handles: its row,
  // and its column in the first chunk.
  const int tile_row = lane / kMiColumns + kRowsPerAccess * first_access,
            tile_column = lane % kMiColumns,
            row = first_row + tile_row * kMiLayers + role.layer,
            tile_t = tile_column - tile_row * skew -
                     role.layer * schedule.apart - schedule.pad,
            x_begin = (row - 1) * px_stride + tile_t + t_offset,
            y_begin = row * py_stride + tile_t - 1;
  const bool reads_scratch =
                 schedule.first_row > 0 && row == schedule.first_row,
             fills_scratch = schedule.has_next &&
                             role.strip + 1 == schedule.strips &&
                             role.layer == 0 && tile_row == 0;
  const int rounds = NumRounds(schedule);
  for (int round = 0; round < rounds; ++round) {
    const int first_step = chunk * kMiColumns;
    const bool has_work = chunks.Have(chunk);
    threadgroup float4 *x_tiles = strip_tiles + tile * 2 * kLayerTiles;
    threadgroup float4 *y_tiles = x_tiles + kLayerTiles;

    if (role.kind == kChain) {
      if (has_work) {
        if (chunk == 0) Reset(state);
        threadgroup float4 *next =
            ring + kRing / 2 + (first_step & (kRing - 1)) / 2;
        ForwardChunk(x_tiles, y_tiles, ring, (first_step + schedule.carry) / 2,
                     next, lane, state);
        if (chunk == schedule.last_chunk) {
#pragma unroll
          for (int j = 0; j < kMiLayers; ++j) {
            if (first_row + lane * kMiLayers + j != S) continue;
            const float score = state.r[j] + precise::log(state.m[j]);
            *ans = score;
            if (!(score >= kLowestScore))
              atomic_store_explicit(&unusual, 1u, memory_order_relaxed);
          }
        }
        if (chunk % kChunksToNormalize == kChunksToNormalize - 1) {
#pragma unroll
          for (int j = 0; j < kMiLayers; ++j) Normalize(state.r[j], state.m[j]);
          Normalize(state.delayed_r, state.delayed_m);
        }
      }
    } else if (role.kind == kFetcher) {
      if ((round & (kMiAhead - 1)) == turn) {
        if (has_work) {
          threadgroup float *x_tile = (threadgroup float *)(x_tiles +
                                                            role.layer * kTile),
                            *y_tile = x_tile + 4 * kLayerTiles;
          bool x_usual = true, y_usual = true;
#pragma unroll
          for (int i = 0; i < kFetches; ++i) {
            const int at =
                TileElement(tile_row, tile_column, i * kFetchRowsApart);
            // Without a branch, unlike &&.
            const float this_x = float(x[i]), this_y = float(y[i]);
            x_usual = x_usual & (this_x <= kLargestInput);
            y_usual = y_usual & (this_y <= kLargestInput);
            x_tile[at] = max(this_x, kNever);
            y_tile[at] = max(this_y, kNever);
          }
          if (!(x_usual & y_usual)) {
            // Where there is no cell, nothing unusual may get into the others.
            const int t = first_step + tile_t, x_index = x_begin + first_step,
                      y_index = y_begin + first_step;
#pragma unroll 1
            for (int i = 0; i < kFetches; ++i) {
              const int further = i * kFetchRowsApart,
                        at = TileElement(tile_row, tile_column, further),
                        this_row = row + further * kMiLayers,
                        this_t = t - further * skew;
              const bool exists = this_row <= S && this_t <= T;
              if (!(float(
                        px_begin[min(uint(x_index + i * px_apart), last_px)]) <=
                    kLargestInput)) {
                if (exists && this_row > 0 && this_t + t_offset >= 0)
                  atomic_store_explicit(&unusual, 1u, memory_order_relaxed);
                else
                  x_tile[at] = kNever;
              }
              if (!(float(
                        py_begin[min(uint(y_index + i * py_apart), last_py)]) <=
                    kLargestInput)) {
                if (exists && this_t > 0)
                  atomic_store_explicit(&unusual, 1u, memory_order_relaxed);
                else
                  y_tile[at] = kNever;
              }
            }
          }
          if (role.strip == 0 && row == schedule.first_row) {
            const int step = first_step + lane;
            threadgroup float2 *entry = (threadgroup float2 *)ring +
                                        ((step + schedule.carry) & (kRing - 1));
            if (row > 0) {
              *entry = float2(r_above, m_above);
            } else {
              // To the first row comes only what the ring has for it.
              x_tile[TileElement(0, tile_column, 0)] = 0.0f;
              *entry = float2(step == schedule.pad ? 0.0f : kNever, 1.0f);
            }
          }
        }

        // No branch depends on anything here, and nothing looks at the
        // results: so nobody waits for them before they are needed.  Where
        // there is no cell, some other element of the sequence is read, and the
        // chain makes nothing of it that a cell would see: all that comes from
        // rows and columns before the first is lost in kNever.
        const int next_step = first_step + kMiAhead * kMiColumns,
                  x_index = x_begin + next_step, y_index = y_begin + next_step;
#pragma unroll
        for (int i = 0; i < kFetches; ++i) {
          x[i] = px_begin[min(uint(x_index + i * px_apart), last_px)];
          y[i] = py_begin[min(uint(y_index + i * py_apart), last_py)];
        }
        if (reads_scratch && chunks.Have(chunk + kMiAhead)) {
          const uint above =
              min(uint(next_step + lane + schedule.carry), last_column);
          r_above = scratch[above];
          m_above = scratch[columns + above];
        }
      }
    } else {
      if (has_work) {
        if (fills_scratch) {
          // The ring has it still, one chunk later.
          const int step = first_step + lane;
          const float2 pair =
              ((threadgroup const float2 *)ring)[kRing + (step & (kRing - 1))];
          scratch[step] = pair.x;
          scratch[columns + step] = pair.y;
        }
        threadgroup const float *x_tile =
            (threadgroup const float *)(x_tiles + role.layer * kTile);
        float shares[kDrains];
#pragma unroll
        for (int i = 0; i < kDrains; ++i) {
          const int at =
              TileElement(tile_row, tile_column, i * kDrainRowsApart);
          const float part = x_tile[at], all = x_tile[4 * kLayerTiles + at];
          // Exactly 1 also if division is not exact.
          shares[i] = part == all ? 1.0f : fast::divide(part, all);
        }
        const int t = first_step + tile_t, first_t = first_step - schedule.pad;
        device float *out = p_begin + row * p_stride + t;
        if (first_row + kMiRows - 1 <= S && first_t >= schedule.carry + 1 &&
            first_t + kMiColumns - 1 <= T) {
          // All of the tile are cells.
#pragma unroll
          for (int i = 0; i < kDrains; ++i) out[i * p_apart] = shares[i];
        } else {
#pragma unroll
          for (int i = 0; i < kDrains; ++i) {
            const int further = i * kDrainRowsApart;
            if (row + further * kMiLayers <= S &&
                uint(t - further * skew) <= uint(T))
              out[i * p_apart] = shares[i];
          }
        }
      }
    }
    ++chunk;
    tile = NextTile(tile);
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  }

  if (sliced && role.kind == kChain && schedule.continues &&
      role.strip < schedule.strips) {
    Save(state, ring, lane, saved);
  }

  bool all_usual = atomic_load_explicit(&unusual, memory_order_relaxed) == 0u;
  if (sliced) {
    // In the last dispatch all other passes are done.
    device float *seen = scratch + params.scratch_stride - 1;
    const bool is_first = pass == 0 && schedule.begin == 0;
    if (simdgroup_index == 0 && lane == 0 && (is_first || !all_usual))
      *seen = all_usual ? 0.0f : 1.0f;
    threadgroup_barrier(mem_flags::mem_device);
    all_usual = !params.is_last || *seen == 0.0f;
  }
  if (!all_usual)
    ForwardByDiagonals(params, range, px, py, p, ans,
                       int(simdgroup_index) * kMiSimdWidth + lane,
                       int(num_simdgroups) * kMiSimdWidth);
}

#define K2_FORWARD(name, Input, sliced)                                     \
  [[max_total_threads_per_threadgroup(kMiMaxThreads)]]                      \
  kernel void name(device const Input *px [[buffer(0)]],                    \
                   device const Input *py [[buffer(1)]],                    \
                   device const long *boundary [[buffer(2)]],               \
                   device float *p [[buffer(3)]],                           \
                   device float *ans [[buffer(4)]],                         \
                   device float *scratch [[buffer(5)]],                     \
                   constant MutualInformationParams &params [[buffer(6)]],  \
                   uint group [[threadgroup_position_in_grid]],             \
                   uint lane_index [[thread_index_in_simdgroup]],           \
                   uint simdgroup_index [[simdgroup_index_in_threadgroup]], \
                   uint num_simdgroups [[simdgroups_per_threadgroup]]) {    \
    threadgroup float4 tiles[kMiMaxStrips * kStripTiles];                   \
    threadgroup float4 rings[(kMiMaxStrips + 1) * kRing / 2];               \
    threadgroup atomic_uint unusual;                                        \
    Forward(sliced, px, py, boundary, p, ans, scratch, params, group,       \
            lane_index, simdgroup_index, num_simdgroups, tiles, rings,      \
            unusual);                                                       \
  }

K2_FORWARD(mutual_information_forward, float, false)
K2_FORWARD(mutual_information_forward_slice, float, true)
K2_FORWARD(mutual_information_forward_half, half, false)
K2_FORWARD(mutual_information_forward_half_slice, half, true)
K2_FORWARD(mutual_information_forward_bfloat, bfloat, false)
K2_FORWARD(mutual_information_forward_bfloat_slice, bfloat, true)

// Of a chain: the gradients of its rows, and what of them goes to the row above
// and to the column to the left.
struct BackwardState {
  float grad[kMiLayers], to_left[kMiLayers], to_above[kMiLayers], delayed;
};

inline void Reset(thread BackwardState &state) {
#pragma unroll
  for (int j = 0; j < kMiLayers; ++j)
    state.grad[j] = state.to_left[j] = state.to_above[j] = 0.0f;
  state.delayed = 0.0f;
}

inline void Save(BackwardState state, threadgroup const float2 *ring, int lane,
                 device float *saved) {
  saved += lane;
#pragma unroll
  for (int j = 0; j < kMiLayers; ++j) {
    saved[3 * j * kMiSimdWidth] = state.grad[j];
    saved[(3 * j + 1) * kMiSimdWidth] = state.to_left[j];
    saved[(3 * j + 2) * kMiSimdWidth] = state.to_above[j];
  }
  saved += 3 * kMiLayers * kMiSimdWidth;
  saved[0] = state.delayed;
  saved[kMiSimdWidth] = ((threadgroup const float *)ring)[lane];
}

inline void Restore(thread BackwardState &state, threadgroup float2 *ring,
                    int lane, device const float *saved) {
  saved += lane;
#pragma unroll
  for (int j = 0; j < kMiLayers; ++j) {
    state.grad[j] = saved[3 * j * kMiSimdWidth];
    state.to_left[j] = saved[(3 * j + 1) * kMiSimdWidth];
    state.to_above[j] = saved[(3 * j + 2) * kMiSimdWidth];
  }
  saved += 3 * kMiLayers * kMiSimdWidth;
  state.delayed = saved[0];
  ((threadgroup float *)ring)[lane] = saved[kMiSimdWidth];
}

// The chunk of a chain: reads the shares of the row above from a tile, leaves
// the gradients of cells in another.
//
// ring, ring_begin, next  as above, of two columns in an element
inline void BackwardChunk(threadgroup const float4 *share_tiles,
                          threadgroup float4 *grad_tiles,
                          threadgroup const float2 *ring, int ring_begin,
                          threadgroup float2 *next, int lane,
                          thread BackwardState &state) {
  float4 shares[kVectors][kMiLayers];
  float2 below[kVectors][2];
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    const int at = TileIndex(lane, vector);
#pragma unroll
    for (int j = 0; j < kMiLayers; ++j)
      shares[vector][j] = share_tiles[j * kTile + at];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      below[vector][i] = ring[(ring_begin + 2 * vector + i) & (kRing / 2 - 1)];
  }

#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    float4 grads[kMiLayers];
    float2 last[2];

#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float first =
          lane == 0 ? below[vector][i / 2][i % 2] : state.delayed;
      state.delayed = simd_shuffle_up(state.to_above[kMiLayers - 1], 1);
      // As in ForwardChunk().
#pragma unroll
      for (int j = kMiLayers - 1; j >= 0; --j) {
        const float share = shares[vector][j][i],
                    from_below = j == 0 ? first : state.to_above[max(j - 1, 0)];
        state.grad[j] = fma(state.to_left[j], state.grad[j], from_below);
        state.to_left[j] = 1.0f - share;
        state.to_above[j] = share * state.grad[j];
        grads[j][i] = state.grad[j];
      }
      last[i / 2][i % 2] = state.to_above[kMiLayers - 1];
    }

    const int at = TileIndex(lane, vector);
#pragma unroll
    for (int j = 0; j < kMiLayers; ++j) grad_tiles[j * kTile + at] = grads[j];
    if (lane == kMiSimdWidth - 1) {
      next[2 * vector] = last[0];
      next[2 * vector + 1] = last[1];
    }
  }
}

// boundary, p, scratch  as above; p as the forward kernel left it
// ans_grad              [B], the gradient of ans
// px_grad, py_grad      of the shapes and the type of px and py, written inside
//                       of the boundary
//
// As the forward kernel, but rows and columns are counted from the end.
template <typename Output>
METAL_FUNC void Backward(bool sliced, device const long *boundary,
                         device const float *p, device const float *ans_grad,
                         device Output *px_grad, device Output *py_grad,
                         device float *scratch,
                         constant MutualInformationParams &params, uint group,
                         uint lane_index, uint simdgroup_index,
                         uint num_simdgroups, threadgroup float4 *tiles,
                         threadgroup float2 *rings) {
  const int t_offset = params.t_offset;
  const int px_stride = params.T + 1 + t_offset, py_stride = params.T,
            p_stride = params.T + 1;
  const uint num_sequences = uint(params.num_sequences),
             b = sliced ? group % num_sequences : group;
  const int pass = sliced ? params.first_pass + int(group / num_sequences) : 0;
  const Role role = GetRole(int(simdgroup_index), int(num_simdgroups));
  const Boundary range = GetBoundary(params, boundary, b);
  const int strips = int(num_simdgroups) / kMiSimdgroupsPerStrip;
  const Schedule schedule =
      MakeSchedule(params, range, sliced, pass, strips, false);
  const int S = schedule.S, T = schedule.T, skew = schedule.skew;

  // To the last cell of the range, and what comes from it.
  p += ulong(b) * ulong(params.S + 1) * ulong(p_stride) +
       ulong(range.s_end) * ulong(p_stride) + ulong(range.t_end);
  px_grad += long(b) * long(params.S) * long(px_stride) +
             long(range.s_end - 1) * long(px_stride) +
             long(range.t_end + t_offset);
  py_grad += long(b) * long(params.S + 1) * long(py_stride) +
             long(range.s_end) * long(py_stride) + long(range.t_end - 1);
  scratch += ulong(b) * ulong(params.scratch_stride);
  const float first_grad = ans_grad[b], first_share = p[-(S * p_stride + T)];

  threadgroup float4 *strip_tiles = tiles + role.strip * kStripTiles;
  threadgroup float2 *ring = rings + role.strip * kRing / 2;

  BackwardState state;
  Reset(state);
  float shares[kFetches], below = 0.0f;
  const int turn = (role.index + role.strip) % kMiAhead,
            first_access =
                role.kind == kFetcher ? role.index / kMiAhead : role.index;
  const uint last_p = uint(S * p_stride + T),
             last_column = uint(max(params.scratch_columns - 1, 0));
  const int p_apart = kFetchRowsApart * (kMiLayers * p_stride - skew),
            px_apart = kDrainRowsApart * (kMiLayers * px_stride - skew),
            py_apart = kDrainRowsApart * (kMiLayers * py_stride - skew);
#pragma unroll
  for (int i = 0; i < kFetches; ++i) shares[i] = 0.0f;

  int chunk = schedule.begin - role.strip * schedule.lag - kMiAhead -
              int(role.kind == kChain) - 2 * int(role.kind == kDrainer);
  int tile = FirstTile(chunk);
  const Chunks chunks = GetChunks(schedule, role.strip);
  const int lane = int(lane_index),
            first_row = schedule.first_row + role.strip * kMiRows;
  device float *saved = scratch + 2 * params.scratch_columns +
                        (pass * strips + role.strip) * kMiSavedSize;
  if (sliced && role.kind == kChain && role.strip < schedule.strips) {
    if (schedule.begin > 0)
      Restore(state, ring, lane, saved);
    else
      ((threadgroup float *)ring)[lane] = 0.0f;
  }
  const int tile_row = lane / kMiColumns + kRowsPerAccess * first_access,
            tile_column = lane % kMiColumns,
            row = first_row + tile_row * kMiLayers + role.layer,
            tile_t =
                tile_column - tile_row * skew - role.layer * schedule.apart,
            begin = row * p_stride + tile_t;
  const bool reads_scratch =
                 schedule.first_row > 0 && row == schedule.first_row,
             fills_scratch = schedule.has_next &&
                             role.strip + 1 == schedule.strips &&
                             role.layer == 0 && tile_row == 0;
  const int rounds = NumRounds(schedule);
  for (int round = 0; round < rounds; ++round) {
    const int first_step = chunk * kMiColumns;
    const bool has_work = chunks.Have(chunk);
    threadgroup float4 *share_tiles = strip_tiles + tile * 2 * kLayerTiles;
    threadgroup float4 *grad_tiles = share_tiles + kLayerTiles;

    if (role.kind == kChain) {
      if (has_work) {
        if (chunk == 0) Reset(state);
        threadgroup float2 *next =
            ring + kRing / 2 + (first_step & (kRing - 1)) / 2;
        BackwardChunk(share_tiles, grad_tiles, ring,
                      (first_step + schedule.carry) / 2, next, lane, state);
      }
    } else if (role.kind == kFetcher) {
      if ((round & (kMiAhead - 1)) == turn) {
        if (has_work) {
          threadgroup float *share_tile =
              (threadgroup float *)(share_tiles + role.layer * kTile);
#pragma unroll
          for (int i = 0; i < kFetches; ++i) {
            const int at =
                TileElement(tile_row, tile_column, i * kFetchRowsApart);
            // Outside of the boundary p may be anything, also NaN.
            share_tile[at] = saturate(shares[i]);
          }
          if (role.strip == 0 && row == schedule.first_row) {
            const int step = first_step + lane;
            threadgroup float *entry = (threadgroup float *)ring +
                                       ((step + schedule.carry) & (kRing - 1));
            if (row > 0)
              *entry = below;
            else
              *entry = step == 0 ? first_grad : 0.0f;
          }
        }

        // Where there is no cell, some other element of the sequence is read:
        // of the gradient 0 that is there comes 0 again.
        const int next_step = first_step + kMiAhead * kMiColumns,
                  index = begin + next_step;
#pragma unroll
        for (int i = 0; i < kFetches; ++i)
          shares[i] = p[-long(min(uint(index + i * p_apart), last_p))];
        if (reads_scratch && chunks.Have(chunk + kMiAhead))
          below = scratch[min(uint(next_step + lane + schedule.carry),
                              last_column)];
      }
    } else {
      if (has_work) {
        if (fills_scratch) {
          const int step = first_step + lane;
          scratch[step] =
              ((threadgroup const float *)ring)[kRing + (step & (kRing - 1))];
        }
        threadgroup const float *share_tile =
            (threadgroup const float *)(share_tiles + role.layer * kTile);
        float x_out[kDrains], y_out[kDrains];
#pragma unroll
        for (int i = 0; i < kDrains; ++i) {
          const int at =
              TileElement(tile_row, tile_column, i * kDrainRowsApart);
          const float share = share_tile[at],
                      grad = share_tile[4 * kLayerTiles + at];
          x_out[i] = share * grad;
          y_out[i] = (1.0f - share) * grad;
        }
        const int t = first_step + tile_t;
        device Output *px_out = px_grad - (row * px_stride + t);
        device Output *py_out = py_grad - (row * py_stride + t);
        if (first_row + kMiRows <= S && first_step >= schedule.carry + 1 &&
            first_step + kMiColumns <= T) {
          // All of the tile are elements of both.
#pragma unroll
          for (int i = 0; i < kDrains; ++i) {
            px_out[-i * px_apart] = Output(x_out[i]);
            py_out[-i * py_apart] = Output(y_out[i]);
          }
        } else {
#pragma unroll
          for (int i = 0; i < kDrains; ++i) {
            const int further = i * kDrainRowsApart,
                      this_row = row + further * kMiLayers,
                      column = t - further * skew;
            if (this_row < S && column >= 0 && column <= T + t_offset)
              px_out[-i * px_apart] = Output(x_out[i]);
            if (this_row <= S && column >= 0 && column < T)
              py_out[-i * py_apart] = Output(y_out[i]);
          }
        }
      }
    }
    ++chunk;
    tile = NextTile(tile);
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  }

  if (sliced && role.kind == kChain && schedule.continues &&
      role.strip < schedule.strips) {
    Save(state, ring, lane, saved);
  }

  if ((!sliced || params.is_last) && first_share == kNotAllFinite)
    BackwardByDiagonals(
        params, range, p, first_grad, px_grad, py_grad,
        scratch + params.scratch_stride - 1 - 3 * (params.S + 1),
        int(simdgroup_index) * kMiSimdWidth + lane,
        int(num_simdgroups) * kMiSimdWidth);
}

#define K2_BACKWARD(name, Output, sliced)                                      \
  [[max_total_threads_per_threadgroup(kMiMaxThreads)]]                         \
  kernel void name(device const long *boundary [[buffer(0)]],                  \
                   device const float *p [[buffer(1)]],                        \
                   device const float *ans_grad [[buffer(2)]],                 \
                   device Output *px_grad [[buffer(3)]],                       \
                   device Output *py_grad [[buffer(4)]],                       \
                   device float *scratch [[buffer(5)]],                        \
                   constant MutualInformationParams &params [[buffer(6)]],     \
                   uint group [[threadgroup_position_in_grid]],                \
                   uint lane_index [[thread_index_in_simdgroup]],              \
                   uint simdgroup_index [[simdgroup_index_in_threadgroup]],    \
                   uint num_simdgroups [[simdgroups_per_threadgroup]]) {       \
    threadgroup float4 tiles[kMiMaxStrips * kStripTiles];                      \
    threadgroup float2 rings[(kMiMaxStrips + 1) * kRing / 2];                  \
    Backward(sliced, boundary, p, ans_grad, px_grad, py_grad, scratch, params, \
             group, lane_index, simdgroup_index, num_simdgroups, tiles,        \
             rings);                                                           \
  }

K2_BACKWARD(mutual_information_backward, float, false)
K2_BACKWARD(mutual_information_backward_slice, float, true)
K2_BACKWARD(mutual_information_backward_half, half, false)
K2_BACKWARD(mutual_information_backward_half_slice, half, true)
K2_BACKWARD(mutual_information_backward_bfloat, bfloat, false)
K2_BACKWARD(mutual_information_backward_bfloat_slice, bfloat, true)

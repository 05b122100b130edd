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
// memory.  If there are more strips than fit, more passes follow, and the last
// row of a pass goes through `scratch` in device memory.  So there is no limit
// to the lengths.
//
// All simdgroups go through the chunks in step: the one barrier stands at the
// end of the loop, where all threads reach it.  Each cell is computed by one
// thread in one order: two runs give the same bits.

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
static_assert(3 * kMiColumns <= kRing && (kRing & (kRing - 1)) == 0,
              "a ring holds what is written and not yet read");
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

// When which simdgroup does what.
struct Schedule {
  int S, T;   // the last row and the last column, counted from the boundary
  int apart;  // columns that a row is behind the one above it of its lane
  int skew;   // columns that a lane is behind the lane above it
  int carry;  // steps from the last row of a strip to the first of the next
  int pad;    // empty columns before the first
  int last_chunk;  // that of the last cell
  int chunks;      // that have cells
  int lag;         // chunks that a strip is behind the strip above it
  int strips;      // at once
  int passes;
  int period;  // chunks from a pass to the next
  int rounds;  // chunks until all is done, if all strips have the same
};

// pad_to_end: whether the last cell is to be in the last step of its chunk.
inline Schedule MakeSchedule(Boundary range, int t_offset, int strips,
                             bool pad_to_end) {
  Schedule ans;
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
  const int all_strips = ans.S / kMiRows + 1;
  ans.strips = min(strips, all_strips);
  ans.passes = (all_strips + ans.strips - 1) / ans.strips;
  // A pass begins when the strip below reads no more of the ring that it needs,
  // which is at most two chunks behind what is written; and late enough to
  // fetch from scratch what the pass before it put there.  What nobody needs is
  // read, too: whole rings from pass to pass keep it away from what is written.
  ans.period = max(ans.chunks + 2, ans.strips * ans.lag + kMiAhead + 2);
  const int chunks_of_ring = kRing / kMiColumns;
  ans.period += chunks_of_ring - 1;
  ans.period -= ans.period % chunks_of_ring;
  // Fetchers begin before there is anything to compute.
  ans.rounds = kMiAhead + (ans.passes - 1) * ans.period + ans.chunks + 3 +
               (ans.strips - 1) * ans.lag;
  return ans;
}

// A place in the schedule of one strip: its first row in this pass, and a
// chunk, which is negative before the strip begins.
struct Place {
  int row, chunk;
};

inline Place Advance(Place place, int chunks, Schedule schedule) {
  Place ans = {place.row, place.chunk + chunks};
  if (ans.chunk >= schedule.period) {
    ans.chunk -= schedule.period;
    ans.row += schedule.strips * kMiRows;
  }
  return ans;
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
  if (fetcher < 0) return Role{kChain, simdgroup, 0, 0};
  if (drainer < 0) {
    const int layer = fetcher / kMiFetchers;
    return Role{kFetcher, layer / kMiLayers, layer % kMiLayers,
                fetcher % kMiFetchers};
  }
  const int layer = drainer / kMiDrainers;
  return Role{kDrainer, layer / kMiLayers, layer % kMiLayers,
              drainer % kMiDrainers};
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

// Writes zeros to the tiles of a threadgroup.
inline void ClearTiles(threadgroup float4 *tiles, uint thread_index,
                       uint num_threads) {
  const uint size = num_threads / kMiThreadsPerStrip * uint(kStripTiles);
  for (uint i = thread_index; i < size; i += num_threads)
    tiles[i] = float4(0.0f);
  threadgroup_barrier(mem_flags::mem_threadgroup);
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
inline void ForwardByDiagonals(constant MutualInformationParams &params,
                               Boundary range, device const float *px,
                               device const float *py, device float *p,
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
        value = t_offset != 0
                    ? -INFINITY
                    : p[(s - 1) * p_stride + t] + px[(s - 1) * px_stride + t];
      } else if (s == range.s_begin) {
        value = p[s * p_stride + t - 1] + py[s * py_stride + t - 1];
      } else {
        value = LogAdd(p[(s - 1) * p_stride + t + t_offset] +
                           px[(s - 1) * px_stride + t + t_offset],
                       p[s * p_stride + t - 1] + py[s * py_stride + t - 1]);
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
                            px[(s - 1) * px_stride + t + t_offset];
        float total = p[s * p_stride + t];
        if (total - total != 0.0f) total = 0.0f;
        share = precise::exp(term1 - total);
      }
      p[s * p_stride + t] = share;
    }
    threadgroup_barrier(mem_flags::mem_device);
  }
}

// The derivative of ForwardByDiagonals().  What a cell hands on is what its two
// elements of px_grad and py_grad have, so it needs no memory of its own.
//
// p, px_grad and py_grad are to the last cell of the range, and what comes from
// it.
inline void BackwardByDiagonals(constant MutualInformationParams &params,
                                Boundary range, device const float *p,
                                float ans_grad, device float *px_grad,
                                device float *py_grad, int thread_index,
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
      // Both are counted from the end.
      const int column = diagonal - row;
      float grad = diagonal == 0 ? ans_grad : 0.0f;
      // From the cell below, or the one right of that if t_offset is not 0.
      if (row > 0 && column + t_offset >= 0)
        grad += px_grad[-((row - 1) * px_stride + column + t_offset)];
      if (column > 0) grad += py_grad[-(row * py_stride + column - 1)];
      const float share = p[-(row * p_stride + column)];
      const bool finite = share - share == 0.0f;
      if (row + 1 < num_rows && column + 1 - t_offset <= num_cols)
        px_grad[-(row * px_stride + column)] = finite ? share * grad : 0.0f;
      if (column + 1 < num_cols)
        py_grad[-(row * py_stride + column)] =
            finite ? (1.0f - share) * grad : 0.0f;
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
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    const int at = TileIndex(lane, vector);
    float4 x[kMiLayers], y[kMiLayers];
#pragma unroll
    for (int j = 0; j < kMiLayers; ++j) {
      x[j] = x_tiles[j * kTile + at];
      y[j] = y_tiles[j * kTile + at];
    }
    float4 above[2], last[2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      above[i] = ring[(ring_begin + 2 * vector + i) & (kRing / 2 - 1)];

#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float4 two = above[i / 2];
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
        const float from_above = r_above + x[j][i],
                    from_left = state.r[j] + y[j][i],
                    diff = from_above - from_left,
                    ratio = fast::exp(-metal::abs(diff));
        const bool above_is_larger = diff > 0.0f;
        const float m_from_above = m_above * (above_is_larger ? 1.0f : ratio);
        state.r[j] = max(from_above, from_left);
        state.m[j] =
            fma(state.m[j], above_is_larger ? ratio : 1.0f, m_from_above);
        x[j][i] = m_from_above;
        y[j][i] = state.m[j];
      }
      const float2 pair =
          float2(state.r[kMiLayers - 1], state.m[kMiLayers - 1]);
      if (i % 2 == 0)
        last[i / 2].xy = pair;
      else
        last[i / 2].zw = pair;
    }

#pragma unroll
    for (int j = 0; j < kMiLayers; ++j) {
      x_tiles[j * kTile + at] = x[j];
      y_tiles[j * kTile + at] = y[j];
    }
    if (lane == kMiSimdWidth - 1) {
      next[2 * vector] = last[0];
      next[2 * vector + 1] = last[1];
    }
  }
}

// px        [B][S][T + 1 + t_offset]
// py        [B][S + 1][T]
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
// scratch   [B][2][scratch_stride], not used if all strips fit at once
//
// The threadgroup has kMiThreadsPerStrip threads for each strip at once.
//
// A score is kept as r + log(m): r is the score of the best path and m the sum
// of all paths relative to it.  So the chain of operations that one cell waits
// for in the one before has an addition and a maximum, and one fma for m.
[[max_total_threads_per_threadgroup(kMiMaxThreads)]]
kernel void mutual_information_forward(
    device const float *px [[buffer(0)]], device const float *py [[buffer(1)]],
    device const long *boundary [[buffer(2)]], device float *p [[buffer(3)]],
    device float *ans [[buffer(4)]], device float *scratch [[buffer(5)]],
    constant MutualInformationParams &params [[buffer(6)]],
    uint b [[threadgroup_position_in_grid]],
    uint lane_index [[thread_index_in_simdgroup]],
    uint simdgroup_index [[simdgroup_index_in_threadgroup]],
    uint num_simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float4 tiles[kMiMaxStrips * kStripTiles];
  threadgroup float4 rings[(kMiMaxStrips + 1) * kRing / 2];
  threadgroup atomic_uint unusual;

  const int t_offset = params.t_offset;
  const int px_stride = params.T + 1 + t_offset, py_stride = params.T,
            p_stride = params.T + 1;
  px += ulong(b) * ulong(params.S) * ulong(px_stride);
  py += ulong(b) * ulong(params.S + 1) * ulong(py_stride);
  p += ulong(b) * ulong(params.S + 1) * ulong(p_stride);
  ans += b;
  scratch += ulong(b) * 2 * ulong(params.scratch_stride);

  const Role role = GetRole(int(simdgroup_index), int(num_simdgroups));
  const Boundary range = GetBoundary(params, boundary, b);
  const Schedule schedule = MakeSchedule(
      range, t_offset, int(num_simdgroups) / kMiSimdgroupsPerStrip, true);
  const int S = schedule.S, T = schedule.T, skew = schedule.skew;

  threadgroup float4 *strip_tiles = tiles + role.strip * kStripTiles;
  threadgroup float4 *ring = rings + role.strip * kRing / 2;

  // Of a chain.
  ForwardState state;
  Reset(state);

  // Of a fetcher: what it fetched.
  float x[kFetches], y[kFetches], r_above = kNever, m_above = 1.0f;
  // Strips take turns in another order, so that those at work in a round are
  // spread over the schedulers of a core, which get simdgroups in order.
  const int turn = (role.index + role.strip) % kMiAhead,
            first_access =
                role.kind == kFetcher ? role.index / kMiAhead : role.index;

  // Of a drainer: what it took out of a tile.
  float shares[kDrains];

  // If the range is empty, clamped indexes must still lie in px and py.
  device const float *px_begin =
      px + min(range.s_begin, max(params.S - 1, 0)) * px_stride +
      min(range.t_begin, max(px_stride - 1, 0));
  device const float *py_begin = py + range.s_begin * py_stride +
                                 min(range.t_begin, max(py_stride - 1, 0));
  device float *p_begin = p + range.s_begin * p_stride + range.t_begin;
  const uint last_px = uint(max(S - 1, 0) * px_stride + max(T + t_offset, 0)),
             last_py = uint(S * py_stride + max(T - 1, 0)),
             last_scratch = uint(max(params.scratch_stride - 1, 0));
  const int px_apart = kFetchRowsApart * (kMiLayers * px_stride - skew),
            py_apart = kFetchRowsApart * (kMiLayers * py_stride - skew),
            p_apart = kDrainRowsApart * (kMiLayers * p_stride - skew),
            scratch_stride = params.scratch_stride;
#pragma unroll
  for (int i = 0; i < kFetches; ++i) x[i] = y[i] = 0.0f;
#pragma unroll
  for (int i = 0; i < kDrains; ++i) shares[i] = 0.0f;
  const bool reads_scratch =
                 schedule.passes > 1 && role.strip == 0 && role.layer == 0,
             fills_scratch =
                 schedule.passes > 1 && role.strip + 1 == schedule.strips;
  if (simdgroup_index == 0 && lane_index == 0)
    atomic_store_explicit(&unusual, 0u, memory_order_relaxed);
  // Drainers read tiles of chunks before the first, too, and drop that.
  ClearTiles(tiles, simdgroup_index * kMiSimdWidth + lane_index,
             num_simdgroups * kMiSimdWidth);

  // A chunk is fetched into its tile in the round before it is computed, taken
  // out of it in the round after that, and stored one round later, so that
  // nobody waits for threadgroup memory either.
  Place place = {role.strip * kMiRows, -role.strip * schedule.lag - kMiAhead -
                                           int(role.kind == kChain) -
                                           3 * int(role.kind == kDrainer)};
  int tile = FirstTile(place.chunk);
  const uint num_chunks =
      role.strip < schedule.strips ? uint(schedule.chunks) : 0u;
  // The first element of a tile that a fetcher or a drainer handles; its row in
  // the strip, and its column in the first chunk.
  const int lane = int(lane_index),
            tile_row = lane / kMiColumns + kRowsPerAccess * first_access,
            tile_column = lane % kMiColumns,
            strip_row = tile_row * kMiLayers + role.layer,
            tile_t = tile_column - tile_row * skew -
                     role.layer * schedule.apart - schedule.pad;
  // The last strip ends last, since others are at most `lag` chunks longer; its
  // chain, and what follows that, has no work after the last cell.
  const int rounds = kMiAhead + (schedule.passes - 1) * schedule.period +
                     S / kMiRows % schedule.strips * schedule.lag +
                     schedule.last_chunk + 1 + 3;
  for (int round = 0; round < rounds; ++round) {
    const int first_step = place.chunk * kMiColumns;
    const bool has_work = uint(place.chunk) < num_chunks && place.row <= S;
    const int next_tile = NextTile(tile);
    threadgroup float4 *x_tiles = strip_tiles + tile * 2 * kLayerTiles;
    threadgroup float4 *y_tiles = x_tiles + kLayerTiles;

    if (role.kind == kChain) {
      if (has_work) {
        if (place.chunk == 0) Reset(state);
        threadgroup float4 *next =
            ring + kRing / 2 + (first_step & (kRing - 1)) / 2;
        ForwardChunk(x_tiles, y_tiles, ring, (first_step + schedule.carry) / 2,
                     next, lane, state);
        if (fills_scratch && lane == kMiSimdWidth - 1) {
#pragma unroll
          for (int i = 0; i < kMiColumns; i += 2) {
            const float4 two = next[i / 2];
            scratch[first_step + i] = two.x;
            scratch[first_step + i + 1] = two.z;
            scratch[scratch_stride + first_step + i] = two.y;
            scratch[scratch_stride + first_step + i + 1] = two.w;
          }
        }
        if (place.chunk == schedule.last_chunk) {
#pragma unroll
          for (int j = 0; j < kMiLayers; ++j) {
            if (place.row + lane * kMiLayers + j != S) continue;
            const float score = state.r[j] + precise::log(state.m[j]);
            *ans = score;
            if (!(score >= kLowestScore))
              atomic_store_explicit(&unusual, 1u, memory_order_relaxed);
          }
        }
        if (place.chunk % kChunksToNormalize == kChunksToNormalize - 1) {
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
          bool all_usual = true;
#pragma unroll
          for (int i = 0; i < kFetches; ++i) {
            const int at =
                TileElement(tile_row, tile_column, i * kFetchRowsApart);
            all_usual =
                all_usual && x[i] <= kLargestInput && y[i] <= kLargestInput;
            x_tile[at] = max(x[i], kNever);
            y_tile[at] = max(y[i], kNever);
          }
          if (!all_usual) {
            // Where there is no cell, nothing unusual may get into the others.
            const int row = place.row + strip_row, t = first_step + tile_t,
                      x_index = (row - 1) * px_stride + t + t_offset,
                      y_index = row * py_stride + t - 1;
#pragma unroll 1
            for (int i = 0; i < kFetches; ++i) {
              const int further = i * kFetchRowsApart,
                        at = TileElement(tile_row, tile_column, further),
                        this_row = row + further * kMiLayers,
                        this_t = t - further * skew;
              const bool exists = this_row <= S && this_t <= T;
              if (!(px_begin[min(uint(x_index + i * px_apart), last_px)] <=
                    kLargestInput)) {
                if (exists && this_row > 0 && this_t + t_offset >= 0)
                  atomic_store_explicit(&unusual, 1u, memory_order_relaxed);
                else
                  x_tile[at] = kNever;
              }
              if (!(py_begin[min(uint(y_index + i * py_apart), last_py)] <=
                    kLargestInput)) {
                if (exists && this_t > 0)
                  atomic_store_explicit(&unusual, 1u, memory_order_relaxed);
                else
                  y_tile[at] = kNever;
              }
            }
          }
          if (role.strip == 0 && strip_row == 0) {
            const int step = first_step + lane;
            threadgroup float2 *entry = (threadgroup float2 *)ring +
                                        ((step + schedule.carry) & (kRing - 1));
            if (place.row > 0) {
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
        const Place next = Advance(place, kMiAhead, schedule);
        const int next_step = next.chunk * kMiColumns,
                  row = next.row + strip_row, t = next_step + tile_t,
                  x_index = (row - 1) * px_stride + t + t_offset,
                  y_index = row * py_stride + t - 1;
#pragma unroll
        for (int i = 0; i < kFetches; ++i) {
          x[i] = px_begin[min(uint(x_index + i * px_apart), last_px)];
          y[i] = py_begin[min(uint(y_index + i * py_apart), last_py)];
        }
        if (reads_scratch) {
          const uint above =
              min(uint(next_step + lane + schedule.carry), last_scratch);
          r_above = scratch[above];
          m_above = scratch[scratch_stride + above];
        }
      }
    } else {
      if (has_work) {
        const int row = place.row + strip_row, t = first_step + tile_t,
                  first_t = first_step - schedule.pad;
        device float *out = p_begin + row * p_stride + t;
        if (place.row + kMiRows - 1 <= S && first_t >= schedule.carry + 1 &&
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
      threadgroup const float *next_x_tile =
          (threadgroup const float *)(strip_tiles +
                                      next_tile * 2 * kLayerTiles +
                                      role.layer * kTile);
#pragma unroll
      for (int i = 0; i < kDrains; ++i) {
        const int at = TileElement(tile_row, tile_column, i * kDrainRowsApart);
        const float part = next_x_tile[at],
                    all = next_x_tile[4 * kLayerTiles + at];
        // Exactly 1 also if division is not exact.
        shares[i] = part == all ? 1.0f : fast::divide(part, all);
      }
    }
    place = Advance(place, 1, schedule);
    tile = next_tile;
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  }

  if (atomic_load_explicit(&unusual, memory_order_relaxed) != 0u)
    ForwardByDiagonals(params, range, px, py, p, ans,
                       int(simdgroup_index) * kMiSimdWidth + int(lane_index),
                       int(num_simdgroups) * kMiSimdWidth);
}

// The chunk of a chain: reads the shares of the row above from a tile, leaves
// in it and in another the gradients that go there and to the column to the
// left.
//
// ring, ring_begin, next  as above, of two columns in an element
struct BackwardState {
  float grad[kMiLayers], to_left[kMiLayers], to_above[kMiLayers], delayed;
};

inline void Reset(thread BackwardState &state) {
#pragma unroll
  for (int j = 0; j < kMiLayers; ++j)
    state.grad[j] = state.to_left[j] = state.to_above[j] = 0.0f;
  state.delayed = 0.0f;
}

inline void BackwardChunk(threadgroup float4 *x_tiles,
                          threadgroup float4 *y_tiles,
                          threadgroup const float2 *ring, int ring_begin,
                          threadgroup float2 *next, int lane,
                          thread BackwardState &state) {
#pragma unroll
  for (int vector = 0; vector < kVectors; ++vector) {
    const int at = TileIndex(lane, vector);
    float4 x[kMiLayers], y[kMiLayers];
#pragma unroll
    for (int j = 0; j < kMiLayers; ++j) x[j] = x_tiles[j * kTile + at];
    float2 below[2], last[2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      below[i] = ring[(ring_begin + 2 * vector + i) & (kRing / 2 - 1)];

#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float first = lane == 0 ? below[i / 2][i % 2] : state.delayed;
      state.delayed = simd_shuffle_up(state.to_above[kMiLayers - 1], 1);
      // As in ForwardChunk().
#pragma unroll
      for (int j = kMiLayers - 1; j >= 0; --j) {
        const float share = x[j][i],
                    from_below = j == 0 ? first : state.to_above[max(j - 1, 0)];
        state.grad[j] = fma(state.to_left[j], state.grad[j], from_below);
        state.to_left[j] = 1.0f - share;
        state.to_above[j] = share * state.grad[j];
        x[j][i] = state.to_above[j];
        y[j][i] = state.to_left[j] * state.grad[j];
      }
      last[i / 2][i % 2] = state.to_above[kMiLayers - 1];
    }

#pragma unroll
    for (int j = 0; j < kMiLayers; ++j) {
      x_tiles[j * kTile + at] = x[j];
      y_tiles[j * kTile + at] = y[j];
    }
    if (lane == kMiSimdWidth - 1) {
      next[2 * vector] = last[0];
      next[2 * vector + 1] = last[1];
    }
  }
}

// boundary, p, scratch  as above; p as the forward kernel left it
// ans_grad              [B], the gradient of ans
// px_grad, py_grad      of the shapes of px and py, written inside of the
//                       boundary
//
// As the forward kernel, but rows and columns are counted from the end.
[[max_total_threads_per_threadgroup(kMiMaxThreads)]]
kernel void mutual_information_backward(
    device const long *boundary [[buffer(0)]],
    device const float *p [[buffer(1)]],
    device const float *ans_grad [[buffer(2)]],
    device float *px_grad [[buffer(3)]], device float *py_grad [[buffer(4)]],
    device float *scratch [[buffer(5)]],
    constant MutualInformationParams &params [[buffer(6)]],
    uint b [[threadgroup_position_in_grid]],
    uint lane_index [[thread_index_in_simdgroup]],
    uint simdgroup_index [[simdgroup_index_in_threadgroup]],
    uint num_simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float4 tiles[kMiMaxStrips * kStripTiles];
  threadgroup float2 rings[(kMiMaxStrips + 1) * kRing / 2];

  const int t_offset = params.t_offset;
  const int px_stride = params.T + 1 + t_offset, py_stride = params.T,
            p_stride = params.T + 1;
  const Role role = GetRole(int(simdgroup_index), int(num_simdgroups));
  const Boundary range = GetBoundary(params, boundary, b);
  const Schedule schedule = MakeSchedule(
      range, t_offset, int(num_simdgroups) / kMiSimdgroupsPerStrip, false);
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
  float shares[kFetches], below = 0.0f, x_out[kDrains], y_out[kDrains];
  const int turn = (role.index + role.strip) % kMiAhead,
            first_access =
                role.kind == kFetcher ? role.index / kMiAhead : role.index;
  const bool reads_scratch =
                 schedule.passes > 1 && role.strip == 0 && role.layer == 0,
             fills_scratch =
                 schedule.passes > 1 && role.strip + 1 == schedule.strips;
  const uint last_p = uint(S * p_stride + T),
             last_scratch = uint(max(params.scratch_stride - 1, 0));
  const int p_apart = kFetchRowsApart * (kMiLayers * p_stride - skew),
            px_apart = kDrainRowsApart * (kMiLayers * px_stride - skew),
            py_apart = kDrainRowsApart * (kMiLayers * py_stride - skew);
#pragma unroll
  for (int i = 0; i < kFetches; ++i) shares[i] = 0.0f;
#pragma unroll
  for (int i = 0; i < kDrains; ++i) x_out[i] = y_out[i] = 0.0f;
  // As in the forward kernel.
  ClearTiles(tiles, simdgroup_index * kMiSimdWidth + lane_index,
             num_simdgroups * kMiSimdWidth);

  Place place = {role.strip * kMiRows, -role.strip * schedule.lag - kMiAhead -
                                           int(role.kind == kChain) -
                                           3 * int(role.kind == kDrainer)};
  int tile = FirstTile(place.chunk);
  const uint num_chunks =
      role.strip < schedule.strips ? uint(schedule.chunks) : 0u;
  // As in the forward kernel.
  const int lane = int(lane_index),
            tile_row = lane / kMiColumns + kRowsPerAccess * first_access,
            tile_column = lane % kMiColumns,
            strip_row = tile_row * kMiLayers + role.layer,
            tile_t =
                tile_column - tile_row * skew - role.layer * schedule.apart;
  for (int round = 0; round < schedule.rounds; ++round) {
    const int first_step = place.chunk * kMiColumns;
    const bool has_work = uint(place.chunk) < num_chunks && place.row <= S;
    const int next_tile = NextTile(tile);
    threadgroup float4 *x_tiles = strip_tiles + tile * 2 * kLayerTiles;
    threadgroup float4 *y_tiles = x_tiles + kLayerTiles;

    if (role.kind == kChain) {
      if (has_work) {
        if (place.chunk == 0) Reset(state);
        threadgroup float2 *next =
            ring + kRing / 2 + (first_step & (kRing - 1)) / 2;
        BackwardChunk(x_tiles, y_tiles, ring, (first_step + schedule.carry) / 2,
                      next, lane, state);
        if (fills_scratch && lane == kMiSimdWidth - 1) {
#pragma unroll
          for (int i = 0; i < kMiColumns; ++i)
            scratch[first_step + i] = next[i / 2][i % 2];
        }
      }
    } else if (role.kind == kFetcher) {
      if ((round & (kMiAhead - 1)) == turn) {
        if (has_work) {
          threadgroup float *x_tile =
              (threadgroup float *)(x_tiles + role.layer * kTile);
#pragma unroll
          for (int i = 0; i < kFetches; ++i) {
            const int at =
                TileElement(tile_row, tile_column, i * kFetchRowsApart);
            // Outside of the boundary p may be anything, also NaN.
            x_tile[at] = saturate(shares[i]);
          }
          if (role.strip == 0 && strip_row == 0) {
            const int step = first_step + lane;
            threadgroup float *entry = (threadgroup float *)ring +
                                       ((step + schedule.carry) & (kRing - 1));
            if (place.row > 0)
              *entry = below;
            else
              *entry = step == 0 ? first_grad : 0.0f;
          }
        }

        // Where there is no cell, some other element of the sequence is read:
        // of the gradient 0 that is there comes 0 again.
        const Place next = Advance(place, kMiAhead, schedule);
        const int next_step = next.chunk * kMiColumns,
                  index =
                      (next.row + strip_row) * p_stride + next_step + tile_t;
#pragma unroll
        for (int i = 0; i < kFetches; ++i)
          shares[i] = p[-long(min(uint(index + i * p_apart), last_p))];
        if (reads_scratch)
          below = scratch[min(uint(next_step + lane + schedule.carry),
                              last_scratch)];
      }
    } else {
      if (has_work) {
        const int row = place.row + strip_row, t = first_step + tile_t;
        device float *px_out = px_grad - (row * px_stride + t);
        device float *py_out = py_grad - (row * py_stride + t);
        if (place.row + kMiRows <= S && first_step >= schedule.carry + 1 &&
            first_step + kMiColumns <= T) {
          // All of the tile are elements of both.
#pragma unroll
          for (int i = 0; i < kDrains; ++i) {
            px_out[-i * px_apart] = x_out[i];
            py_out[-i * py_apart] = y_out[i];
          }
        } else {
#pragma unroll
          for (int i = 0; i < kDrains; ++i) {
            const int further = i * kDrainRowsApart,
                      this_row = row + further * kMiLayers,
                      column = t - further * skew;
            if (this_row < S && column >= 0 && column <= T + t_offset)
              px_out[-i * px_apart] = x_out[i];
            if (this_row <= S && column >= 0 && column < T)
              py_out[-i * py_apart] = y_out[i];
          }
        }
      }
      threadgroup const float *next_x_tile =
          (threadgroup const float *)(strip_tiles +
                                      next_tile * 2 * kLayerTiles +
                                      role.layer * kTile);
#pragma unroll
      for (int i = 0; i < kDrains; ++i) {
        const int at = TileElement(tile_row, tile_column, i * kDrainRowsApart);
        x_out[i] = next_x_tile[at];
        y_out[i] = next_x_tile[4 * kLayerTiles + at];
      }
    }
    place = Advance(place, 1, schedule);
    tile = next_tile;
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  }

  if (first_share == kNotAllFinite)
    BackwardByDiagonals(params, range, p, first_grad, px_grad, py_grad,
                        int(simdgroup_index) * kMiSimdWidth + lane,
                        int(num_simdgroups) * kMiSimdWidth);
}

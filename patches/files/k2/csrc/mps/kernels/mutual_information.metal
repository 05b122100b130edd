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
// A strip is kMiSimdWidth rows, one for each lane of the simdgroup that
// computes it, its chain.  In each step a lane does one cell, `skew` columns
// behind the lane above it.  So the result of the row above comes through a
// shuffle, and kMiDelay steps later: nobody waits for the shuffle.
//
// kMiColumns steps are a chunk, and what a strip reads and writes in a chunk
// is a tile of threadgroup memory.  A chain touches nothing else.  Each strip
// has kMiFetchers more simdgroups that bring inputs, and kMiDrainers that take
// outputs away.  Fetchers take turns: each loads its part of a tile into
// registers and moves it into the tile kMiAhead rounds later.  They do nothing
// else, so that they wait for device memory at no other place.  A strip has
// three tiles: one that is filled, one that is computed, one that is emptied.
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
  kVectors = kMiColumns / 4,                   // float4s in a row of a tile
  kTile = kMiSimdWidth * kVectors,             // float4s in a tile
  kTiles = 3,                                  // of a strip
  kTilesPerStrip = 2 * kTiles,                 // x and y
  kRing = 32,                                  // columns in a ring
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
static_assert(kMiMaxStrips * (kTilesPerStrip * kTile * 16 + kRing * 8) +
                      kRing * 8 + 16 <=
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
  int skew;   // columns that a row is behind the row above it
  int carry;  // steps from the last row of a strip to the first of the next
  int pad;    // empty columns before the first
  int last_chunk;  // that of the last cell
  int chunks;      // that have cells
  int lag;         // chunks that a strip is behind the strip above it
  int strips;      // at once
  int passes;
  int period;  // chunks from a pass to the next
  int rounds;  // chunks until all is done
};

// pad_to_end: whether the last cell is to be in the last step of its chunk.
inline Schedule MakeSchedule(Boundary range, int t_offset, int strips,
                             bool pad_to_end) {
  Schedule ans;
  ans.S = max(range.s_end - range.s_begin, 0);
  ans.T = max(range.t_end - range.t_begin, 0);
  ans.skew = kMiDelay + t_offset;
  ans.carry = (kMiSimdWidth - 1) * ans.skew + t_offset;
  const int last = ans.T + ans.S % kMiSimdWidth * ans.skew;
  ans.pad = pad_to_end ? kMiColumns - 1 - last % kMiColumns : 0;
  ans.chunks =
      (ans.T + ans.pad + (kMiSimdWidth - 1) * ans.skew) / kMiColumns + 1;
  ans.last_chunk = (last + ans.pad) / kMiColumns;
  ans.lag = (kMiColumns - 1 + ans.carry) / kMiColumns + 1;
  const int all_strips = ans.S / kMiSimdWidth + 1;
  ans.strips = min(strips, all_strips);
  ans.passes = (all_strips + ans.strips - 1) / ans.strips;
  // A pass begins when the strip below has read the ring for the last time, and
  // late enough to fetch from scratch what the pass before it put there.
  ans.period = max(ans.chunks + ans.lag, ans.strips * ans.lag + kMiAhead + 2);
  const int unit = kTiles * kMiAhead;  // so that turns and tiles go on
  ans.period = (ans.period + unit - 1) / unit * unit;
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
    ans.row += schedule.strips * kMiSimdWidth;
  }
  return ans;
}

// Who a simdgroup is.
enum Kind { kChain, kFetcher, kDrainer };

struct Role {
  Kind kind;
  int strip;  // of those at once
  int index;  // of the fetcher or drainer
};

inline Role GetRole(int simdgroup, int num_simdgroups) {
  const int strips = num_simdgroups / kMiSimdgroupsPerStrip,
            other = simdgroup - strips, drainer = other - strips * kMiFetchers;
  if (other < 0) return Role{kChain, simdgroup, 0};
  if (drainer < 0)
    return Role{kFetcher, other / kMiFetchers, other % kMiFetchers};
  return Role{kDrainer, drainer / kMiDrainers, drainer % kMiDrainers};
}

// The tile that a strip uses after another.  A pass is a multiple of kTiles
// chunks, so that this needs no look at the chunk.
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
  const uint size =
      num_threads / kMiThreadsPerStrip * uint(kTilesPerStrip * kTile);
  for (uint i = thread_index; i < size; i += num_threads)
    tiles[i] = float4(0.0f);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

inline void LoadRow(threadgroup const float4 *tile, int row,
                    thread float *values) {
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const float4 v = tile[TileIndex(row, i)];
    values[4 * i] = v.x;
    values[4 * i + 1] = v.y;
    values[4 * i + 2] = v.z;
    values[4 * i + 3] = v.w;
  }
}

inline void StoreRow(threadgroup float4 *tile, int row,
                     thread const float *values) {
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    tile[TileIndex(row, i)] = float4(values[4 * i], values[4 * i + 1],
                                     values[4 * i + 2], values[4 * i + 3]);
  }
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
      if (t == range.t_begin) {
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

// The chunk of a chain: reads x and y from a tile, leaves in it, for each cell,
// the sum of paths from the row above and the sum of all, relative to r.
//
// rows_above     the ring to read from, (r, m) of two columns in an element
// ring_begin     the element to begin at
struct ForwardState {
  float r, m, delayed_r, delayed_m;
};

inline void ForwardChunk(threadgroup float4 *x_tile, threadgroup float4 *y_tile,
                         threadgroup const float4 *ring, int ring_begin,
                         int lane, thread ForwardState &state,
                         thread float *last_r, thread float *last_m) {
  float x[kMiColumns], y[kMiColumns], above_r[kMiColumns], above_m[kMiColumns];
  LoadRow(x_tile, lane, x);
  LoadRow(y_tile, lane, y);
#pragma unroll
  for (int i = 0; i < kMiColumns / 2; ++i) {
    const float4 two = ring[(ring_begin + i) & (kRing / 2 - 1)];
    above_r[2 * i] = two.x;
    above_m[2 * i] = two.y;
    above_r[2 * i + 1] = two.z;
    above_m[2 * i + 1] = two.w;
  }

  float r = state.r, m = state.m, delayed_r = state.delayed_r,
        delayed_m = state.delayed_m;
#pragma unroll
  for (int i = 0; i < kMiColumns; ++i) {
    const float r_above = lane == 0 ? above_r[i] : delayed_r,
                m_above = lane == 0 ? above_m[i] : delayed_m;
    delayed_r = simd_shuffle_up(r, 1);
    delayed_m = simd_shuffle_up(m, 1);
    const float from_above = r_above + x[i], from_left = r + y[i],
                diff = from_above - from_left,
                ratio = fast::exp(-metal::abs(diff));
    const bool above_is_larger = diff > 0.0f;
    r = max(from_above, from_left);
    const float m_from_above = m_above * (above_is_larger ? 1.0f : ratio);
    m = fma(m, above_is_larger ? ratio : 1.0f, m_from_above);
    x[i] = m_from_above;
    y[i] = m;
    last_r[i] = r;
    last_m[i] = m;
  }
  state = ForwardState{r, m, delayed_r, delayed_m};

  StoreRow(x_tile, lane, x);
  StoreRow(y_tile, lane, y);
}

// px        [B][S][T + 1 + t_offset]
// py        [B][S + 1][T]
// boundary  [B][4]: s_begin, t_begin, s_end, t_end; not read if
//           !params.has_boundary
// p         [B][S + 1][T + 1], written inside of the boundary.  NOT the score
//           of a cell, but what the backward kernel needs of it: the share
//           that came from s - 1, exp(score[s-1][t+t_offset] +
//           px[s-1][t+t_offset] - score[s][t]).  It is 1 if t == t_begin, else
//           0 if s == s_begin.  What is not finite stands for no gradient.
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
  threadgroup float4 tiles[kMiMaxStrips * kTilesPerStrip * kTile];
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

  threadgroup float4 *strip_tiles = tiles + role.strip * kTilesPerStrip * kTile;
  threadgroup float4 *ring = rings + role.strip * kRing / 2;

  // Of a chain.
  ForwardState state = {kNever, 1.0f, kNever, 1.0f};

  // Of a fetcher: what it fetched.
  float x[kFetches], y[kFetches], r_above = kNever, m_above = 1.0f;
  const int turn = role.index % kMiAhead,
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
  const int px_apart = kFetchRowsApart * (px_stride - skew),
            py_apart = kFetchRowsApart * (py_stride - skew),
            p_apart = kDrainRowsApart * (p_stride - skew),
            scratch_stride = params.scratch_stride;
#pragma unroll
  for (int i = 0; i < kFetches; ++i) x[i] = y[i] = 0.0f;
#pragma unroll
  for (int i = 0; i < kDrains; ++i) shares[i] = 0.0f;
  const bool fills_scratch =
      schedule.passes > 1 && role.strip + 1 == schedule.strips;
  if (simdgroup_index == 0 && lane_index == 0)
    atomic_store_explicit(&unusual, 0u, memory_order_relaxed);
  // Drainers read tiles of chunks before the first, too, and drop that.
  ClearTiles(tiles, simdgroup_index * kMiSimdWidth + lane_index,
             num_simdgroups * kMiSimdWidth);

  // A chunk is fetched into its tile in the round before it is computed, taken
  // out of it in the round after that, and stored one round later, so that
  // nobody waits for threadgroup memory either.
  Place place = {role.strip * kMiSimdWidth,
                 -role.strip * schedule.lag - kMiAhead -
                     int(role.kind == kChain) - 3 * int(role.kind == kDrainer)};
  int tile = FirstTile(place.chunk);
  const uint num_chunks =
      role.strip < schedule.strips ? uint(schedule.chunks) : 0u;
  // The first element of a tile that a fetcher or a drainer handles, and its
  // column in the first chunk.
  const int lane = int(lane_index),
            tile_row = lane / kMiColumns + kRowsPerAccess * first_access,
            tile_column = lane % kMiColumns,
            tile_t = tile_column - tile_row * skew - schedule.pad;
  for (int round = 0; round < schedule.rounds; ++round) {
    const int first_step = place.chunk * kMiColumns;
    const bool has_work = uint(place.chunk) < num_chunks && place.row <= S;
    const int next_tile = NextTile(tile);
    threadgroup float4 *x_vectors = strip_tiles + tile * 2 * kTile;
    threadgroup float4 *y_vectors = x_vectors + kTile;

    if (role.kind == kChain) {
      if (has_work) {
        if (place.chunk == 0) state = ForwardState{kNever, 1.0f, kNever, 1.0f};
        float last_r[kMiColumns], last_m[kMiColumns];
        ForwardChunk(x_vectors, y_vectors, ring,
                     (first_step + schedule.carry) / 2, lane, state, last_r,
                     last_m);
        if (lane == kMiSimdWidth - 1) {
          threadgroup float4 *next =
              ring + kRing / 2 + (first_step & (kRing - 1)) / 2;
#pragma unroll
          for (int i = 0; i < kMiColumns; i += 2)
            next[i / 2] =
                float4(last_r[i], last_m[i], last_r[i + 1], last_m[i + 1]);
          if (fills_scratch) {
#pragma unroll
            for (int i = 0; i < kMiColumns; ++i) {
              scratch[first_step + i] = last_r[i];
              scratch[scratch_stride + first_step + i] = last_m[i];
            }
          }
        }
        if (place.row + lane == S && place.chunk == schedule.last_chunk) {
          const float score = state.r + precise::log(state.m);
          *ans = score;
          if (!(score >= kLowestScore))
            atomic_store_explicit(&unusual, 1u, memory_order_relaxed);
        }
        if (place.chunk % kChunksToNormalize == kChunksToNormalize - 1) {
          Normalize(state.r, state.m);
          Normalize(state.delayed_r, state.delayed_m);
        }
      }
    } else if (role.kind == kFetcher) {
      if ((place.chunk & (kMiAhead - 1)) == turn) {
        if (has_work) {
          threadgroup float *x_tile = (threadgroup float *)x_vectors,
                            *y_tile = (threadgroup float *)y_vectors;
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
            const int row = place.row + tile_row, t = first_step + tile_t,
                      x_index = (row - 1) * px_stride + t + t_offset,
                      y_index = row * py_stride + t - 1;
#pragma unroll 1
            for (int i = 0; i < kFetches; ++i) {
              const int further = i * kFetchRowsApart,
                        at = TileElement(tile_row, tile_column, further);
              const bool in_rows = row + further <= S,
                         in_columns = t - further * skew <= T;
              if (!(px_begin[min(uint(x_index + i * px_apart), last_px)] <=
                    kLargestInput)) {
                if (row + further > 0 && in_rows && in_columns &&
                    t - further * skew + t_offset >= 0)
                  atomic_store_explicit(&unusual, 1u, memory_order_relaxed);
                else
                  x_tile[at] = kNever;
              }
              if (!(py_begin[min(uint(y_index + i * py_apart), last_py)] <=
                    kLargestInput)) {
                if (in_rows && in_columns && t - further * skew > 0)
                  atomic_store_explicit(&unusual, 1u, memory_order_relaxed);
                else
                  y_tile[at] = kNever;
              }
            }
          }
          if (role.strip == 0 && tile_row == 0) {
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
                  row = next.row + tile_row, t = next_step + tile_t,
                  x_index = (row - 1) * px_stride + t + t_offset,
                  y_index = row * py_stride + t - 1;
#pragma unroll
        for (int i = 0; i < kFetches; ++i) {
          x[i] = px_begin[min(uint(x_index + i * px_apart), last_px)];
          y[i] = py_begin[min(uint(y_index + i * py_apart), last_py)];
        }
        const uint above =
            min(uint(next_step + lane + schedule.carry), last_scratch);
        r_above = scratch[above];
        m_above = scratch[scratch_stride + above];
      }
    } else {
      if (has_work) {
        const int row = place.row + tile_row, t = first_step + tile_t;
        device float *out = p_begin + row * p_stride + t;
        const int before = first_step - schedule.pad;
        if (place.row + kMiSimdWidth - 1 <= S &&
            before >= (kMiSimdWidth - 1) * skew &&
            before + kMiColumns - 1 <= T) {
          // All of the tile are cells.
#pragma unroll
          for (int i = 0; i < kDrains; ++i) out[i * p_apart] = shares[i];
        } else {
#pragma unroll
          for (int i = 0; i < kDrains; ++i) {
            const int further = i * kDrainRowsApart;
            if (row + further <= S && uint(t - further * skew) <= uint(T))
              out[i * p_apart] = shares[i];
          }
        }
      }
      threadgroup const float *next_x_tile =
          (threadgroup const float *)(strip_tiles + next_tile * 2 * kTile);
#pragma unroll
      for (int i = 0; i < kDrains; ++i) {
        const int at = TileElement(tile_row, tile_column, i * kDrainRowsApart);
        const float part = next_x_tile[at], all = next_x_tile[4 * kTile + at];
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

// The chunk of a chain: reads the shares of the row above and of the column to
// the left from a tile, leaves in it the gradients that go there.
struct BackwardState {
  float grad, to_left, to_above, delayed;
};

inline void BackwardChunk(threadgroup float4 *x_tile,
                          threadgroup float4 *y_tile,
                          threadgroup const float2 *ring, int ring_begin,
                          int lane, thread BackwardState &state,
                          thread float *to_above) {
  float x[kMiColumns], y[kMiColumns], below[kMiColumns];
  LoadRow(x_tile, lane, x);
  LoadRow(y_tile, lane, y);
#pragma unroll
  for (int i = 0; i < kMiColumns / 2; ++i) {
    const float2 two = ring[(ring_begin + i) & (kRing / 2 - 1)];
    below[2 * i] = two.x;
    below[2 * i + 1] = two.y;
  }

  float grad = state.grad, share = state.to_left, last = state.to_above,
        delayed = state.delayed;
#pragma unroll
  for (int i = 0; i < kMiColumns; ++i) {
    const float from_below = lane == 0 ? below[i] : delayed;
    delayed = simd_shuffle_up(last, 1);
    grad = fma(share, grad, from_below);
    share = y[i];
    last = x[i] * grad;
    to_above[i] = last;
    y[i] = share * grad;
  }
  state = BackwardState{grad, share, last, delayed};

  StoreRow(x_tile, lane, to_above);
  StoreRow(y_tile, lane, y);
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
  threadgroup float4 tiles[kMiMaxStrips * kTilesPerStrip * kTile];
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
  const float first_grad = ans_grad[b];

  threadgroup float4 *strip_tiles = tiles + role.strip * kTilesPerStrip * kTile;
  threadgroup float2 *ring = rings + role.strip * kRing / 2;

  BackwardState state = {0.0f, 0.0f, 0.0f, 0.0f};
  float shares[kFetches], below = 0.0f, x_out[kDrains], y_out[kDrains];
  const int turn = role.index % kMiAhead,
            first_access =
                role.kind == kFetcher ? role.index / kMiAhead : role.index;
  const bool fills_scratch =
      schedule.passes > 1 && role.strip + 1 == schedule.strips;
  const uint last_p = uint(S * p_stride + T),
             last_scratch = uint(max(params.scratch_stride - 1, 0));
  const int p_apart = kFetchRowsApart * (p_stride - skew),
            px_apart = kDrainRowsApart * (px_stride - skew),
            py_apart = kDrainRowsApart * (py_stride - skew);
#pragma unroll
  for (int i = 0; i < kFetches; ++i) shares[i] = 0.0f;
#pragma unroll
  for (int i = 0; i < kDrains; ++i) x_out[i] = y_out[i] = 0.0f;
  // As in the forward kernel.
  ClearTiles(tiles, simdgroup_index * kMiSimdWidth + lane_index,
             num_simdgroups * kMiSimdWidth);

  Place place = {role.strip * kMiSimdWidth,
                 -role.strip * schedule.lag - kMiAhead -
                     int(role.kind == kChain) - 3 * int(role.kind == kDrainer)};
  int tile = FirstTile(place.chunk);
  const uint num_chunks =
      role.strip < schedule.strips ? uint(schedule.chunks) : 0u;
  // As in the forward kernel.
  const int lane = int(lane_index),
            tile_row = lane / kMiColumns + kRowsPerAccess * first_access,
            tile_column = lane % kMiColumns,
            tile_t = tile_column - tile_row * skew;
  for (int round = 0; round < schedule.rounds; ++round) {
    const int first_step = place.chunk * kMiColumns;
    const bool has_work = uint(place.chunk) < num_chunks && place.row <= S;
    const int next_tile = NextTile(tile);
    threadgroup float4 *x_vectors = strip_tiles + tile * 2 * kTile;
    threadgroup float4 *y_vectors = x_vectors + kTile;

    if (role.kind == kChain) {
      if (has_work) {
        if (place.chunk == 0) state = BackwardState{0.0f, 0.0f, 0.0f, 0.0f};
        float to_above[kMiColumns];
        BackwardChunk(x_vectors, y_vectors, ring,
                      (first_step + schedule.carry) / 2, lane, state, to_above);
        if (lane == kMiSimdWidth - 1) {
          threadgroup float2 *next =
              ring + kRing / 2 + (first_step & (kRing - 1)) / 2;
#pragma unroll
          for (int i = 0; i < kMiColumns; i += 2)
            next[i / 2] = float2(to_above[i], to_above[i + 1]);
          if (fills_scratch) {
#pragma unroll
            for (int i = 0; i < kMiColumns; ++i)
              scratch[first_step + i] = to_above[i];
          }
        }
      }
    } else if (role.kind == kFetcher) {
      if ((place.chunk & (kMiAhead - 1)) == turn) {
        if (has_work) {
          threadgroup float *x_tile = (threadgroup float *)x_vectors,
                            *y_tile = (threadgroup float *)y_vectors;
#pragma unroll
          for (int i = 0; i < kFetches; ++i) {
            const int at =
                TileElement(tile_row, tile_column, i * kFetchRowsApart);
            const bool finite = shares[i] - shares[i] == 0.0f;
            x_tile[at] = finite ? shares[i] : 0.0f;
            y_tile[at] = finite ? 1.0f - shares[i] : 0.0f;
          }
          if (role.strip == 0 && tile_row == 0) {
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
                  index = (next.row + tile_row) * p_stride + next_step + tile_t;
#pragma unroll
        for (int i = 0; i < kFetches; ++i)
          shares[i] = p[-long(min(uint(index + i * p_apart), last_p))];
        below =
            scratch[min(uint(next_step + lane + schedule.carry), last_scratch)];
      }
    } else {
      if (has_work) {
        const int row = place.row + tile_row, t = first_step + tile_t;
        device float *px_out = px_grad - (row * px_stride + t);
        device float *py_out = py_grad - (row * py_stride + t);
        if (place.row + kMiSimdWidth <= S &&
            first_step >= (kMiSimdWidth - 1) * skew &&
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
                      column = t - further * skew;
            if (row + further < S && column >= 0 && column <= T + t_offset)
              px_out[-i * px_apart] = x_out[i];
            if (row + further <= S && column >= 0 && column < T)
              py_out[-i * py_apart] = y_out[i];
          }
        }
      }
      threadgroup const float *next_x_tile =
          (threadgroup const float *)(strip_tiles + next_tile * 2 * kTile);
#pragma unroll
      for (int i = 0; i < kDrains; ++i) {
        const int at = TileElement(tile_row, tile_column, i * kDrainRowsApart);
        x_out[i] = next_x_tile[at];
        y_out[i] = next_x_tile[4 * kTile + at];
      }
    }
    place = Advance(place, 1, schedule);
    tile = next_tile;
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  }
}

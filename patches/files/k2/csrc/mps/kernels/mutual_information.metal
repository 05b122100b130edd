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

// The kernels of MutualInformationMps() and MutualInformationBackwardMps().
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
//   share[s][t] = exp(score[s - 1][t + o] + px[s - 1][t + o] - score[s][t]).
//
// The gradient of the last cell is the gradient of ans.  At each cell, the
// share divides the gradient between the row above and the column to the left:
//
//   grad[s][t]            = px_grad[s][t] + py_grad[s][t]
//   px_grad[s - 1][t + o] = share[s][t] * grad[s][t]
//   py_grad[s][t - 1]     = (1 - share[s][t]) * grad[s][t]
//
// A threadgroup computes one sequence, and a thread computes one row.  In each
// step a thread computes one cell, one column to the right of its previous
// cell.  If o is 0, a thread is one column behind the thread of the row above,
// so a step computes a diagonal.  If o is -1, a step computes a column.  In
// both cases the value that a cell needs from the row above was computed in the
// previous step.
//
// A dispatch computes one band of rows.  `edges` passes the last row of a band
// to the next dispatch.
//
// The backward kernel works in the same way, but counts rows and columns from
// the last cell.  Expressions are those of MutualInformationCpu(), with
// operands in the same order, so infinities and NaN spread as on the CPU.

using namespace metal;

// The rows that a threadgroup computes.  S + 1 rows and T + 1 columns, from
// (s_begin, t_begin) on, are inside of the sequence's boundary.
struct Rows {
  int s_begin, t_begin, S, T;
  int first_row;     // the first row of the band
  int behind;        // columns that a row is behind the row above it
  int row;           // the row of the thread
  int first;         // the step in which the thread computes its first column
  uint num_columns;  // columns that the thread computes
  int num_steps;     // steps of the threadgroup
  bool has_edge;     // whether another band ends above the thread's row
  bool is_edge;      // whether another band begins below the thread's row
  int p_rows, p_columns;        // the rows and columns of p
  int mover_row, mover_column;  // see kTileStride
};

inline Rows GetRows(constant MutualInformationParams &params,
                    device const long *boundary, uint b,  // NOLINT
                    uint thread_index, uint num_threads) {
  Rows ans;
  ans.s_begin = params.has_boundary ? int(boundary[4 * b]) : 0;
  ans.t_begin = params.has_boundary ? int(boundary[4 * b + 1]) : 0;
  const int s_end = params.has_boundary ? int(boundary[4 * b + 2]) : params.S,
            t_end = params.has_boundary ? int(boundary[4 * b + 3]) : params.T;
  ans.S = max(s_end - ans.s_begin, 0);
  ans.T = max(t_end - ans.t_begin, 0);
  const int lane = int(thread_index), size = int(num_threads),
            num_rows = min(ans.S + 1 - params.band * size, size);
  ans.first_row = params.band * size;
  ans.behind = 1 + params.t_offset;
  ans.row = ans.first_row + lane;
  ans.first = ans.behind * lane;
  ans.num_columns = ans.row <= ans.S ? uint(ans.T + 1) : 0u;
  ans.num_steps = num_rows > 0 ? ans.T + 1 + ans.behind * (num_rows - 1) : 0;
  ans.has_edge = lane == 0 && params.band != 0;
  ans.p_rows = params.T + 1;
  ans.p_columns = params.S + 1;
  ans.is_edge = lane + 1 == size && ans.row < ans.S;
  ans.mover_row =
      lane - lane % kMiRowsOfTile + lane % kMiRowsOfTile / kMiColumns;
  ans.mover_column = lane % kMiColumns;
  return ans;
}

// The row above the band and the last row of the band, from column 0 on.  These
// rows have scores in the forward kernel and gradients in the backward kernel.
struct Edges {
  device const float *above;
  device float *below;
};

inline Edges GetEdges(constant MutualInformationParams &params,
                      device float *edges, uint b) {  // NOLINT
  edges += 2 * ulong(b) * ulong(params.T + 1);
  const int below = params.band % 2 * (params.T + 1);
  return Edges{edges + (params.T + 1 - below), edges + below};
}

// Returns log(exp(x) + exp(y)).  Infinities and NaN give the result of LogAdd()
// in k2/csrc/utils.h.  The fast functions have the effect of a relative error
// of 2^-21 in 1 + exp(diff).  This effect is smaller than the rounding errors
// of the scores, which are sums of hundreds of terms.
inline float FastLogAdd(float x, float y) {
  const float larger = select(x, y, x < y), diff = select(y, x, x < y) - larger,
              sum = larger + fast::log(1.0f + fast::exp(diff));
  return select(larger, sum, diff >= kMinLogDiff);
}

inline bool IsFinite(float x) { return x - x == 0.0f; }

// A tile has the elements that a simdgroup needs for kMiColumns steps, or has
// computed in these steps.  A thread computes its own row.  But the lanes of a
// simdgroup load and store kMiColumns neighboring elements of a row together,
// and 32 / kMiColumns rows at once.  So tiles are in threadgroup memory.
constant int kTileStride = kMiColumns + 1;  // odd: lanes use different banks
constant int kMoves = kMiColumns;           // elements of a tile for each lane
constant int kRowsOfMove = kMiRowsOfTile / kMiColumns;

// Loads from[offset + s * stride + t] for each cell (s, t) of the kMiColumns
// steps that begin with `step`.  The loaded element is 0 for s < first_s, for
// t < first_t, and outside of the boundary.
template <typename Input>
inline void Load(Rows rows, int step, device const Input *from, int offset,
                 int stride, int first_s, int first_t, thread float *elements) {
#pragma unroll
  for (int i = 0; i < kMoves; ++i) {
    const int row = rows.mover_row + i * kRowsOfMove, s = rows.first_row + row,
              t = step + rows.mover_column - rows.behind * row;
    const bool is_inside =
        s >= first_s && s <= rows.S && t >= first_t && t <= rows.T;
    elements[i] = is_inside ? float(from[offset + s * stride + t]) : 0.0f;
  }
}

inline void PlaceInTile(Rows rows, thread const float *elements,
                        threadgroup float *tiles) {
#pragma unroll
  for (int i = 0; i < kMoves; ++i)
    tiles[(rows.mover_row + i * kRowsOfMove) * kTileStride +
          rows.mover_column] = elements[i];
}

// Stores the elements of the kMiColumns steps that begin with `step`.  Rows and
// columns are counted from the last cell.  The element of a row and a column is
// stored in to[offset - row * stride - column].
template <typename Output>
inline void StoreTile(Rows rows, int step, threadgroup const float *tiles,
                      device Output *to, int offset, int stride, int last_row,
                      int last_column) {
#pragma unroll
  for (int i = 0; i < kMoves; ++i) {
    const int tile_row = rows.mover_row + i * kRowsOfMove,
              row = rows.first_row + tile_row,
              column = step + rows.mover_column - rows.behind * tile_row;
    if (row <= last_row && column >= 0 && column <= last_column)
      to[offset - row * stride - column] =
          Output(tiles[tile_row * kTileStride + rows.mover_column]);
  }
}

// Loads the shares for kMiColumns steps of the backward kernel.  *row_of_p is
// the row of p for the first step, and becomes the row of p for the step after
// the last one.
inline void LoadShares(Rows rows, device const float *p, thread int *row_of_p,
                       thread float *shares) {
#pragma unroll
  for (int i = 0; i < kMiColumns; ++i) {
    shares[i] = p[*row_of_p * rows.p_columns];
    *row_of_p = (*row_of_p == 0 ? rows.p_rows : *row_of_p) - 1;
  }
}

// px        [B][S][T + 1 + t_offset], of float, half or bfloat
// py        [B][S + 1][T], of the type of px
// boundary  [B][4]: s_begin, t_begin, s_end, t_end; not read if
//           !params.has_boundary
// p         [B][T + 1][S + 1], gets the share of each cell, NOT its score.  The
//           share of cell (s, t) is at [(t + (1 + t_offset) * s) % (T + 1)][s],
//           where s and t are counted from the first cell of the boundary.  The
//           share is 1 if t is 0, and 0 if s is 0 and t is not 0.  If a share
//           is not finite, the cell passes no gradient on
// ans       [B], gets the score of (s_end, t_end)
// edges     [B][2][T + 1]; not used if there is one band
//
// A threadgroup has a thread for each row of a band, kMaxRows at most.
template <typename Input, int kMaxRows>
[[max_total_threads_per_threadgroup(kMaxRows)]]
kernel void mutual_information_forward(
    device const Input *px [[buffer(kMiPx)]],
    device const Input *py [[buffer(kMiPy)]],
    device const long *boundary [[buffer(kMiBoundary)]],
    device float *p [[buffer(kMiP)]], device float *ans [[buffer(kMiAns)]],
    device float *edges [[buffer(kMiEdges)]],
    constant MutualInformationParams &params [[buffer(kMiParams)]],
    uint b [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  // The scores of the previous step, and of the present step.
  threadgroup float scores[2][kMaxRows];
  threadgroup float px_tiles[kMaxRows * kTileStride];
  threadgroup float py_tiles[kMaxRows * kTileStride];

  const Rows rows = GetRows(params, boundary, b, lane, num_threads);
  const Edges edge = GetEdges(params, edges, b);
  const int o = params.t_offset, py_size = params.T, px_size = params.T + 1 + o,
            px_offset = (rows.s_begin - 1) * px_size + rows.t_begin + o,
            py_offset = rows.s_begin * params.T + rows.t_begin - 1;
  px += ulong(b) * ulong(params.S) * ulong(px_size);
  py += ulong(b) * ulong(params.S + 1) * ulong(params.T);
  p += ulong(b) * ulong(params.S + 1) * ulong(params.T + 1) + ulong(rows.row);

  const bool is_first_row = rows.row == 0, is_last_row = rows.row == rows.S;
  float score = 0.0f;
  int row_of_p = rows.behind * rows.first_row % (params.T + 1);
  scores[1][lane] = 0.0f;
  float next_px[kMoves], next_py[kMoves];
  Load(rows, 0, px, px_offset, px_size, 1, -o, next_px);
  Load(rows, 0, py, py_offset, py_size, 0, 1, next_py);
  for (int first = 0; first < rows.num_steps; first += kMiColumns) {
    PlaceInTile(rows, next_px, px_tiles);
    PlaceInTile(rows, next_py, py_tiles);
    Load(rows, first + kMiColumns, px, px_offset, px_size, 1, -o, next_px);
    Load(rows, first + kMiColumns, py, py_offset, py_size, 0, 1, next_py);
    threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
    for (int i = 0; i < kMiColumns; ++i) {
      // There is no branch: before its first column, a thread computes scores
      // that are not used.
      const int t = first + i - rows.first;
      const bool is_inside = uint(t) < rows.num_columns;
      float above = scores[(i + 1) % 2][max(lane, 1u) - 1];
      if (rows.has_edge && is_inside && t + o >= 0) above = edge.above[t + o];
      const float from_above = above + px_tiles[lane * kTileStride + i],
                  from_left = score + py_tiles[lane * kTileStride + i];
      score =
          select(FastLogAdd(from_above, from_left), from_left, is_first_row);
      float share =
          fast::exp(from_above - select(0.0f, score, IsFinite(score)));
      share = select(share, 0.0f, is_first_row);
      score = select(score,
                     is_first_row ? 0.0f
                     : o != 0     ? -INFINITY
                                  : from_above,
                     t == 0);
      share = select(share, 1.0f, t == 0);
      scores[i % 2][lane] = score;
      if (is_inside) p[row_of_p * rows.p_columns] = share;
      if (is_inside && rows.is_edge) edge.below[t] = score;
      if (is_last_row && t == rows.T) ans[b] = score;
      row_of_p = row_of_p + 1 == rows.p_rows ? 0 : row_of_p + 1;
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
}

// boundary, edges   as for the forward kernel
// p                 what the forward kernel wrote
// ans_grad          [B], the gradient of ans
// px_grad, py_grad  have the shapes and the type of px and py, and get the
//                   gradients of px and py inside of the boundary
template <typename Output, int kMaxRows>
[[max_total_threads_per_threadgroup(kMaxRows)]]
kernel void mutual_information_backward(
    device const long *boundary [[buffer(kMiBoundary)]],
    device const float *p [[buffer(kMiP)]],
    device const float *ans_grad [[buffer(kMiAnsGrad)]],
    device Output *px_grad [[buffer(kMiPxGrad)]],
    device Output *py_grad [[buffer(kMiPyGrad)]],
    device float *edges [[buffer(kMiEdges)]],
    constant MutualInformationParams &params [[buffer(kMiParams)]],
    uint b [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  // The gradients that flow to the row of the next thread, in the previous step
  // and in the present step.
  threadgroup float flows[2][kMaxRows];
  threadgroup float px_tiles[kMaxRows * kTileStride];
  threadgroup float py_tiles[kMaxRows * kTileStride];

  // Rows, columns and steps are counted from the last cell.
  const Rows rows = GetRows(params, boundary, b, lane, num_threads);
  const Edges edge = GetEdges(params, edges, b);
  const int o = params.t_offset, py_size = params.T, px_size = params.T + 1 + o,
            s_end = rows.s_begin + rows.S, t_end = rows.t_begin + rows.T;
  px_grad += ulong(b) * ulong(params.S) * ulong(px_size);  // NOLINT
  py_grad += ulong(b) * ulong(params.S + 1) * ulong(params.T);
  p += ulong(b) * ulong(params.S + 1) * ulong(params.T + 1) +
       ulong(max(rows.S - rows.row, 0));

  // If a band has no row of the sequence, S - first_row is negative.  The max()
  // makes the operand of % non-negative.
  int row_of_p =
      (rows.T + rows.behind * max(rows.S - rows.first_row, 0)) %  // NOLINT
      (params.T + 1);
  float next[kMiColumns];
  LoadShares(rows, p, &row_of_p, next);
  float to_left = rows.row == 0 ? ans_grad[b] : 0.0f;
  flows[1][lane] = 0.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int first = 0; first < rows.num_steps; first += kMiColumns) {
    float now[kMiColumns];
#pragma unroll
    for (int i = 0; i < kMiColumns; ++i) now[i] = next[i];
    LoadShares(rows, p, &row_of_p, next);
#pragma unroll
    for (int i = 0; i < kMiColumns; ++i) {
      const int column = first + i - rows.first;
      const bool is_inside = uint(column) < rows.num_columns;
      float from_above =
          lane == 0 ? 0.0f : flows[(i + 1) % 2][max(lane, 1u) - 1];
      if (rows.has_edge && is_inside && column + o >= 0)
        from_above = edge.above[column + o];
      const float share = now[i], grad = from_above + to_left;
      const bool flows_on = is_inside && IsFinite(share);
      const float to_above = flows_on ? share * grad : 0.0f;
      if (is_inside) to_left = flows_on ? (1.0f - share) * grad : 0.0f;
      flows[i % 2][lane] = to_above;
      px_tiles[lane * kTileStride + i] = to_above;
      py_tiles[lane * kTileStride + i] = to_left;
      if (is_inside && rows.is_edge) edge.below[column] = to_above;
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    StoreTile(rows, first, px_tiles, px_grad, (s_end - 1) * px_size + t_end + o,
              px_size, rows.S - 1, rows.T + o);
    StoreTile(rows, first, py_tiles, py_grad, s_end * py_size + t_end - 1,
              py_size, rows.S, rows.T - 1);
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
}

#define K2_INSTANCE(name, kernel_name, Type, rows) \
  template [[host_name(name)]] [[kernel]]          \
  decltype(kernel_name<Type, rows>) kernel_name<Type, rows>;
#define K2_INSTANCES(kernel_name, suffix, Type)                   \
  K2_INSTANCE(#kernel_name suffix, kernel_name, Type, kMiFewRows) \
  K2_INSTANCE(#kernel_name suffix "_tall", kernel_name, Type, kMiMaxRows)

K2_INSTANCES(mutual_information_forward, "", float)
K2_INSTANCES(mutual_information_forward, "_half", half)
K2_INSTANCES(mutual_information_forward, "_bfloat", bfloat)
K2_INSTANCES(mutual_information_backward, "", float)
K2_INSTANCES(mutual_information_backward, "_half", half)
K2_INSTANCES(mutual_information_backward, "_bfloat", bfloat)

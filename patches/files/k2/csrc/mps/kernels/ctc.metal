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

#include "k2/csrc/mps/kernels/ctc_blocks.h"
#include "k2/csrc/mps/kernels/simd_width.h"

// The sums of CTC and their gradients; see ctc_pass.h.

using namespace metal;

static_assert(2 * kCtcMaxCachedStates * sizeof(DoubleSum) <= 32768 &&
                  4 * (kCtcSumFloats + 2 * kCtcThreads) <= 32768,
              "Metal's limit of threadgroup memory");

// A visitor of Pass() that keeps the checkpoints.  If every row is a
// checkpoint, the visitor rounds the sums to single precision.
template <typename Sum>
struct SumCheckpoints {
  device FloatSum *sums;
  Checkpoints checkpoints;

  template <typename Sums>
  void Leave(int, Sums, Sums) const {}

  void Take(int row, int s, Sum sum) const {
    if (checkpoints.rows_of_block == 1) {
      sums[checkpoints.Of(row) + s] = Rounded(sum);
    } else if (checkpoints.Has(row)) {
      reinterpret_cast<device Sum *>(sums)[checkpoints.Of(row) + s] = sum;
    }
  }
};

// kept             what ctc_keep wrote
// labels           [params.num_fsas][2], the lowest and the highest label of a
//                  graph.  If one of these labels has no column, the score is
//                  NaN
// sums             the checkpoints, see SumCheckpoints
// scratch          [4 * params.num_states], for FSAs with many states
// totals           [params.num_fsas], the sum over an FSA's paths
// scores           [params.num_fsas], the logarithm of that sum
//
// Each FSA has two threadgroups, one for each direction.  A threadgroup has at
// most kThreads threads.
template <typename Sum, int kThreads>
[[max_total_threads_per_threadgroup(kThreads)]]
kernel void ctc_sums(K2_CTC_INPUTS,
                     device const uint *kept [[buffer(kCtcKept)]],
                     device const int *labels [[buffer(kCtcLabels)]],
                     device FloatSum *sums [[buffer(kCtcSums)]],
                     device Sum *scratch [[buffer(kCtcScratch)]],
                     device FloatSum *totals [[buffer(kCtcTotals)]],
                     device float *scores [[buffer(kCtcScores)]],
                     uint group [[threadgroup_position_in_grid]],
                     uint thread_index [[thread_index_in_threadgroup]],
                     uint num_threads [[threads_per_threadgroup]]) {
  threadgroup Sum cache[2 * CachedStates(kThreads)];
  // Threads of larger threadgroups have too few registers for a second row.
  constexpr int kAhead = sizeof(Sum) == sizeof(FloatSum) && kThreads <= 256
                             ? kCtcFloatRowsAhead
                             : 1;

  const int index = int(group) / 2;
  const bool forward = group % 2 != 0;
  const Fsa fsa = GetFsa(index, state_begins, leaving_begins, b_begins);
  if (fsa.num_states == 0) {
    if (thread_index == 0 && !forward) {
      totals[index] = OnePath<FloatSum>(-INFINITY);
      scores[index] = -INFINITY;
    }
    return;
  }
  const Input input = GetInput(params, index, fsa, arcs, penalized, b_scores,
                               kept, thread_index, num_threads);
  const Direction direction = {
      (forward ? incoming_begins : leaving_begins) + fsa.state_begin, incoming,
      forward};
  const SumCheckpoints<Sum> checkpoints = {
      sums,
      {CheckpointsBegin(params, fsa, params.rows_of_block, forward),
       fsa.num_states, params.rows_of_block}};
  const int initial = forward ? 0 : fsa.num_states - 1,
            begin = forward ? 0 : fsa.num_rows;
  const bool cached = fsa.num_states <= CachedStates(kThreads);
  device Sum *of_fsa =
      scratch + 4 * fsa.state_begin + (forward ? 2 * fsa.num_states : 0);
  if (cached) {
    threadgroup Sum *first = cache, *second = cache + CachedStates(kThreads);
    Begin<Sum>(input, initial, begin, first, checkpoints);
    Pass<Sum, kAhead>(params, input, direction, begin, fsa.num_rows, first,
                      second, checkpoints);
  } else {
    Begin<Sum>(input, initial, begin, of_fsa, checkpoints);
    Pass<Sum, kAhead>(params, input, direction, begin, fsa.num_rows, of_fsa,
                      of_fsa + fsa.num_states, checkpoints);
  }
  if (forward) return;
  // This thread wrote the sum of state 0, so it can read the sum without a
  // barrier.
  if (thread_index == 0) {
    const int last = fsa.num_rows % 2;
    const Sum total = cached ? cache[last * CachedStates(kThreads)]
                             : of_fsa[last * fsa.num_states];
    totals[index] = Rounded(total);
    const bool has_columns = HasColumn(params, labels[2 * index]) &&
                             HasColumn(params, labels[2 * index + 1]);
    scores[index] = has_columns ? ScoreOf(total).high : NAN;
  }
}

#define K2_INSTANCE(suffix, T, threads)                 \
  template [[host_name("ctc_sums_" suffix)]] [[kernel]] \
  decltype(ctc_sums<PathSum<float, T>, threads>)        \
      ctc_sums<PathSum<float, T>, threads>;

K2_INSTANCE("double_256", TwoFloat, 256)
K2_INSTANCE("double_512", TwoFloat, 512)
K2_INSTANCE("double_1024", TwoFloat, 1024)
K2_INSTANCE("float_256", float, 256)
K2_INSTANCE("float_512", float, 512)
K2_INSTANCE("float_1024", float, 1024)

// Returns the posterior of an arc of an FSA in row t, or 0 if the arc is not
// kept.
//
// from_start   the forward sums of the FSA's states in row t
// to_end       the backward sums of the FSA's states in row t + 1
// total        the sum of all paths
template <typename From, typename To>
inline float Posterior(constant CtcParams &params, Input input, int t,
                       int arc_of_fsa, Arc arc, From from_start, To to_end,
                       FloatSum total) {
  const uint word = input.kept[t * params.num_words + input.first_word +
                               arc_of_fsa / kSimdWidth];
  if ((word >> (arc_of_fsa % kSimdWidth) & 1) == 0 ||
      !(fabs(total.exponent) < INFINITY))
    return 0.0f;
  float score = arc.score + ScoreAt(params, input.b_scores,
                                    input.fsa.first_row + t, arc.label);
  if (params.has_penalties && input.penalized[arc_of_fsa])
    score += PenaltyAt(params, input.fsa, t);
  const FloatSum from = from_start[arc.src_state],
                 to = Rounded(to_end[arc.dest_state]);
  return ValueOf(PosteriorOf(from, ExpOf<FloatSum>(score), to, total));
}

constant int kNoLabel = -2;  // less than any label

// What WriteRow() needs in addition to the sums of states.
struct RowGradient {
  device const int *by_label;  // of all FSAs
  threadgroup float *values;   // [kCtcThreads]
  threadgroup int *labels;     // [kCtcThreads]
  FloatSum total;
  float score_grad;
  device float *b_grad;
};

// Returns the sum of `value` over this lane and those lanes before it that have
// the same label.  Lanes with the same label must be adjacent.
inline float SumOfLabel(int label, float value, int lane) {
  for (int distance = 1; distance < kSimdWidth; distance *= 2) {
    const float before = simd_shuffle_up(value, ushort(distance));
    const int label_before = simd_shuffle_up(label, ushort(distance));
    if (lane >= distance && label_before == label) value += before;
  }
  return value;
}

// Writes row t of an FSA's b_grad.  The arguments are those of Posterior().
template <typename From, typename To>
inline void WriteRow(constant CtcParams &params, Input input,
                     RowGradient gradient, int t, From from_start, To to_end) {
  const int thread_id = input.thread_index, threads = input.num_threads,
            num_arcs = input.fsa.num_arcs;
  threadgroup float *values = gradient.values;
  threadgroup int *labels = gradient.labels;
  device float *row =
      gradient.b_grad + (input.fsa.first_row + t) * params.num_columns;
  for (int i = thread_id; i < params.num_columns; i += threads) row[i] = 0.0f;

  for (int begin = 0; begin < num_arcs; begin += threads) {
    const int position = input.fsa.arc_begin + begin + thread_id,
              count = min(threads, num_arcs - begin);
    int label = kNoLabel;
    float value = 0.0f;
    if (thread_id < count) {
      const int i = gradient.by_label[position] - input.fsa.arc_begin;
      const Arc arc = input.arcs[i];
      label = arc.label;
      value =
          gradient.score_grad * Posterior(params, input, t, i, arc, from_start,
                                          to_end, gradient.total);
    }
    labels[thread_id] = label;
    values[thread_id] = SumOfLabel(label, value, thread_id % kSimdWidth);
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
    // For each label, the last thread with the label adds up the sums that the
    // simdgroups have computed for the label.
    const bool is_last = thread_id < count && (thread_id + 1 == count ||
                                               labels[thread_id + 1] != label);
    if (is_last && HasColumn(params, label)) {
      float sum = values[thread_id];
      for (int first = thread_id / kSimdWidth * kSimdWidth;
           first > 0 && labels[first - 1] == label; first -= kSimdWidth)
        sum += values[first - 1];
      row[label + 1] += sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  }
}

// by_label   [params.num_arcs], the indexes of each FSA's arcs, sorted by
//            label; arcs with the same label are in the order of the graph
// sums, totals   what ctc_sums wrote; every row is a checkpoint
// score_grads    [params.num_fsas], the gradient of the scores of ctc_sums
// b_grad     [rows][params.num_columns], the gradient of b_scores
//
// There is one threadgroup for each row of each FSA.
[[max_total_threads_per_threadgroup(kCtcThreads)]]
kernel void ctc_gradient(K2_CTC_INPUTS,
                         device const int *by_label [[buffer(kCtcByLabel)]],
                         device const uint *kept [[buffer(kCtcKept)]],
                         device const FloatSum *sums [[buffer(kCtcSums)]],
                         device const FloatSum *totals [[buffer(kCtcTotals)]],
                         device const float *score_grads
                         [[buffer(kCtcScoreGrads)]],
                         device float *b_grad [[buffer(kCtcBGrad)]],
                         uint group [[threadgroup_position_in_grid]],
                         uint thread_index [[thread_index_in_threadgroup]],
                         uint num_threads [[threads_per_threadgroup]]) {
  threadgroup float values[kCtcThreads];
  threadgroup int labels[kCtcThreads];

  const int index = int(group) % params.num_fsas,
            t = int(group) / params.num_fsas;
  const Fsa fsa = GetFsa(index, state_begins, leaving_begins, b_begins);
  if (t >= fsa.num_rows) return;
  const Input input = GetInput(params, index, fsa, arcs, penalized, b_scores,
                               kept, thread_index, num_threads);
  const RowGradient gradient = {
      by_label, values, labels, totals[index], score_grads[index], b_grad};
  WriteRow(params, input, gradient, t,
           sums + CheckpointsBegin(params, fsa, 1, true) + t * fsa.num_states,
           sums + CheckpointsBegin(params, fsa, 1, false) +
               (t + 1) * fsa.num_states);
}

// A visitor of the backward pass that writes the rows of b_grad.  The visitor
// writes row t - 1 when the pass leaves row t.
template <typename Rows>
struct WriteRows {
  constant CtcParams *params;
  Input input;
  RowGradient gradient;
  KeepRows<Rows> forward;

  template <typename Sums>
  void Leave(int row, Sums to_end, Sums) const {
    WriteRow(*params, input, gradient, row - 1, forward.At(row - 1),
             to_end);
  }

  template <typename Sum>
  void Take(int, int, Sum) const {}

  template <typename Sums>
  void Finish(int, Sums, Sums) const {}
};

// Does the work of ctc_gradient if not every row is a checkpoint.
//
// scratch    kCtcScratchRows FloatSums and four Sums for each state; used for
//            FSAs with many states
//
// There is one threadgroup for each block of each FSA.  If threadgroup memory
// is too small for the sums of an FSA, the threadgroup of the FSA's first block
// processes all blocks of the FSA.
template <typename Sum>
[[max_total_threads_per_threadgroup(kCtcThreads)]]
kernel void ctc_block_gradient(
    K2_CTC_INPUTS, device const int *by_label [[buffer(kCtcByLabel)]],
    device const uint *kept [[buffer(kCtcKept)]],
    device const Sum *sums [[buffer(kCtcSums)]],
    device const FloatSum *totals [[buffer(kCtcTotals)]],
    device const float *score_grads [[buffer(kCtcScoreGrads)]],
    device float *b_grad [[buffer(kCtcBGrad)]],
    device FloatSum *scratch [[buffer(kCtcScratch)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint num_threads [[threads_per_threadgroup]]) {
  threadgroup FloatSum memory[kCtcSumFloats / 2];
  threadgroup float values[kCtcThreads];
  threadgroup int labels[kCtcThreads];

  const int index = int(group) % params.num_fsas,
            block = int(group) / params.num_fsas;
  const Fsa fsa = GetFsa(index, state_begins, leaving_begins, b_begins);
  if (block * params.rows_of_block >= fsa.num_rows) return;
  const Input input = GetInput(params, index, fsa, arcs, penalized, b_scores,
                               kept, thread_index, num_threads);
  const Direction forward = {incoming_begins + fsa.state_begin, incoming, true},
                  backward = {leaving_begins + fsa.state_begin, incoming,
                              false};
  const RowGradient gradient = {
      by_label, values, labels, totals[index], score_grads[index], b_grad};
  // of_sums is the size, in FloatSums, of four Sums for each state.  The rest
  // of `memory` has room for num_rows rows.
  const int of_sums =
                4 * fsa.num_states * int(sizeof(Sum)) / int(sizeof(*memory)),
            num_rows = (kCtcSumFloats / 2 - of_sums) / max(fsa.num_states, 1);
  if (num_rows > 0) {
    const BlockMemory<threadgroup Sum *, threadgroup FloatSum *>
        in_threadgroup = {reinterpret_cast<threadgroup Sum *>(memory),
                          memory + of_sums, num_rows};
    WalkBlocks<Sum>(
        params, input, forward, backward, params.rows_of_block, sums, block,
        block, 1, in_threadgroup,
        WriteRows<threadgroup FloatSum *>{
            &params, input, gradient, {in_threadgroup.rows, 0, 0, 0}});
  } else if (block == 0) {
    device FloatSum *of_fsa =
        scratch + fsa.state_begin * int(kCtcScratchRows +
                                        4 * sizeof(Sum) / sizeof(*memory));
    const BlockMemory<device Sum *, device FloatSum *> in_device = {
        reinterpret_cast<device Sum *>(of_fsa), of_fsa + of_sums,
        kCtcScratchRows};
    WalkBlocks<Sum>(params, input, forward, backward, params.rows_of_block,
                    sums, 0, (fsa.num_rows - 1) / params.rows_of_block, 1,
                    in_device,
                    WriteRows<device FloatSum *>{
                        &params, input, gradient, {in_device.rows, 0, 0, 0}});
  }
}

template [[host_name("ctc_block_gradient_double")]] [[kernel]]
decltype(ctc_block_gradient<DoubleSum>) ctc_block_gradient<DoubleSum>;
template [[host_name("ctc_block_gradient_float")]] [[kernel]]
decltype(ctc_block_gradient<FloatSum>) ctc_block_gradient<FloatSum>;

// There is a thread for each arc of the graphs.
//
// fsa_of_arc  [params.num_arcs], the FSA of each arc
// sums    what ctc_sums wrote; every row is a checkpoint
// a_grad  [params.num_arcs], the gradient of the scores of the graphs' arcs
[[max_total_threads_per_threadgroup(kCtcThreads)]]
kernel void ctc_arc_gradient(
    K2_CTC_INPUTS, device const int *fsa_of_arc [[buffer(kCtcFsaOfArc)]],
    device const uint *kept [[buffer(kCtcKept)]],
    device const FloatSum *sums [[buffer(kCtcSums)]],
    device const FloatSum *totals [[buffer(kCtcTotals)]],
    device const float *score_grads [[buffer(kCtcScoreGrads)]],
    device float *a_grad [[buffer(kCtcAGrad)]],
    uint position [[thread_position_in_grid]]) {
  if (int(position) >= params.num_arcs) return;
  const int index = fsa_of_arc[position];
  const Fsa fsa = GetFsa(index, state_begins, leaving_begins, b_begins);
  const Input input = GetInput(params, index, fsa, arcs, penalized, b_scores,
                               kept, position, 0);
  const int arc_of_fsa = int(position) - fsa.arc_begin;
  const Arc arc = input.arcs[arc_of_fsa];
  const FloatSum total = totals[index];
  const float score_grad = score_grads[index];
  device const FloatSum *from_start =
                            sums + CheckpointsBegin(params, fsa, 1, true),
                        *to_end =
                            sums + CheckpointsBegin(params, fsa, 1, false);
  float sum = 0.0f;
  for (int t = 0; t < fsa.num_rows; ++t) {
    to_end += fsa.num_states;
    // The CPU rounds the product before it adds the product to the sum.  The
    // fma() with 0 rounds the product in the same way.
    sum += fma(
        score_grad,
        Posterior(params, input, t, arc_of_fsa, arc, from_start, to_end, total),
        0.0f);
    from_start += fsa.num_states;
  }
  a_grad[position] = sum;
}

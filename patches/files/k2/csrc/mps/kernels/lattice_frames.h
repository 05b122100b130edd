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

#ifndef K2_CSRC_MPS_KERNELS_LATTICE_FRAMES_H_
#define K2_CSRC_MPS_KERNELS_LATTICE_FRAMES_H_

#include "k2/csrc/mps/kernels/arc.h"
#include "k2/csrc/mps/kernels/lattice.h"
#include "k2/csrc/mps/kernels/simdgroup.h"

// For kernels only: decides which states and arcs intersect_dense keeps of the
// product of graphs and sequences.  All additions are in the order of k2's CPU
// code, so that rounding does not change the decisions.
//
// A state of the product is a state of the graph at a time 0 <= t <= T, where T
// is the number of rows of the sequence.

// The graphs, the sequences, and the scores of states; see
// intersect_dense.metal.
struct Input {
  device const Arc *arcs;
  device const int *state_begins, *leaving_begins, *incoming_begins, *incoming;
  device const float *b_scores;
  device const int *b_begins, *a_to_b_map;
  device const float *state_scores;  // step t begins at 2 * num_states * t
  // [num_fsas * num_steps]: for each frame, the arc by which the best path
  // leaves the frame, or -1.  Read if has_best_arcs.
  device const int *best_arcs;
};

// An FSA and its sequence.
struct Fsa {
  int first_state, num_states;  // in the graph
  int first_frame, last_time, first_row;
};

inline Fsa GetFsa(Input in, int fsa, constant LatticeParams &params) {
  const int b = in.a_to_b_map[fsa], first_row = in.b_begins[b],
            first_state = in.state_begins[fsa];
  return Fsa{first_state, in.state_begins[fsa + 1] - first_state,
             fsa * params.num_steps, in.b_begins[b + 1] - first_row, first_row};
}

inline device const float *ForwardAt(Input in, Fsa fsa, int t,
                                     constant LatticeParams &params) {
  return in.state_scores +
         2 * (ptrdiff_t{t} * params.num_states + fsa.first_state) +
         fsa.num_states;
}

inline device const float *BackwardAt(Input in, Fsa fsa, int t,
                                      constant LatticeParams &params) {
  return in.state_scores +
         2 * (ptrdiff_t{fsa.last_time - t} * params.num_states +
              fsa.first_state);
}

inline float StartScore(Input in, Fsa fsa, constant LatticeParams &params) {
  return fsa.num_states == 0 ? -INFINITY : BackwardAt(in, fsa, 0, params)[0];
}

inline float EndScore(Input in, Fsa fsa, constant LatticeParams &params) {
  return fsa.num_states == 0
             ? -INFINITY
             : ForwardAt(in, fsa, fsa.last_time, params)[fsa.num_states - 1];
}

// Returns the score that a path must exceed to be kept.
inline float Cutoff(Input in, Fsa fsa, constant LatticeParams &params) {
  const float start = StartScore(in, fsa, params),
              end = EndScore(in, fsa, params);
  return (start < end ? start : end) - params.beam;
}

// Returns the arc by which an FSA's best path leaves its state at time t, or
// -1.
inline int BestArc(Input in, Fsa fsa, int t, constant LatticeParams &params) {
  return params.has_best_arcs && t < fsa.last_time
             ? in.best_arcs[fsa.first_frame + t]
             : -1;
}

// The states of an FSA at one time.
struct States {
  device const float *forward, *backward;
  float cutoff;
  int best;  // the state of the best path, or -1
};

inline States GetStates(Input in, Fsa fsa, int t, float cutoff,
                        constant LatticeParams &params) {
  States ans = {ForwardAt(in, fsa, t, params), BackwardAt(in, fsa, t, params),
                cutoff, -1};
  const int before = t > 0 ? BestArc(in, fsa, t - 1, params) : -1,
            after = BestArc(in, fsa, t, params);
  if (after >= 0) ans.best = in.arcs[after].src_state;
  if (before >= 0) ans.best = in.arcs[before].dest_state;
  return ans;
}

inline bool IsKept(States states, int state) {
  return states.forward[state] + states.backward[state] > states.cutoff ||
         state == states.best;
}

// The arcs from an FSA's states at one time to its states at the next time.
struct Arcs {
  States from, to;
  device const float *row;  // of b_scores
  int num_columns;
  int best;  // the arc of the best path, or -1
};

inline Arcs GetArcs(Input in, Fsa fsa, int t, float cutoff,
                    constant LatticeParams &params) {
  return Arcs{GetStates(in, fsa, t, cutoff, params),
              GetStates(in, fsa, t + 1, cutoff, params),
              in.b_scores + ptrdiff_t{fsa.first_row + t} * params.stride,
              params.num_columns, BestArc(in, fsa, t, params)};
}

inline float ArcScore(Arcs arcs, Arc arc) {
  const int column = ColumnOf(arc);
  return column < arcs.num_columns ? arc.score + arcs.row[column] : -INFINITY;
}

inline bool IsKept(Arcs arcs, Arc arc, int index) {
  if (index == arcs.best) return true;
  return IsKept(arcs.from, arc.src_state) && IsKept(arcs.to, arc.dest_state) &&
         arcs.from.forward[arc.src_state] + ArcScore(arcs, arc) +
                 arcs.to.backward[arc.dest_state] >
             arcs.from.cutoff;
}

#endif  // K2_CSRC_MPS_KERNELS_LATTICE_FRAMES_H_

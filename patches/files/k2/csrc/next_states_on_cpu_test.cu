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

#include <vector>

#include "gtest/gtest.h"
#include "k2/csrc/array.h"
#include "k2/csrc/hash.h"
#include "k2/csrc/next_states_on_cpu.h"
#include "k2/csrc/ragged_ops.h"

namespace k2 {

using intersect_pruned_internal::ArcInfo;
using intersect_pruned_internal::BestScoresOnCpu;
using intersect_pruned_internal::NextStatesOnCpu;
using intersect_pruned_internal::StateInfo;

namespace {

constexpr int32_t kKeyBits = 32;

// Two sequences.  The first one has a state with two arcs and a state with one
// arc; the second one has a state with two arcs.
struct Frame {
  ContextPtr c = GetCpuContext();
  Ragged<ArcInfo> arcs;
  std::vector<float> cutoffs = {-3, -3};
  Hash state_map{c, 128, kKeyBits};

  Frame() : arcs(RaggedShape("[ [ [ x x ] [ x ] ] [ [ x x ] ] ]")) {
    const int32_t dests[] = {7, 7, 4, 7, 5};
    const float scores[] = {-5, -1, 0, -4, -2};
    for (int32_t i = 0; i < arcs.NumElements(); ++i) {
      ArcInfo &arc = arcs.values.Data()[i];
      arc.a_fsas_arc_idx012 = i;
      arc.arc_loglike = 0;
      arc.u.dest_a_fsas_state_idx01 = dests[i];
      arc.end_loglike = scores[i];
    }
  }

  Ragged<StateInfo> Next() {
    return NextStatesOnCpu<kKeyBits>(
        arcs, cutoffs.data(),
        state_map.GetAccessor<Hash::Accessor<kKeyBits>>());
  }
};

}  // namespace

TEST(NextStatesOnCpu, BestScoreOfEachSequence) {
  Frame frame;
  Array1<float> best = BestScoresOnCpu(frame.arcs);
  EXPECT_EQ(best[0], 0);
  EXPECT_EQ(best[1], -2);
}

// The first sequence keeps state 7, because the second arc into this state is
// over the cutoff.  The second sequence has one arc into state 7, below the
// cutoff.
TEST(NextStatesOnCpu, StatesInTheOrderOfTheirFirstArcsOverTheCutoff) {
  Frame frame;
  Ragged<StateInfo> states = frame.Next();
  ASSERT_EQ(states.NumElements(), 3);
  EXPECT_EQ(states.RowSplits(1)[1], 2);
  EXPECT_EQ(states.values[0].a_fsas_state_idx01, 7);
  EXPECT_EQ(states.values[1].a_fsas_state_idx01, 4);
  EXPECT_EQ(states.values[2].a_fsas_state_idx01, 5);
}

TEST(NextStatesOnCpu, BestScoreOfEachState) {
  Frame frame;
  Ragged<StateInfo> states = frame.Next();
  EXPECT_EQ(OrderedIntToFloat(states.values[0].forward_loglike), -1);
  EXPECT_EQ(OrderedIntToFloat(states.values[1].forward_loglike), 0);
  EXPECT_EQ(OrderedIntToFloat(states.values[2].forward_loglike), -2);
}

TEST(NextStatesOnCpu, DestinationsOfArcs) {
  Frame frame;
  frame.Next();
  const int32_t expected[] = {0, 0, 1, -1, 0};
  for (int32_t i = 0; i < frame.arcs.NumElements(); ++i)
    EXPECT_EQ(frame.arcs.values[i].u.dest_info_state_idx1, expected[i]);
}

TEST(NextStatesOnCpu, TheHashIsEmptyAgain) {
  Frame frame;
  frame.Next();
  frame.state_map.CheckEmpty();
}

// The thread that prunes and the thread that computes the next frame use the
// shape at the same time, so neither thread may compute row ids in it.
TEST(NextStatesOnCpu, RowIdsAreSet) {
  Frame frame;
  Ragged<StateInfo> states = frame.Next();
  EXPECT_TRUE(states.shape.Layers()[0].row_ids.IsValid());
}

}  // namespace k2

#!/usr/bin/env python3
#
# Copyright      2026  The k2-mps authors
#
# See ../../../LICENSE for clarification regarding multiple authors
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

# To run this single test, use
#
#  ctest --verbose -R mps_dense_fsa_vec_test_py

import math
import os
import unittest
from unittest import mock

import k2
import torch


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
class TestMpsDenseFsaVec(unittest.TestCase):

    def test_mps_equals_the_cpu(self):
        torch.manual_seed(1)
        log_probs = torch.randn(2, 12, 5)
        # Two segments overlap, and one has no frames.
        segments = torch.tensor([[1, 0, 12], [0, 2, 7], [0, 5, 6], [1, 3, 0]],
                                dtype=torch.int32)

        def dense_and_gradient(device):
            leaf = log_probs.clone().to(device).requires_grad_(True)
            dense = k2.DenseFsaVec(leaf, segments)
            scores = dense.scores[:, 1:]
            scores.masked_fill(scores.isinf(), 0).square().sum().backward()
            return dense, leaf.grad

        dense, grad = dense_and_gradient('mps')
        expected, expected_grad = dense_and_gradient('cpu')
        assert str(dense.to('cpu')) == str(expected)
        assert torch.equal(dense.scores.cpu(), expected.scores)
        assert torch.equal(dense.duration, expected.duration)
        assert torch.equal(grad.cpu(), expected_grad)

    def test_scores_are_those_of_the_definition(self):
        torch.manual_seed(1)
        # The log-probs are whole numbers, so their sums are exact.
        log_probs = torch.randint(-8, 9, (2, 12, 5)).float()
        segments = [[1, 0, 12], [0, 2, 7], [0, 5, 6], [1, 3, 0]]
        leaf = log_probs.clone().to('mps').requires_grad_(True)
        dense = k2.DenseFsaVec(leaf, torch.tensor(segments, dtype=torch.int32))
        weights = torch.randint(-8, 9, dense.scores.shape).float()

        rows = []
        gradient = torch.zeros(log_probs.shape)
        for seq, begin, length in segments:
            for frame in range(begin, begin + length):
                # Column 0 is for label -1, which no frame allows.
                rows.append([-math.inf, *log_probs[seq, frame].tolist()])
                gradient[seq, frame] += weights[len(rows) - 1, 1:]
            # The row after the last frame allows only label -1.
            rows.append([0.] + [-math.inf] * 5)
        assert dense.scores.tolist() == rows
        assert dense.duration.tolist() == [length for *_, length in segments]
        begins = dense.dense_fsa_vec.shape().row_splits(1).tolist()
        assert begins == [0, 13, 21, 28, 29]

        finite = dense.scores.isfinite()
        (dense.scores[finite] * weights.to('mps')[finite]).sum().backward()
        assert torch.equal(leaf.grad.cpu(), gradient)

    def test_gradients_are_differences(self):
        torch.manual_seed(1)
        log_probs = torch.randint(-8, 9, (2, 5, 3)).float()
        # Two segments overlap.
        segments = torch.tensor([[0, 0, 5], [1, 1, 3], [1, 2, 3]],
                                dtype=torch.int32)
        # There are 11 frames in the 3 segments, and a row after each segment.
        weights = torch.randint(-8, 9, (14, 3)).to('mps')

        def value(log_probs):
            scores = k2.DenseFsaVec(log_probs, segments).scores[:, 1:]
            return (scores.nan_to_num(neginf=0) * weights).sum()

        leaf = log_probs.clone().to('mps').requires_grad_(True)
        before = value(leaf)
        before.backward()
        for index in range(log_probs.numel()):
            log_probs.view(-1)[index] += 1
            moved = value(log_probs.to('mps'))
            log_probs.view(-1)[index] -= 1
            # The sums are exact, so the difference is exact, too.
            assert moved - before == leaf.grad.view(-1)[index]

    def test_the_caller_may_write_to_the_durations(self):
        torch.manual_seed(1)
        log_probs = torch.randn(2, 40, 5).log_softmax(-1).to('mps')
        segments = torch.tensor([[0, 0, 40], [1, 0, 30]], dtype=torch.int32)
        graphs = k2.ctc_graph([[1, 2], [3]], device='mps')
        for force in ('host', 'metal'):
            with mock.patch.dict(os.environ, {'K2_MPS_FORCE': force}):
                dense = k2.DenseFsaVec(log_probs, segments)

                def results():
                    lattices = [
                        k2.intersect_dense(graphs, dense, 10),
                        k2.intersect_dense_pruned(graphs, dense, 20, 8, 1, 100)
                    ]
                    loss = k2.ctc_loss(graphs, dense, reduction='none')
                    return loss.tolist(), [str(x.arcs) for x in lattices]

                before = results()
                dense.duration.fill_(1)
                assert results() == before


if __name__ == '__main__':
    unittest.main()

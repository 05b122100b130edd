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

import unittest

import k2
import torch


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
class TestMpsDenseFsaVec(unittest.TestCase):

    def test_scores_and_gradient(self):
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


if __name__ == '__main__':
    unittest.main()

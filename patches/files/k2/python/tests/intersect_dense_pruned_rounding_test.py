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
#  ctest --verbose -R intersect_dense_pruned_rounding_test_py

import unittest

import k2
import torch


class TestIntersectDensePrunedRounding(unittest.TestCase):

    def test_large_scores(self):
        '''float32 rounds sums of these scores to multiples of 2 after one
        frame, and to multiples of 64 after many frames.'''
        devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            devices.append(torch.device('cuda', 0))
        for device in devices:
            for seed in range(5):
                torch.manual_seed(seed)
                scores = (torch.rand(2, 60, 5) - 0.5) * 4e7
                dense = k2.DenseFsaVec(
                    scores.to(device),
                    torch.tensor([[0, 0, 60], [1, 0, 40]], dtype=torch.int32))
                lattice = k2.intersect_dense_pruned(
                    k2.ctc_topo(4).to(device), dense, search_beam=1e8,
                    output_beam=1e8, min_active_states=0,
                    max_active_states=1000)
                assert lattice.shape[0] == 2
                assert lattice.num_arcs > 0


if __name__ == '__main__':
    unittest.main()

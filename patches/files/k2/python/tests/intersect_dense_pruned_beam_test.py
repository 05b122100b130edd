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
#  ctest --verbose -R intersect_dense_pruned_beam_test_py

import unittest

import k2
import torch


class TestIntersectDensePrunedBeam(unittest.TestCase):

    def test_an_infinite_output_beam_prunes_only_dead_ends(self):
        # No path from state 2 reaches the final state.
        graph = k2.Fsa.from_str('0 1 1 0\n0 2 2 0\n1 1 1 0\n1 3 -1 0\n3')
        segments = torch.tensor([[0, 0, 3]], dtype=torch.int32)
        devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            devices.append(torch.device('cuda', 0))
        for device in devices:
            dense = k2.DenseFsaVec(torch.zeros(1, 3, 3, device=device),
                                   segments)
            lattice = k2.intersect_dense_pruned(
                graph.to(device), dense, search_beam=20,
                output_beam=float('inf'), min_active_states=0,
                max_active_states=1000)
            assert lattice.labels.tolist() == [1, 1, 1, -1]


if __name__ == '__main__':
    unittest.main()

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
#  ctest --verbose -R intersect_dense_16_bits_test_py

import unittest

import k2
import torch


class TestIntersectDense16Bits(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    def best_score(self, graph, log_probs):
        num_frames = log_probs.shape[1]
        dense = k2.DenseFsaVec(
            log_probs, torch.tensor([[0, 0, num_frames]], dtype=torch.int32))
        lattice = k2.intersect_dense(graph, dense, 20.)
        return lattice.get_tot_scores(log_semiring=False,
                                      use_double_scores=True).item()

    def test_more_states_than_16_bits_count(self):
        # A path through states whose numbers need more than 16 bits, and whose
        # lower 16 bits are those of other states.
        arcs = [[0, 65537, 1, 0], [65537, 65538, 2, 0], [65538, 65539, -1, 0]]
        for device in self.devices:
            graph = k2.create_fsa_vec(
                [k2.Fsa(torch.tensor(arcs, dtype=torch.int32))]).to(device)
            log_probs = torch.tensor([[[-5., -1., -4.], [-6., -7., -2.]]])
            self.assertEqual(self.best_score(graph, log_probs.to(device)), -3)

    def test_more_labels_than_16_bits_count(self):
        for device in self.devices:
            log_probs = torch.full((1, 2, 65540), -9.)
            log_probs[0, 0, 65537], log_probs[0, 1, 65534] = -1, -2
            # The lower 16 bits of 65,537.
            log_probs[0, 0, 1] = -4
            graph = k2.linear_fsa([[65537, 65534]], device=device)
            self.assertEqual(self.best_score(graph, log_probs.to(device)), -3)


if __name__ == '__main__':
    unittest.main()

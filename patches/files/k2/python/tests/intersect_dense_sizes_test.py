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
#  ctest --verbose -R intersect_dense_sizes_test_py

import unittest

import k2
import torch


class TestIntersectDenseSizes(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    def test_more_frames_than_16_bits_count(self):
        num_frames = (1 << 16) + 3
        log_probs = torch.randn(1, num_frames, 3).log_softmax(-1)
        for device in self.devices:
            dense = k2.DenseFsaVec(
                log_probs.to(device),
                torch.tensor([[0, 0, num_frames]], dtype=torch.int32))
            graph = k2.create_fsa_vec([k2.trivial_graph(2)]).to(device)
            lattice = k2.intersect_dense(graph, dense, 1.0e-03)
            # The graph has only the labels 1 and 2.
            expected = log_probs[0, :, 1:].double().max(-1).values.sum()
            # Some devices have no float64.
            best = lattice.get_tot_scores(log_semiring=False,
                                          use_double_scores=True)
            best = best.cpu().double()
            assert torch.allclose(best, expected)


if __name__ == '__main__':
    unittest.main()

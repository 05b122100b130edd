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
#  ctest --verbose -R intersect_dense_labels_test_py

import unittest

import k2
import torch


class TestIntersectDenseLabels(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    def test_labels_that_the_scores_do_not_have(self):
        '''No arc has them; what is behind the scores is not read.'''
        segments = torch.tensor([[0, 0, 30], [1, 0, 21]], dtype=torch.int32)
        torch.manual_seed(20261122)
        log_probs = torch.randn(2, 30, 4).log_softmax(-1)
        for device in self.devices:
            dense = k2.DenseFsaVec(log_probs.to(device), segments)
            graphs = k2.create_fsa_vec([k2.ctc_topo(5)] * 2).to(device)
            lattice = k2.intersect_dense(graphs, dense, 20.)
            assert lattice.num_arcs > 0
            assert lattice.labels.max() == 3


if __name__ == '__main__':
    unittest.main()

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

    def random_scores(self, device):
        '''Return the scores of two sequences, for labels up to 3.'''
        segments = torch.tensor([[0, 0, 30], [1, 0, 21]], dtype=torch.int32)
        torch.manual_seed(20261122)
        log_probs = torch.randn(2, 30, 4).log_softmax(-1)
        return k2.DenseFsaVec(log_probs.to(device), segments)

    def test_labels_that_the_scores_do_not_have(self):
        '''No arc of the lattice has a label without scores.  For such a label,
        k2 would read past the end of the scores.'''
        for device in self.devices:
            dense = self.random_scores(device)
            graphs = k2.create_fsa_vec([k2.ctc_topo(5)] * 2).to(device)
            lattice = k2.intersect_dense(graphs, dense, 20.)
            assert lattice.num_arcs > 0
            assert lattice.labels.max() == 3

    def test_labels_above_16_bits(self):
        segments = torch.tensor([[0, 0, 2]], dtype=torch.int32)
        for device in self.devices:
            dense = k2.DenseFsaVec(torch.zeros(1, 2, 4, device=device),
                                   segments)
            for label in (65535, 65536, 65537, 10**8, 2**31 - 1):
                graph = k2.linear_fsa([[1, label]], device=device)
                lattice = k2.intersect_dense(graph, dense, 20.)
                assert lattice.num_arcs == 0, label

    def test_pruned(self):
        for device in self.devices:
            dense = self.random_scores(device)
            expected = k2.intersect_dense_pruned(
                k2.ctc_topo(3, device=device), dense, 20., 8., 1, 1000)
            for label in (4, 5, 10**8, 2**31 - 1):
                # The graph is ctc_topo(3) with one more arc, whose label has no
                # scores.
                graph = k2.ctc_topo(3)
                arcs = graph.arcs.values()
                extra = torch.tensor([[0, 0, label, 0]], dtype=torch.int32)
                final = arcs[:, 2].tolist().index(-1)
                arcs = torch.cat([arcs[:final], extra, arcs[final:]])
                graph = k2.arc_sort(k2.Fsa(arcs)).to(device)
                found = k2.intersect_dense_pruned(graph, dense, 20., 8., 1,
                                                  1000)
                assert found.labels.max() <= 3
                assert found.num_arcs == expected.num_arcs
                self.assertEqual(
                    found.get_tot_scores(True, True).tolist(),
                    expected.get_tot_scores(True, True).tolist())


if __name__ == '__main__':
    unittest.main()

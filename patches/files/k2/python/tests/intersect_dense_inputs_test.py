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
#  ctest --verbose -R intersect_dense_inputs_test_py

import unittest

import k2
import torch


def _scores(num_frames):
    torch.manual_seed(len(num_frames))
    return torch.randn(len(num_frames), max(num_frames), 6).log_softmax(-1)


def _dense(scores, num_frames):
    segments = torch.tensor([[i, 0, n] for i, n in enumerate(num_frames)],
                            dtype=torch.int32)
    return k2.DenseFsaVec(scores, segments)


def _intersect(graphs, dense, seqs=None):
    if seqs is not None:
        seqs = torch.tensor(seqs, dtype=torch.int32, device=graphs.device)
    graphs = graphs.clone()
    graphs.index = torch.arange(graphs.num_arcs, dtype=torch.int32,
                                device=graphs.device)
    return k2.intersect_dense(graphs, dense, 10, a_to_b_map=seqs,
                              seqframe_idx_name='row')


class TestIntersectDenseInputs(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    def test_any_order(self):
        labels = [[1, 2], [3], [], [4, 4, 5], [2, 1]]
        num_frames = [4, 9, 2, 9, 6]
        for device in self.devices:
            scores = _scores(num_frames).to(device).requires_grad_(True)
            graphs = k2.ctc_graph(labels, device=device)
            lattices = _intersect(graphs, _dense(scores, num_frames))
            assert lattices.shape[0] == len(labels)
            tot = lattices.get_tot_scores(True, True)
            grad, = torch.autograd.grad(tot.sum(), scores)

            first_arc, first_row = 0, 0
            for i, (row, n) in enumerate(zip(labels, num_frames)):
                alone = scores[i:i + 1].detach().requires_grad_(True)
                graph = k2.ctc_graph([row], device=device)
                expected = _intersect(graph, _dense(alone, [n]))
                assert str(lattices[i].arcs) == str(expected[0].arcs)
                assert torch.equal(lattices[i].index - first_arc,
                                   expected[0].index)
                assert torch.equal(lattices[i].row - first_row,
                                   expected[0].row)
                expected_tot = expected.get_tot_scores(True, True)
                assert torch.allclose(tot[i], expected_tot[0])
                expected_tot.sum().backward()
                assert torch.allclose(grad[i], alone.grad[0], atol=1e-6)
                first_arc += graph.num_arcs
                first_row += n + 1

            loss = k2.ctc_loss(graphs, _dense(scores, num_frames),
                               reduction='none')
            assert torch.allclose(loss, -tot.float())

    def test_any_map(self):
        num_frames = [3, 8]
        seqs = [0, 1, 0]
        for device in self.devices:
            scores = _scores(num_frames).to(device)
            graphs = k2.ctc_graph([[1], [2], [3]], device=device)
            lattices = _intersect(graphs, _dense(scores, num_frames), seqs)
            for i, j in enumerate(seqs):
                expected = _intersect(
                    k2.create_fsa_vec([graphs[i]]),
                    _dense(scores[j:j + 1], num_frames[j:j + 1]))
                assert str(lattices[i].arcs) == str(expected[0].arcs)

    def test_errors(self):
        for device in self.devices:
            scores = _scores([9, 8]).to(device)
            dense = _dense(scores, [9, 8])
            for n in (1, 3, 5):
                graphs = k2.ctc_graph([[1]] * n, device=device)
                with self.assertRaises(RuntimeError):
                    k2.intersect_dense(graphs, dense, 10)
                with self.assertRaises(RuntimeError):
                    k2.ctc_loss(graphs, dense)
                if n == 1:
                    continue
                with self.assertRaises(RuntimeError):
                    k2.intersect_dense_pruned(graphs, dense, 20, 8, 30, 10000)
            graphs = k2.ctc_graph([[1], [2]], device=device)
            for seqs in ([0, 2], [2, 0], [-1, 0], [0, -1]):
                wrong = max(seqs, key=abs)
                with self.assertRaisesRegex(
                        IndexError, f'^index {wrong} in a_to_b_map is out of '
                        'range for size 2$'):
                    _intersect(graphs, dense, seqs)


if __name__ == '__main__':
    unittest.main()

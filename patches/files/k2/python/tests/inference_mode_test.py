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
#  ctest --verbose -R inference_mode_test_py

import unittest

import k2
import torch


class TestInferenceMode(unittest.TestCase):
    '''Results under torch.inference_mode() equal those under
    torch.no_grad().'''

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))
        torch.manual_seed(1)
        cls.log_probs = torch.randn(2, 7, 5).log_softmax(-1)
        cls.segments = torch.tensor([[0, 0, 7], [1, 1, 5]], dtype=torch.int32)

    def decode(self, device, graph):
        dense = k2.DenseFsaVec(self.log_probs.to(device) * 1, self.segments)
        lattice = k2.intersect_dense_pruned(graph, dense, 20, 1e4, 1, 1000)
        lattice.scores = lattice.scores * 0.5
        lattice.labels = lattice.labels.clone()
        best = k2.shortest_path(lattice, True)
        return [
            best.labels, best.scores, lattice[0].labels,
            lattice.get_tot_scores(True, True),
            lattice.get_arc_post(True, True),
            k2.arc_sort(k2.connect(lattice)).labels,
            k2.invert(lattice).aux_labels,
            k2.prune_on_arc_post(lattice, 1e-2, True).labels,
            lattice.clone().labels,
            k2.ctc_loss(k2.ctc_graph([[1, 2], [3]], device=device), dense)
        ]

    def test_decoding(self):
        for device in self.devices:
            outside = k2.ctc_topo(4, device=device)
            with torch.no_grad():
                expected = self.decode(device, outside)
            with torch.inference_mode():
                inside = k2.ctc_topo(4, device=device)
                for graph in (outside, inside):
                    for found, value in zip(self.decode(device, graph),
                                            expected):
                        # On CUDA, the order of a lattice's arcs may differ
                        # from run to run.
                        if device.type == 'cuda' and found.dim() == 1:
                            found, value = found.sort()[0], value.sort()[0]
                            # In another order, sums have other rounding errors.
                            assert torch.allclose(found, value, rtol=1e-5)
                        else:
                            assert torch.equal(found, value)

    def test_edit_of_labels_is_seen(self):
        for device in self.devices:
            with torch.inference_mode():
                fsa = k2.linear_fsa([1, 2], device=device)
                fsa.labels[0] = 3
                with self.assertRaisesRegex(RuntimeError,
                                            'inappropriately modified'):
                    fsa.properties

    def test_gradient_outside(self):
        for device in self.devices:
            with torch.inference_mode():
                graph = k2.ctc_graph([[1, 2], [3]], device=device)
                fsa = k2.Fsa.from_str('0 1 1 0.5\n1 2 -1 0.5\n2').to(device)
            log_probs = self.log_probs.clone().to(device)
            log_probs = log_probs.detach().requires_grad_(True)
            dense = k2.DenseFsaVec(log_probs, self.segments)
            k2.ctc_loss(graph, dense).backward()
            assert bool(log_probs.grad.any())
            fsas = k2.create_fsa_vec([fsa]).requires_grad_(True)
            fsas.get_tot_scores(True, True).sum().backward()
            assert fsas.grad.tolist() == [1, 1]

    def test_scores_set_inside(self):
        for device in self.devices:
            with torch.inference_mode():
                fsas = k2.linear_fsa([[1, 2], [3]], device=device)
                first = torch.tensor([1, 0], dtype=torch.int32, device=device)
                all_made = [
                    k2.create_fsa_vec([fsas[0], fsas[1]]),
                    k2.Fsa.from_fsas([fsas[1]]),
                    k2.index_fsa(fsas, first),
                    k2.cat([fsas, fsas]),
                    k2.intersect(k2.arc_sort(fsas), k2.arc_sort(fsas),
                                 treat_epsilons_specially=False),
                    fsas.clone(),
                ]
                all_made[-1].scores = fsas.scores * 2
                all_made[-1].extra = fsas.labels * 2
            for made in all_made:
                assert not made.scores.is_inference()
                made.requires_grad_(True)
                k2.arc_sort(made).get_tot_scores(True, True).sum().backward()
                assert made.grad.tolist() == [1] * made.num_arcs
            extra = all_made[-1].extra
            assert not extra.is_inference()
            assert k2.index_select(extra, first).tolist() == [4, 2]

    def test_graph_made_inside_trains(self):
        for device in self.devices:
            with torch.inference_mode():
                vec = k2.create_fsa_vec([k2.ctc_topo(4, device=device)])
            log_probs = self.log_probs.to(device).clone().requires_grad_(True)
            dense = k2.DenseFsaVec(log_probs, self.segments)
            lattice = k2.intersect_dense_pruned(vec, dense, 20, 1e4, 1, 1000)
            lattice.get_tot_scores(True, True).sum().backward()
            # The posteriors of each of the 12 frames add up to 1.
            total = log_probs.grad.sum().item()
            assert abs(total - 12) < 1e-4, total  # 60 terms are rounded

    def test_cache_filled_inside_has_gradients(self):
        functions = ('get_tot_scores', 'get_forward_scores',
                     'get_backward_scores', 'get_arc_post')
        for device in self.devices:
            for double in (True, False):
                for name in functions:
                    gradients = []
                    for mode in (torch.no_grad, torch.inference_mode):
                        fsas = k2.create_fsa_vec([
                            k2.Fsa.from_str('0 1 1 0.5\n0 1 2 0\n1 2 -1 0\n2')
                        ]).to(device).requires_grad_(True)
                        with mode():
                            for each in functions:
                                getattr(fsas, each)(double, True)
                        scores = getattr(fsas, name)(double, True)
                        # Without square(), the sum of the posteriors would be
                        # constant, and its gradient would be 0.
                        scores.exp().square().sum().backward()
                        gradients.append(fsas.grad.tolist())
                    assert gradients[0] == gradients[1], (name, gradients)
                    assert any(gradients[0]), name


if __name__ == '__main__':
    unittest.main()

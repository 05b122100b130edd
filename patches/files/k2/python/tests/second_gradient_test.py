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
#  ctest --verbose -R second_gradient_test_py

import unittest

import k2
import torch


def _ctc(x):
    segments = torch.tensor([[0, 0, 6]], dtype=torch.int32)
    graph = k2.ctc_graph([[1, 2]], device=x.device)
    dense = k2.DenseFsaVec(x.reshape(1, 6, 4).log_softmax(-1), segments)
    return k2.ctc_loss(graph, dense)


def _pruned(x):
    segments = torch.tensor([[0, 0, 6]], dtype=torch.int32)
    graph = k2.ctc_graph([[1, 2]], device=x.device)
    dense = k2.DenseFsaVec(x.reshape(1, 6, 4), segments)
    lattice = k2.intersect_dense_pruned(graph, dense, 20, 8, 30, 10000)
    return lattice.scores.square().sum()


def _fsas(x):
    fsa = k2.Fsa.from_str('0 1 1 0\n0 1 2 0\n1 2 1 0\n1 2 2 0\n2 3 -1 0\n3')
    fsas = k2.create_fsa_vec([fsa]).to(x.device)
    fsas.scores = x[:fsas.num_arcs]
    return fsas


def _tot_scores(x):
    return _fsas(x).get_tot_scores(use_double_scores=True, log_semiring=True)


def _forward_scores(x):
    return _fsas(x).get_forward_scores(True, True)[-1]


def _backward_scores(x):
    return _fsas(x).get_backward_scores(True, True)[0]


def _arc_post(x):
    return _fsas(x).get_arc_post(True, True)[:2]


def _rnnt_simple(x):
    am, lm = x[:12].reshape(1, 3, 4), x[12:].reshape(1, 3, 4)
    return k2.rnnt_loss_simple(lm, am, torch.tensor([[1, 2]], device=x.device),
                               termination_symbol=0)


def _rnnt(x):
    logits = torch.cat([x, x[:12]]).reshape(1, 3, 3, 4)
    return k2.rnnt_loss(logits, torch.tensor([[1, 2]], device=x.device),
                        termination_symbol=0)


def _index_select(x):
    index = torch.tensor([1, 0, 1], dtype=torch.int32, device=x.device)
    return k2.index_select(x, index).square()


def _index_fsa(x):
    index = torch.tensor([0, 0], dtype=torch.int32, device=x.device)
    return k2.index_fsa(_fsas(x), index).scores.square()


class TestSecondGradient(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    def test_error(self):
        # k2 computes the first gradient with its own code, which autograd
        # cannot differentiate.  So a second gradient would lack a term.
        functions = (_ctc, _pruned, _tot_scores, _forward_scores,
                     _backward_scores, _arc_post, _rnnt_simple, _rnnt,
                     _index_select, _index_fsa)
        for device in self.devices:
            for function in functions:
                torch.manual_seed(1)
                x = torch.randn(24, device=device, requires_grad=True)
                for call in (
                        lambda y: torch.autograd.grad(y, x, create_graph=True),
                        lambda y: y.backward(create_graph=True)):
                    with self.assertRaisesRegex(RuntimeError,
                                                'cannot differentiate twice'):
                        call(function(x).sum())
                first, = torch.autograd.grad(function(x).sum(), x)
                assert first.abs().sum() > 0, function.__name__
                assert not first.requires_grad


if __name__ == '__main__':
    unittest.main()

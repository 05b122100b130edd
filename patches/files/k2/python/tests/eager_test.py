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
#  ctest --verbose -R eager_test_py

import io
import logging
import unittest
import warnings

import k2
import torch

SEGMENTS = torch.tensor([[0, 0, 6]], dtype=torch.int32)


class TestEager(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    def losses(self, device):
        '''Return functions that each compute a loss from 24 numbers.'''
        graph = k2.ctc_graph([[1, 2]], device=device)
        fsa = k2.Fsa.from_str(
            '0 1 1 0\n0 1 2 0\n1 2 1 0\n1 2 2 0\n2 3 -1 0\n3')
        fsas = k2.create_fsa_vec([fsa]).to(device)
        symbols = torch.tensor([[1, 2]], device=device)

        def ctc(x):
            log_probs = x.reshape(1, 6, 4).log_softmax(-1)
            return k2.ctc_loss(graph, k2.DenseFsaVec(log_probs, SEGMENTS))

        def intersect(x):
            dense = k2.DenseFsaVec(x.reshape(1, 6, 4) * 1, SEGMENTS)
            lattice = k2.intersect_dense(graph, dense, 10)
            return lattice.get_tot_scores(True, True).sum()

        def scores(x):
            fsas.scores = x[:5] * 2
            return fsas.get_arc_post(True, True).square().sum()

        def rnnt(x):
            return k2.rnnt_loss_simple(x[:12].reshape(1, 3, 4),
                                       x[12:].reshape(1, 3, 4), symbols, 0)

        return ctc, intersect, scores, rnnt

    def test_compile(self):
        if not hasattr(torch, 'compiler'):
            return
        log = logging.StreamHandler(io.StringIO())
        logging.getLogger('torch._dynamo').addHandler(log)
        for device in self.devices:
            x = torch.arange(24.0, device=device).sin().requires_grad_(True)
            for loss in self.losses(device):
                torch._dynamo.reset()
                compiled = torch.compile(loss, backend='eager')
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter('always')
                    for _ in range(3):
                        found, = torch.autograd.grad(compiled(x), x)
                assert not caught, [str(w.message) for w in caught]
                expected, = torch.autograd.grad(loss(x), x)
                # With CUDA, torch sums the gradients of arcs in varying order.
                tolerance = 1e-6 if device.type == 'cuda' else 0
                assert torch.allclose(found, expected, rtol=tolerance,
                                      atol=tolerance), loss.__name__
        logging.getLogger('torch._dynamo').removeHandler(log)
        assert log.stream.getvalue() == ''

    def test_func(self):
        if not hasattr(torch, 'func'):
            return
        for device in self.devices:
            x = torch.arange(24.0, device=device).sin()

            def make_fsa(x):
                return k2.linear_fsa([1], device).labels.sum() * x.sum()

            def select(x):
                index = torch.zeros(1, dtype=torch.int32, device=device)
                return k2.index_select(x, index).sum()

            for loss in (*self.losses(device), make_fsa, select):
                for call in (
                        lambda: torch.func.grad(loss)(x),
                        lambda: torch.func.hessian(loss)(x),
                        lambda: torch.func.jvp(loss, (x,), (x,)),
                        lambda: torch.func.vmap(loss)(x.expand(2, 24))):
                    with self.assertRaisesRegex(RuntimeError, 'torch.func'):
                        call()


if __name__ == '__main__':
    unittest.main()

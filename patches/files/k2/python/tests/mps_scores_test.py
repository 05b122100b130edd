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
#  ctest --verbose -R mps_scores_test_py

import os
import unittest
from unittest import mock

import k2
import torch


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
# Small problems would be the host's.
@mock.patch.dict(os.environ, {'K2_MPS_FORCE': 'metal'})
class TestMpsScores(unittest.TestCase):

    def setUp(self):
        torch.manual_seed(1)
        dense = k2.DenseFsaVec(torch.randn(2, 30, 6).log_softmax(-1),
                               torch.tensor([[0, 0, 30], [1, 0, 25]],
                                            dtype=torch.int32))
        self.lattice = k2.intersect_dense(k2.ctc_graph([[1, 2, 2], [4]]), dense,
                                          output_beam=10)

    def compare(self, name, log_semiring):
        '''Compare with the CPU in double precision.'''
        fsas = self.lattice.detach().requires_grad_(True)
        expected = getattr(fsas, name)(True, log_semiring)
        weights = torch.rand(len(expected))
        (expected * weights).sum().backward()
        for use_double in (True, False):
            on_mps = self.lattice.detach().to('mps').requires_grad_(True)
            scores = getattr(on_mps, name)(use_double, log_semiring)
            (scores * weights.to('mps')).sum().backward()
            # A rounding to float32, of numbers up to about 100.
            assert torch.allclose(scores.cpu(), expected.to(torch.float32),
                                  rtol=1e-6, atol=1e-5)
            assert torch.allclose(on_mps.grad.cpu(), fsas.grad, rtol=0,
                                  atol=1e-6 * float(fsas.grad.abs().max()))

    def test_scores(self):
        for log_semiring in (True, False):
            for name in ('forward', 'backward', 'tot'):
                self.compare(f'get_{name}_scores', log_semiring)

    def test_posteriors_of_arcs(self):
        found = []
        for device in ('cpu', 'mps'):
            fsas = self.lattice.detach().to(device).requires_grad_(True)
            post = fsas.get_arc_post(True, True).exp()
            post.sum().backward()
            found += [(post.cpu().to(torch.float32), fsas.grad.cpu())]
        for expected, given in zip(*found):
            # Sums of some hundred terms in float32.
            assert torch.allclose(given, expected, rtol=1e-5, atol=1e-4)

    def test_gradients_up_to_the_limit(self):
        # Total scores are 1e13, the largest with exact exponents.
        for size in (1e5, -2e6, 2e7, -1e10, 3e11):
            size = torch.tensor(size)
            unit = size.nextafter(2 * size) - size
            # Many paths have equal scores.
            scores = size + unit * torch.randint(0, 2,
                                                 self.lattice.scores.shape)
            found = []
            for device in ('cpu', 'mps'):
                fsas = self.lattice.detach().to(device)
                of_arcs = scores.clone().to(device).requires_grad_(True)
                fsas.scores = of_arcs
                total = fsas.get_tot_scores(True, True)
                total.sum().backward()
                found.append(of_arcs.grad.cpu())
            # The error of the CPU, whose doubles have a unit of 2^-52 of a
            # total score, after 30 additions.
            of_cpu = 4 * 2**-52 * float(total.detach().abs().max())
            assert torch.allclose(*found, rtol=0, atol=1e-6 + of_cpu)


if __name__ == '__main__':
    unittest.main()

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
#  ctest --verbose -R mps_kernels_test_py

import os
import unittest

import k2
import torch


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
class TestMpsKernels(unittest.TestCase):
    # Sums of some hundred terms, by exp() and log() of another device.
    tolerance = dict(rtol=1e-5, atol=1e-4)

    def setUp(self):
        # Small problems would be the host's.
        os.environ['K2_MPS_FORCE'] = 'metal'
        torch.manual_seed(1)
        self.targets = [[1, 2, 2, 3], [4], [2, 1]]
        self.log_probs = torch.randn(3, 30, 6).log_softmax(-1)
        self.segments = torch.tensor([[0, 0, 30], [1, 0, 25], [2, 2, 20]],
                                     dtype=torch.int32)

    def tearDown(self):
        del os.environ['K2_MPS_FORCE']

    def compare(self, function, *tensors):
        found = []
        for device in ('cpu', 'mps'):
            leaves = [x.detach().to(device).requires_grad_(True)
                      for x in tensors]
            results = function(*leaves)
            sum(x.sum() for x in results).backward()
            found.append([x.detach().cpu() for x in results] +
                         [x.grad.cpu() for x in leaves])
        for expected, given in zip(*found):
            assert torch.allclose(given, expected, **self.tolerance)

    def lattice(self, log_probs):
        return k2.intersect_dense(
            k2.ctc_graph(self.targets, device=log_probs.device),
            k2.DenseFsaVec(log_probs, self.segments), output_beam=10)

    def test_intersect_dense(self):
        self.compare(lambda x: [self.lattice(x).scores], self.log_probs)

    def test_scores(self):
        for log_semiring in (True, False):
            for name in ('forward', 'backward', 'tot'):
                self.compare(
                    lambda x: [getattr(self.lattice(x), f'get_{name}_scores')(
                        False, log_semiring).clamp(min=-100)],
                    self.log_probs)

    def test_posteriors_of_arcs(self):
        self.compare(
            lambda x: [self.lattice(x).get_arc_post(False, True).exp()],
            self.log_probs)

    def test_ctc_loss(self):
        for use_double in (False, True):
            self.compare(
                lambda x: [k2.ctc_loss(
                    k2.ctc_graph(self.targets, device=x.device),
                    k2.DenseFsaVec(x, self.segments),
                    use_double_scores=use_double)],
                self.log_probs)

    def test_mutual_information(self):
        self.compare(lambda px, py: [k2.mutual_information_recursion(px, py)],
                     torch.randn(2, 5, 8), torch.randn(2, 6, 7))


if __name__ == '__main__':
    unittest.main()

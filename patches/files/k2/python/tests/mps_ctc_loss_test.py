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
#  ctest --verbose -R mps_ctc_loss_test_py

import os
import unittest
from unittest import mock

import k2
import torch


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
# Small problems would be the host's.
@mock.patch.dict(os.environ, {'K2_MPS_FORCE': 'metal'})
class TestMpsCtcLoss(unittest.TestCase):

    def setUp(self):
        torch.manual_seed(1)
        self.targets = [[1, 2, 2, 3], [4], [2, 1]]
        self.log_probs = torch.randn(3, 30, 6).log_softmax(-1)
        self.segments = torch.tensor([[0, 0, 30], [1, 0, 25], [2, 2, 20]],
                                     dtype=torch.int32)

    def loss_and_gradients(self, device, **options):
        log_probs = self.log_probs.clone().to(device).requires_grad_(True)
        graph = k2.ctc_graph(self.targets, device=device).requires_grad_(True)
        loss = k2.ctc_loss(graph, k2.DenseFsaVec(log_probs, self.segments),
                           reduction='none', **options)
        loss.sum().backward()
        return loss.detach(), log_probs.grad, graph.grad

    def compare(self, **options):
        for found, expected in zip(self.loss_and_gradients('mps', **options),
                                   self.loss_and_gradients('cpu', **options)):
            # Sums of some hundred terms, by exp() and log() of another device.
            assert torch.allclose(found.cpu(), expected, rtol=1e-5, atol=1e-4)

    def test_loss_and_gradients(self):
        for use_double in (True, False):
            self.compare(use_double_scores=use_double)

    def test_scores_up_to_the_limit(self):
        # The loss is 3.6e8, the largest with exact exponents is 3.7e8.
        scores = (self.log_probs * 4).round()
        for offset in (2e6, -5e6, 1.2e7, -1.2e7):
            self.log_probs = scores + offset
            for use_double in (True, False):
                loss, gradient, _ = self.loss_and_gradients(
                    'mps', use_double_scores=use_double)
                expected, expected_gradient, _ = self.loss_and_gradients('cpu')
                # A rounding of the loss.
                assert torch.allclose(loss.cpu(), expected, rtol=1e-6, atol=0)
                # Products of four numbers in single precision, for each frame.
                assert torch.allclose(gradient.cpu(), expected_gradient,
                                      rtol=0, atol=1e-5)

    def test_delay_penalty(self):
        self.compare(delay_penalty=0.1)

    def test_a_label_without_scores(self):
        self.targets[1] = [6]
        with self.assertRaisesRegex(RuntimeError, 'has label 6'):
            self.loss_and_gradients('mps')


if __name__ == '__main__':
    unittest.main()

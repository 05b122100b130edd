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
#  ctest --verbose -R ctc_loss_mean_test_py

import unittest

import k2
import torch


class TestCtcLossMean(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    def test_empty_target(self):
        torch.manual_seed(1)
        logits = torch.randn(2, 6, 5)
        lengths = torch.tensor([2, 0])
        expected = torch.nn.functional.ctc_loss(
            logits.log_softmax(-1).transpose(0, 1), torch.tensor([1, 2]),
            torch.tensor([6, 5]), lengths, reduction='mean')
        for device in self.devices:
            for where in ('cpu', device):
                log_probs = logits.log_softmax(-1).to(device)
                log_probs.requires_grad_(True)
                dense = k2.DenseFsaVec(
                    log_probs,
                    torch.tensor([[0, 0, 6], [1, 0, 5]], dtype=torch.int32))
                loss = k2.ctc_loss(k2.ctc_graph([[1, 2], []], device=device),
                                   dense, 1e4, reduction='mean',
                                   target_lengths=lengths.to(where))
                loss.backward()
                assert torch.allclose(loss.cpu(), expected)
                assert bool(log_probs.grad.isfinite().all())

    def test_without_lengths(self):
        dense = k2.DenseFsaVec(torch.zeros(1, 4, 3),
                               torch.tensor([[0, 0, 4]], dtype=torch.int32))
        with self.assertRaisesRegex(AssertionError, 'needs target_lengths'):
            k2.ctc_loss(k2.ctc_graph([[1]]), dense, reduction='mean')

    def test_lengths_of_another_batch(self):
        dense = k2.DenseFsaVec(torch.zeros(2, 4, 3),
                               torch.tensor([[0, 0, 4], [1, 0, 4]],
                                            dtype=torch.int32))
        for shape in ((1,), (3,), (2, 1), ()):
            with self.assertRaisesRegex(AssertionError, r'shape \(2,\)'):
                k2.ctc_loss(k2.ctc_graph([[1], [2]]), dense, reduction='mean',
                            target_lengths=torch.ones(shape))


if __name__ == '__main__':
    unittest.main()

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
#  ctest --verbose -R rnnt_empty_references_test_py

import unittest

import k2
import torch

B, T, C = 2, 5, 6


class TestRnntEmptyReferences(unittest.TestCase):

    def setUp(self):
        self.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            self.devices.append(torch.device('cuda', 0))

    def test_no_sequences(self):
        for device in self.devices:
            px, py = torch.rand(0, 4, T + 1), torch.rand(0, 5, T)
            boundary = torch.zeros(0, 4, dtype=torch.int64)
            for s_range, expected in ((3, 3), (9, 5)):
                for prune_ranges in (k2.get_rnnt_prune_ranges,
                                     k2.get_rnnt_prune_ranges_deprecated):
                    ranges = prune_ranges(px.to(device), py.to(device),
                                          boundary.to(device), s_range)
                    assert ranges.shape == (0, T, expected)
                    assert ranges.dtype == torch.int64

    def test_pruned_loss_is_that_of_blanks(self):
        torch.manual_seed(1)
        am, lm = torch.randn(B, T, C), torch.randn(B, 1, C)
        boundary = torch.tensor([[0, 0, 0, T], [0, 0, 0, T - 1]])
        # Each frame emits the blank, which is symbol 0.
        log_probs = (am + lm).log_softmax(-1)[:, :, 0]
        expected = -torch.stack([log_probs[0].sum(), log_probs[1, :-1].sum()])
        for device in self.devices:
            for rnnt_type in ('regular', 'modified', 'constrained'):
                leaf = am.detach().to(device).requires_grad_(True)
                args = [torch.empty(B, 0, dtype=torch.int64, device=device), 0]
                bound = boundary.to(device)
                losses = []
                loss, grads = k2.rnnt_loss_smoothed(
                    lm.to(device), leaf, *args, 0, 0, bound, rnnt_type,
                    reduction='none', return_grad=True)
                losses.append(loss)
                for prune_ranges in (k2.get_rnnt_prune_ranges,
                                     k2.get_rnnt_prune_ranges_deprecated):
                    ranges = prune_ranges(*grads, bound, 5)
                    assert ranges.dtype == torch.int64
                    assert ranges.tolist() == [[[0]] * T] * B, ranges
                pruned = sum(k2.do_rnnt_pruning(leaf, lm.to(device), ranges))
                losses.append(k2.rnnt_loss_pruned(
                    pruned, args[0], ranges, 0, bound, rnnt_type,
                    reduction='none'))
                for loss in losses:
                    # A loss is the sum of five numbers of about 2.
                    assert torch.allclose(loss.cpu(), expected, atol=1e-5)
                    (grad,) = torch.autograd.grad(loss.sum(), leaf)
                    assert grad.isfinite().all()


if __name__ == '__main__':
    unittest.main()

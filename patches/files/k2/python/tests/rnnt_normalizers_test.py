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
#  ctest --verbose -R rnnt_normalizers_test_py

import itertools
import unittest

import k2
import torch


class TestRnntNormalizers(unittest.TestCase):

    def setUp(self):
        torch.manual_seed(1)
        self.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            self.devices.append(torch.device('cuda', 0))

    def losses(self, lm, am, device, dtype, autocast=False):
        '''Return two losses and their gradients, in float64 on the CPU.'''
        symbols = self.symbols.to(device)
        leaves = [x.to(device, dtype).requires_grad_(True) for x in (lm, am)]
        with torch.autocast(device.type, torch.bfloat16, enabled=autocast):
            simple = k2.rnnt_loss_simple(*leaves, symbols, 0)
            smoothed = k2.rnnt_loss_smoothed(*leaves, symbols, 0, 0.25, 0.1)
        grads = [torch.autograd.grad(loss, leaves)
                 for loss in (simple, smoothed)]
        return [x.detach().cpu().double()
                for x in (simple, smoothed, *grads[0], *grads[1])]

    def make(self, scale):
        B, S, T, C = 2, 15, 60, 50
        self.symbols = torch.randint(1, C, (B, S))
        return (torch.randn(B, S + 1, C) * scale, torch.randn(B, T, C) * scale)

    def test_large_logits(self):
        for device, scale in itertools.product(self.devices, (2, 40)):
            if device.type == 'cuda' and scale == 40:
                continue  # The products underflow.
            lm, am = self.make(scale)
            expected = self.losses(lm, am, torch.device('cpu'), torch.float64)
            found = self.losses(lm, am, device, torch.float32)
            for a, b in zip(found, expected):
                assert (a - b).norm() < 1e-4 * b.norm(), (scale, device)

    def test_terms_that_underflow(self):
        # The largest term is a normal number.  The other terms are not, but
        # their sum is 200 times the largest term.
        self.symbols = torch.ones(1, 1, dtype=torch.int64)
        lm, am = torch.zeros(1, 2, 500), torch.zeros(1, 2, 500)
        lm[:, :, 1:], am[:, :, 0] = -88, -87
        cpu = torch.device('cpu')
        expected = self.losses(lm, am, cpu, torch.float64)
        torch.set_flush_denormal(True)  # as most GPUs do
        try:
            found = self.losses(lm, am, cpu, torch.float32)
        finally:
            torch.set_flush_denormal(False)
        for a, b in zip(found, expected):
            assert (a - b).norm() < 1e-4 * b.norm()

    def test_autocast(self):
        lm, am = self.make(4)
        for device in self.devices:
            expected = self.losses(lm, am, device, torch.float32)
            found = self.losses(lm, am, device, torch.float32, True)
            for a, b in zip(found, expected):
                assert torch.equal(a, b), device

    def test_half_types(self):
        for dtype in (torch.float16, torch.bfloat16):
            lm, am = [x.to(dtype) for x in self.make(4)]
            for device in self.devices:
                expected = self.losses(lm.float(), am.float(), device,
                                       torch.float32)
                found = self.losses(lm, am, device, dtype)
                for a, b in zip(found, expected):
                    assert torch.allclose(a, b.to(dtype).double() if a.ndim
                                          else b, rtol=1e-6), device

    def test_symbols_without_probability(self):
        lm, am = self.make(1)
        lm[:, :, 1] = float('-inf')
        self.symbols.clamp_(min=2)
        for device in self.devices:
            for a in self.losses(lm, am, device, torch.float32):
                assert a.isfinite().all(), device


if __name__ == '__main__':
    unittest.main()

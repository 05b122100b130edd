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
#  ctest --verbose -R mps_swoosh_test_py

import unittest

import k2
import torch

# The kernels keep the derivative in 8 bits, in steps of this size.
STEP = 1.005 / 255


def expected(x, shift, offset):
    '''Return swoosh(x) and its derivative in float64.'''
    x = x.double()
    zero = torch.zeros((), dtype=torch.float64)
    y = torch.logaddexp(x - shift, zero) - 0.08 * x - offset
    return y, torch.sigmoid(x - shift) - 0.08


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
class TestMpsSwoosh(unittest.TestCase):

    def setUp(self):
        torch.manual_seed(1)
        self.x = torch.cat([5 * torch.randn(1003), torch.tensor([-1e30, 1e30])])
        self.functions = [('l', expected(self.x, 4, 0.035)),
                          ('r', expected(self.x, 1, 0.313261687))]

    def check(self, found, wanted):
        # The kernels' error is at most 2 units in the last place.
        assert torch.allclose(found.detach().cpu().double(), wanted,
                              rtol=2 * 2**-23, atol=1e-10)

    def test_forward(self):
        for kind, (y, _) in self.functions:
            function = getattr(k2, f'swoosh_{kind}_forward')
            self.check(function(self.x.to('mps')), y)

    def test_the_derivative_is_near_float64(self):
        for kind, (y, deriv) in self.functions:
            function = getattr(k2, f'swoosh_{kind}_forward_and_deriv')
            found_y, found_deriv = function(self.x.to('mps'))
            self.check(found_y, y)
            self.check(found_deriv, deriv)

    def test_gradient(self):
        for kind, (y, deriv) in self.functions:
            x = self.x.to('mps').requires_grad_(True)
            found = getattr(k2, f'swoosh_{kind}')(x)
            self.check(found, y)
            found.sum().backward()
            assert (x.grad.cpu() - deriv).abs().max() <= STEP

    def test_the_gradient_is_rounded_without_a_bias(self):
        count = 50000
        x = torch.full((count,), 1.7, device='mps', requires_grad=True)
        k2.swoosh_r(x).sum().backward()
        mean = x.grad.cpu().double().mean()
        # The limit is five standard deviations of the mean of the rounding
        # errors.
        assert abs(mean - expected(torch.tensor(1.7), 1, 0)[1]) < (
            5 * STEP / 2 / count**0.5)

    def test_dropout_follows_the_seed(self):
        x = torch.full((1000,), 100.0, device='mps', requires_grad=True)

        def kept():
            return (k2.swoosh_l(x, dropout_prob=0.5) != 0).cpu()

        torch.manual_seed(2)
        first, second = kept(), kept()
        torch.manual_seed(2)
        assert torch.equal(kept(), first)
        assert not torch.equal(second, first)


if __name__ == '__main__':
    unittest.main()

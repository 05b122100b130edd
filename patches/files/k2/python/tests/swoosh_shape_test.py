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
#  ctest --verbose -R swoosh_shape_test_py

import unittest

import k2
import torch


class TestSwooshShape(unittest.TestCase):

    def setUp(self):
        self.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            self.devices.append(torch.device('cuda', 0))

    def check(self, shape):
        for device in self.devices:
            for name in ('swoosh_l', 'swoosh_r'):
                x = torch.full(shape, 0.5, device=device)
                assert getattr(k2, name)(x).shape == shape
                assert getattr(k2, f'{name}_forward')(x).shape == shape
                x.requires_grad_(True)
                y = getattr(k2, name)(x)
                assert y.shape == shape
                y.sum().backward()
                assert x.grad.shape == shape

    def test_no_axis(self):
        self.check(())

    def test_no_elements(self):
        self.check((0, 4))

    def test_three_axes(self):
        self.check((2, 1, 3))

    def test_gradient_without_axis(self):
        for device in self.devices:
            x = torch.tensor(100.0, device=device, requires_grad=True)
            k2.swoosh_l(x).backward()
            # The derivative is 0.92.  k2 keeps it in 8 bits, in steps of
            # 1.005 / 255.
            assert abs(x.grad.item() - 0.92) <= 1.005 / 255


if __name__ == '__main__':
    unittest.main()

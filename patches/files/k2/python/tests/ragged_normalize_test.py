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
#  ctest --verbose -R ragged_normalize_test_py

import unittest

import k2
import torch


class TestRaggedNormalize(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    def test_gradient_of_shares(self):
        rows = [[0.5, 1.5, 3.0], [], [2.0], [-1.0, 4.0]]
        weights = [1.0, -2.0, 0.5, 3.0, 0.25, 2.0]
        for device in self.devices:
            ragged = k2.RaggedTensor(rows, device=device).requires_grad_(True)
            weight = torch.tensor(weights, device=device)
            (ragged.normalize(use_log=False).values * weight).sum().backward()
            expected, first = [], 0
            for row in rows:
                if not row:
                    continue
                x = torch.tensor(row, dtype=torch.float64, requires_grad=True)
                w = torch.tensor(weights[first:first + len(row)]).double()
                (w * x / x.sum()).sum().backward()
                expected.append(x.grad)
                first += len(row)
            # float32 rounds some numbers of the order of 1.
            self.assertLess(
                (ragged.grad.cpu() - torch.cat(expected)).abs().max(), 1e-6)

    def test_gradient_of_a_sum(self):
        # The normalized values of a row always add up to 1, so the gradient of
        # their sum is 0.  sum() passes back a gradient with a stride of 0.
        for device in self.devices:
            ragged = k2.RaggedTensor([[1.0, 2.0], [5.0]], device=device)
            ragged.requires_grad_(True)
            ragged.normalize(use_log=False).values.sum().backward()
            self.assertLess(ragged.grad.abs().max(), 1e-6)

    def test_integers(self):
        for device in self.devices:
            ragged = k2.RaggedTensor([[1, 2], [3]], device=device)
            for use_log in (True, False):
                with self.assertRaisesRegex(
                        ValueError, r'^normalize\(\) takes a ragged tensor of '
                        'torch.float32 or torch.float64$'):
                    ragged.normalize(use_log=use_log)


if __name__ == '__main__':
    unittest.main()

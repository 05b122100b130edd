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
#  ctest --verbose -R mps_mutual_information_test_py

import unittest

import k2
import torch


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
class TestMpsMutualInformation(unittest.TestCase):

    def setUp(self):
        torch.manual_seed(1)

    def test_mutual_information(self):
        px, py = torch.randn(2, 5, 8), torch.randn(2, 6, 7)

        def scores_and_gradients(device):
            leaves = [x.detach().to(device).requires_grad_(True)
                      for x in (px, py)]
            scores = k2.mutual_information_recursion(*leaves)
            scores.sum().backward()
            return [scores.detach(), *(x.grad for x in leaves)]

        for found, expected in zip(scores_and_gradients('mps'),
                                   scores_and_gradients('cpu')):
            # Both devices sum some hundred terms, with different exp() and
            # log().
            assert torch.allclose(found.cpu(), expected, rtol=1e-5, atol=1e-4)


if __name__ == '__main__':
    unittest.main()

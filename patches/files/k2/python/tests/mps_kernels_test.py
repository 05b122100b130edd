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

    def test_mutual_information(self):
        self.compare(lambda px, py: [k2.mutual_information_recursion(px, py)],
                     torch.randn(2, 5, 8), torch.randn(2, 6, 7))


if __name__ == '__main__':
    unittest.main()

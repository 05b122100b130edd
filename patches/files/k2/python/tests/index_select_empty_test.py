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
#  ctest --verbose -R index_select_empty_test_py

import unittest

import k2
import torch


class TestIndexSelectEmpty(unittest.TestCase):

    def setUp(self):
        self.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            self.devices.append(torch.device('cuda', 0))

    def test_no_element(self):
        for device in self.devices:
            index = torch.tensor([-1, -1], dtype=torch.int32, device=device)
            for dtype in (torch.int32, torch.float32):
                src = torch.empty(0, dtype=dtype, device=device)
                found = k2.index_select(src, index, 3)
                assert found.dtype == dtype
                assert found.tolist() == [3, 3], found
                src = torch.empty(0, 3, dtype=dtype, device=device)
                found = k2.index_select(src, index)
                assert found.dtype == dtype
                assert found.tolist() == [[0, 0, 0], [0, 0, 0]], found

    def test_gradient(self):
        for device in self.devices:
            src = torch.empty(0, device=device, requires_grad=True)
            index = torch.tensor([-1], dtype=torch.int32, device=device)
            k2.index_select(src, index).sum().backward()
            assert src.grad.shape == (0,), src.grad


if __name__ == '__main__':
    unittest.main()

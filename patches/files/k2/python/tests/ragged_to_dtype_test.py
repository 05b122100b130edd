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
#  ctest --verbose -R ragged_to_dtype_test_py

import unittest

import k2
import torch


class TestRaggedToDtype(unittest.TestCase):

    def setUp(self):
        self.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            self.devices.append(torch.device('cuda', 0))

    def test_only_the_dtype_changes(self):
        for device in self.devices:
            ragged = k2.RaggedTensor([[1, 2], [3]]).to(device)
            for dtype in (torch.float32, torch.float64, torch.int32):
                found = ragged.to(dtype)
                assert found.dtype == dtype
                assert found.device == device
                assert found.tolist() == [[1, 2], [3]]


if __name__ == '__main__':
    unittest.main()

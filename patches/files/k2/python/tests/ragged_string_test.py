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
#  ctest --verbose -R ragged_string_test_py

import unittest

import k2
import torch


class TestRaggedString(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    def test_the_device_is_printed(self):
        ragged = k2.RaggedTensor([[1, 2], [3]])
        for device in self.devices:
            at = f", device='{device}'" if device.type != 'cpu' else ''
            text = str(ragged.to(device))
            assert text.count('device') == (1 if at else 0), text
            # The texts of two devices differ only in the name of the device.
            assert text.replace(at, '') == str(ragged), text


if __name__ == '__main__':
    unittest.main()

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
#  ctest --verbose -R check_failed_test_py

import unittest

import k2
import torch


class TestCheckFailed(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    def test_reason(self):
        # The exception contains the condition that failed, and both values.
        segments = torch.tensor([[0, 0, 3]], dtype=torch.int32)
        for device in self.devices:
            graph = k2.ctc_graph([[1]], device=device)
            scores = torch.zeros(1, 3, 4, device=device)
            dense = k2.DenseFsaVec(scores, segments)
            for arguments, reason in (
                    ((-0.5, 8, 30, 100), r'search_beam > 0 \(-0.5 vs. 0\)'),
                    ((20, 8, -1, 100), r'min_active >= 0 \(-1 vs. 0\)')):
                with self.assertRaisesRegex(RuntimeError,
                                            f'Check failed: {reason}'):
                    k2.intersect_dense_pruned(graph, dense, *arguments)


if __name__ == '__main__':
    unittest.main()

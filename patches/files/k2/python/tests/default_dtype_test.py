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
#  ctest --verbose -R default_dtype_test_py

import unittest

import k2
import torch


class TestDefaultDtype(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    def check(self, function):
        expected = function()
        before = torch.get_default_dtype()
        self.addCleanup(torch.set_default_dtype, before)
        for dtype in (torch.float64, torch.float16, torch.bfloat16):
            torch.set_default_dtype(dtype)
            found = function()
            torch.set_default_dtype(before)
            assert found.dtype == expected.dtype
            assert torch.equal(found, expected), (found, expected)

    def test_dense_fsa_vec(self):
        log_probs = torch.rand(2, 5, 3)
        segments = torch.tensor([[0, 0, 5], [1, 1, 3]], dtype=torch.int32)
        self.check(lambda: k2.DenseFsaVec(log_probs, segments).scores)

    def test_dense_fsa_vec_without_classes(self):
        for device in self.devices:
            dense = k2.DenseFsaVec(torch.zeros(1, 2, 0, device=device),
                                   torch.tensor([[0, 0, 2]], dtype=torch.int32))
            inf = float('inf')
            assert dense.scores.tolist() == [[-inf], [-inf], [0]]

    def test_delay_penalty(self):
        # bfloat16 cannot hold the numbers of all frames.
        S, T, C = 2, 601, 3
        lm, am = torch.rand(1, S + 1, C), torch.rand(1, T, C)
        symbols = torch.ones(1, S, dtype=torch.int64)
        boundary = torch.tensor([[0, 0, S, T]])
        ranges = torch.arange(S + 1).expand(1, T, S + 1)
        logits = am.unsqueeze(2) + lm.unsqueeze(1)
        for loss in (
                lambda: k2.rnnt_loss(logits, symbols, 0, boundary,
                                     delay_penalty=0.1),
                lambda: k2.rnnt_loss_pruned(logits, symbols, ranges, 0,
                                            boundary, delay_penalty=0.1),
                lambda: k2.rnnt_loss_simple(lm, am, symbols, 0, boundary,
                                            delay_penalty=0.1),
                lambda: k2.rnnt_loss_smoothed(lm, am, symbols, 0, 0.1, 0.1,
                                              boundary, delay_penalty=0.1)):
            self.check(loss)


if __name__ == '__main__':
    unittest.main()

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
#  ctest --verbose -R rnnt_ranges_test_py

import unittest

import k2
import torch

B, S, T, C, R = 2, 4, 6, 5, 2


class TestRnntRanges(unittest.TestCase):

    def setUp(self):
        self.symbols = torch.ones(B, S, dtype=torch.int64)
        self.ranges = torch.tensor([0, 1, 1, 2, 3, 3]).reshape(
            1, T, 1) + torch.arange(R).expand(B, T, R)

    def test_wrong_ranges_are_refused(self):
        logits = torch.rand(B, T, R, C)
        for value, message in (
                ([-1, 0], 'index -1 is'), ([S, S + 1], f'index {S + 1} is'),
                ([2, 1], 'ascend by 1'), ([S, 0], 'ascend by 1'),
                ([1, 3], 'ascend by 1'), ([1, 1], 'ascend by 1')):
            ranges = self.ranges.clone()
            ranges[1, 3] = torch.tensor(value)
            for hat in (False, True):
                with self.assertRaisesRegex((RuntimeError, ValueError),
                                            message):
                    k2.rnnt_loss_pruned(logits, self.symbols, ranges, 0,
                                        use_hat_loss=hat)

    def test_a_frame_may_begin_below_the_frame_before_it(self):
        # The paths are those of the positions that both frames have.
        ranges = self.ranges.clone()
        ranges[:, 5] = torch.tensor([2, 3])
        full = torch.rand(B, T, S + 1, C)
        pruned = full.gather(
            2, ranges.unsqueeze(3).expand(B, T, R, C))
        boundary = torch.tensor([[0, 0, 3, T]] * B)
        loss = k2.rnnt_loss_pruned(pruned, self.symbols, ranges, 0, boundary)
        kept = torch.zeros(B, T, S + 1, dtype=torch.bool).scatter_(
            2, ranges, True).transpose(1, 2)
        px, py = k2.get_rnnt_logprobs_joint(full, self.symbols, 0,
                                            boundary=boundary)
        py = py.masked_fill(~kept, float('-inf'))
        px[:, :, :T].masked_fill_(~kept[:, :S], float('-inf'))
        expected = -k2.mutual_information_recursion(px, py, boundary).mean()
        assert torch.allclose(loss, expected), (loss, expected)


if __name__ == '__main__':
    unittest.main()

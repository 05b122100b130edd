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

import os
import subprocess
import sys
import unittest

import _k2
import k2
import k2.ragged
import torch


class TestCheckFailed(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    def test_one_line(self):
        # The line has the condition, both values and the place in the code.
        for device in self.devices:
            ragged = k2.RaggedTensor([[1], [2, 3]]).to(device)
            with self.assertRaisesRegex(
                    RuntimeError, r'^Check failed: axis < NumAxes\(\) '
                    r'\(7 vs. 2\) \[ragged.(cc|cu):\d+\]$'):
                ragged.tot_size(7)

    def test_long_values(self):
        text = '[' + 'x' * 1000
        with self.assertRaisesRegex(
                RuntimeError, r'^Failed to construct RaggedShape from string: '
                r'\[x{196}\.\.\. \[ragged.h:\d+\]$'):
            k2.RaggedShape(text)

    def test_tensors(self):
        row_splits = torch.tensor([0, 1])
        for tensor, given in (
                (row_splits, 'Strided tensor of Long, shape: [2], device: cpu'),
                (row_splits.int()[None], 'Int, shape: [1, 2], device: cpu'),
                (row_splits.int().to('meta'), 'Int, shape: [2], device: meta'),
                (row_splits.int().to_sparse(), 'Sparse tensor of Int')):
            with self.assertRaises(RuntimeError) as raised:
                k2.ragged.create_ragged_shape2(tensor, None, 1)
            self.assertIn('Expected a tensor of Int, dim: 1. Given: ',
                          str(raised.exception))
            self.assertIn(given, str(raised.exception))

    def test_output(self):
        # k2 prints the stack only on demand, and always in a debug build.
        for value in (None, '1'):
            env = {**os.environ, 'K2_SHOW_STACK': value or ''}
            if value is None:
                del env['K2_SHOW_STACK']
            done = subprocess.run(
                [sys.executable, '-c',
                 'import k2; k2.RaggedTensor([[1]]).tot_size(7)'],
                env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                universal_newlines=True)
            self.assertIn('RuntimeError: Check failed', done.stderr)
            shown = value is not None or not _k2.version.disable_debug
            self.assertEqual('Stack-Trace' in done.stdout, shown)
            self.assertEqual('Check failed' in done.stdout, shown)


if __name__ == '__main__':
    unittest.main()

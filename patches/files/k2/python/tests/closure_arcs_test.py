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
#  ctest --verbose -R closure_arcs_test_py

import unittest

import k2
import torch


class TestClosureArcs(unittest.TestCase):

    def check(self, text, expected):
        devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            devices.append(torch.device('cuda', 0))
        for device in devices:
            fsa = k2.Fsa.from_str(text, num_aux_labels=1).to(device)
            found = k2.to_str_simple(k2.closure(fsa).to('cpu'))
            assert found.split('\n') == expected, found

    def test_first_arc_after_the_start_state(self):
        self.check('0 1 1 7 0.5\n1 2 -1 -1 0.25\n2',
                   ['0 1 1 7 0.5', '0 2 -1 -1 0', '1 0 0 0 0.25', '2', ''])

    def test_ragged_attributes(self):
        fsa = k2.Fsa.from_str('0 1 1 0.5\n0 2 -1 0\n1 2 -1 0.25\n2')
        fsa.aux_labels = k2.RaggedTensor([[7, 8], [-1], [9, -1]])
        fsa.other = k2.RaggedTensor([[1], [], [-1, 2]])
        closure = k2.closure(fsa)
        self.assertEqual(closure.labels.tolist(), [1, 0, -1, 0])
        # The third arc is new.
        self.assertEqual(closure.aux_labels.tolist(), [[7, 8], [], [], [9]])
        self.assertEqual(closure.other.tolist(), [[1], [], [], [-1, 2]])

    def test_no_arc_of_the_start_state(self):
        self.check('1 2 -1 -1 0.25\n2',
                   ['0 2 -1 -1 0', '1 0 0 0 0.25', '2', ''])

    def test_no_arcs(self):
        self.check('2', ['0 2 -1 -1 0', '2', ''])

    def test_no_states(self):
        self.check('', [''])


if __name__ == '__main__':
    unittest.main()

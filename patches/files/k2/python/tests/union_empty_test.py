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
#  ctest --verbose -R union_empty_test_py

import unittest

import k2
import torch


class TestUnionEmpty(unittest.TestCase):

    def check(self, texts, expected, attribute):
        devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            devices.append(torch.device('cuda', 0))
        for device in devices:
            fsas = k2.create_fsa_vec([k2.Fsa.from_str(text) for text in texts])
            fsas.attribute = torch.arange(1, fsas.num_arcs + 1)
            found = k2.union(fsas.to(device)).to('cpu')
            text = k2.to_str_simple(found)
            assert text.split('\n') == expected, text
            assert found.attribute.tolist() == attribute, found.attribute

    def test_no_arcs(self):
        self.check(['1', '0 1 -1 0.5\n1', '2'],
                   ['0 1 0 0', '0 2 0 0', '0 3 0 0', '2 5 -1 0.5', '5', ''],
                   [0, 0, 0, 1])

    def test_no_arc_of_a_start_state(self):
        self.check(['0 1 1 0.5\n1 2 -1 0\n2', '1 2 -1 0.25\n2'],
                   ['0 1 0 0', '0 3 0 0', '1 2 1 0.5', '2 5 -1 0',
                    '4 5 -1 0.25', '5', ''],
                   [0, 0, 1, 2, 3])

    def test_no_states(self):
        self.check(['', '0 1 -1 0.5\n1', '', '0 1 2 0\n1 2 -1 0.25\n2'],
                   ['0 1 0 0', '0 2 0 0', '1 4 -1 0.5', '2 3 2 0',
                    '3 4 -1 0.25', '4', ''],
                   [0, 0, 1, 2, 3])

    def test_nothing(self):
        self.check(['', ''], [''], [])


if __name__ == '__main__':
    unittest.main()

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
#  ctest --verbose -R top_sort_errors_test_py

import unittest

import k2
import torch


class TestTopSortErrors(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    def test_cycles_are_refused(self):
        good = '0 1 1 0.1\n1 2 -1 0.2\n2'
        for text, reason in (
                ('0 1 1 0\n1 0 2 0\n1 2 -1 0\n2', 'an arc to its start state'),
                ('0 2 1 0\n1 0 1 0\n2 3 -1 0\n3', 'an arc to its start state'),
                ('0 1 1 0\n1 2 2 0\n2 1 3 0\n2 3 -1 0\n3', 'a cycle')):
            for device in self.devices:
                for texts in ([text], [good, text], [text, good]):
                    fsas = [k2.Fsa.from_str(each) for each in texts]
                    fsas = k2.create_fsa_vec(fsas).to(device)
                    with self.assertRaisesRegex(
                            RuntimeError, '^top_sort takes no FSA with '
                            f'{reason}, other than self-loops$'):
                        k2.top_sort(fsas)

    def test_self_loops(self):
        for device in self.devices:
            fsa = k2.Fsa.from_str('0 0 3 0\n0 2 1 0\n1 1 4 0\n1 3 -1 0\n'
                                  '2 1 2 0\n3').to(device)
            fsa = k2.top_sort(fsa)
            self.assertEqual(fsa.labels.tolist(), [3, 1, 2, 4, -1])


if __name__ == '__main__':
    unittest.main()

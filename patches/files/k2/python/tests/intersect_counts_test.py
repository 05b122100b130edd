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
#  ctest --verbose -R intersect_counts_test_py

import unittest

import k2
import torch


def fsas(texts, device):
    vector = k2.create_fsa_vec([k2.Fsa.from_str(text) for text in texts])
    return k2.arc_sort(vector).to(device)


class TestIntersectCounts(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    texts = ['0 1 1 0.5\n0 1 2 0.25\n1 2 -1 0\n2', '0 1 2 1\n1 2 -1 0.125\n2',
             '0 1 1 2\n1 2 -1 4\n2']
    one = '0 1 1 8\n0 1 2 16\n1 2 -1 32\n2'

    def check(self, a, b):
        result, a_map, b_map = k2.intersect(
            a, b, treat_epsilons_specially=False, ret_arc_maps=True)
        self.assertEqual(result.shape[0], 3)
        scores = a.scores[a_map.long()] + b.scores[b_map.long()]
        self.assertEqual(result.scores.tolist(), scores.tolist())
        self.assertEqual(result.labels.tolist(),
                         b.labels[b_map.long()].tolist())
        self.assertEqual(result.get_tot_scores(True, False).tolist(),
                         [48.25, 49.125, 46.0])

    def test_one_fsa_for_all(self):
        for device in self.devices:
            many, one = fsas(self.texts, device), fsas([self.one], device)
            self.check(many, one)
            self.check(one, many)
            self.check(many, one[0])
            self.check(one[0], many)

    def test_numbers_that_differ(self):
        for device in self.devices:
            many, two = fsas(self.texts, device), fsas(self.texts[:2], device)
            for a, b in ((many, two), (two, many)):
                with self.assertRaisesRegex(AssertionError,
                                            'cannot intersect . FSAs with .$'):
                    k2.intersect(a, b, treat_epsilons_specially=False)


if __name__ == '__main__':
    unittest.main()

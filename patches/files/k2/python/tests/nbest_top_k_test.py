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
#  ctest --verbose -R nbest_top_k_test_py

import unittest

import k2
import torch


class TestNbestTopK(unittest.TestCase):

    def setUp(self):
        self.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            self.devices.append(torch.device('cuda', 0))

    def test_the_last_path_is_repeated(self):
        for device in self.devices:
            paths = k2.linear_fsa([[1], [2], [3]]).to(device)
            paths.scores = torch.tensor([0.5, 0, 1, 0, 2, 0], device=device)
            shape = k2.RaggedShape('[ [x x] [x] ]').to(device)
            found = k2.Nbest(paths, shape).top_k(2)
            assert found.fsa.labels[::2].tolist() == [2, 1, 3, 3]
            assert found.shape == k2.RaggedShape('[ [x x] [x x] ]').to(device)
            scores = found.total_scores()
            assert scores.tolist() == [[1, 0.5], [2, 2]], scores

    def test_more_paths_than_any_utterance_has(self):
        for device in self.devices:
            paths = k2.linear_fsa([[1], [2], [3]]).to(device)
            shape = k2.RaggedShape('[ [x x] [x] ]').to(device)
            found = k2.Nbest(paths, shape).top_k(3)
            assert found.shape == k2.ragged.regular_ragged_shape(
                2, 3).to(device)
            labels = found.fsa.labels[::2].tolist()
            assert sorted(labels[:2]) == [1, 2]
            assert labels[2:] == [labels[1], 3, 3, 3]

    def test_not_positive(self):
        nbest = k2.Nbest(k2.linear_fsa([[1]]), k2.RaggedShape('[ [x] ]'))
        for k in (0, -1, -2**31):
            with self.assertRaisesRegex(AssertionError, 'must be positive'):
                nbest.top_k(k)


if __name__ == '__main__':
    unittest.main()

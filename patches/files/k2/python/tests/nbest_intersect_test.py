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
#  ctest --verbose -R nbest_intersect_test_py

import unittest

import k2
import torch


class TestNbestIntersect(unittest.TestCase):

    def setUp(self):
        self.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            self.devices.append(torch.device('cuda', 0))

    def test_paths_get_the_scores_of_the_lattice(self):
        for device in self.devices:
            lattice = k2.create_fsa_vec([
                k2.Fsa.from_str('0 1 1 0.5\n0 1 2 0.25\n1 2 -1 0\n2')
            ]).to(device)
            paths = k2.create_fsa_vec([
                k2.linear_fsa([2]), k2.linear_fsa([1])]).to(device)
            nbest = k2.Nbest(paths, k2.RaggedShape('[ [x x] ]').to(device))
            found = nbest.intersect(lattice)
            assert found.shape == nbest.shape
            scores = found.fsa.get_tot_scores(False, False)
            assert scores.tolist() == [0.25, 0.5], scores


if __name__ == '__main__':
    unittest.main()

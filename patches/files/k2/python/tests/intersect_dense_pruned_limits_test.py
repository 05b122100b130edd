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
#  ctest --verbose -R intersect_dense_pruned_limits_test_py

import unittest

import k2
import torch


class TestIntersectDensePrunedLimits(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    def test_a_huge_limit_is_no_limit(self):
        segments = torch.tensor([[0, 0, 6], [1, 0, 5], [2, 0, 1]],
                                dtype=torch.int32)
        torch.manual_seed(1)
        log_probs = torch.randn(3, 6, 5).log_softmax(-1)
        for device in self.devices:
            graph = k2.ctc_topo(4, device=device)
            dense = k2.DenseFsaVec(log_probs.to(device), segments)
            expected = k2.intersect_dense_pruned(graph, dense, 20., 8., 0, 1000)
            # With each of these limits, a product of the limit overflowed.
            for limit in (2**28, 2**29, 10**9, 2**30, 2**31 - 1):
                found = k2.intersect_dense_pruned(graph, dense, 20., 8., 0,
                                                  limit)
                self.assertEqual(found.num_arcs, expected.num_arcs)
                # CUDA adds up the scores in any order.
                torch.testing.assert_close(found.get_tot_scores(True, True),
                                           expected.get_tot_scores(True, True),
                                           rtol=0, atol=1e-14)


if __name__ == '__main__':
    unittest.main()

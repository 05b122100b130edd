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
#  ctest --verbose -R fork_test_py

import os
import unittest

import k2
import torch


def _states():
    dense = k2.DenseFsaVec(torch.zeros(1, 4, 3),
                           torch.tensor([[0, 0, 4]], dtype=torch.int32))
    return k2.intersect_dense_pruned(k2.ctc_topo(2), dense, 10, 10, 1,
                                     100).shape


@unittest.skipUnless(hasattr(os, 'fork'), 'needs fork()')
class TestFork(unittest.TestCase):

    def test_child_has_its_own_threads(self):
        expected = _states()
        child = os.fork()
        if child == 0:
            # If the child waited for its parent's threads, it would hang.
            import signal
            signal.alarm(60)
            os._exit(0 if _states() == expected else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)


if __name__ == '__main__':
    unittest.main()

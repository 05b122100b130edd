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
#  ctest --verbose -R intersect_dense_limits_test_py

import unittest

import torch
from intersect_dense_cases import IntersectDenseCases


class TestIntersectDenseLimits(IntersectDenseCases, unittest.TestCase):

    # The lowest limits at which k2 keeps the best paths.  Each path has a state
    # before each frame, a state before the final row, and the final state.  7
    # arcs leave each of these states except the final state.
    NUM_STATES = 31 + 31 + 22 + 3
    NUM_ARCS = 7 * (31 + 31 + 22)

    def test_limits_that_the_best_paths_need(self):
        for device in self.devices:
            expected = self.best(self.intersect(device))
            for limits in (dict(max_states=self.NUM_STATES),
                           dict(max_arcs=self.NUM_ARCS)):
                lattice = self.intersect(device, **limits)
                assert torch.equal(self.best(lattice), expected)
                assert lattice.num_arcs == self.NUM_STATES - 3

    def test_limits_that_the_best_paths_exceed(self):
        for device in self.devices:
            for limits in (dict(max_states=self.NUM_STATES - 1),
                           dict(max_arcs=self.NUM_ARCS - 1)):
                self.assertRaises(RuntimeError, self.intersect, device,
                                  **limits)

    def test_paths_that_are_equally_good(self):
        '''No beam separates paths of equal score.  k2 must keep one of them.'''
        for device in self.devices:
            for lattice in (
                    self.intersect(device, torch.zeros(3, 30, 6),
                                   max_states=self.NUM_STATES),
                    self.intersect(device, torch.full((3, 30, 6), -1.7),
                                   max_arcs=self.NUM_ARCS + 5)):
                assert lattice.num_arcs == self.NUM_STATES - 3
                assert torch.isfinite(self.best(lattice)).all()


if __name__ == '__main__':
    unittest.main()

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
#  ctest --verbose -R intersect_dense_beam_test_py

import unittest

import torch
from intersect_dense_cases import IntersectDenseCases


class TestIntersectDenseBeam(IntersectDenseCases, unittest.TestCase):

    def test_a_limit_narrows_the_beam(self):
        for device in self.devices:
            whole = self.intersect(device)
            num_states = whole.arcs.shape().tot_size(1)
            lattice = self.intersect(device, max_states=num_states // 2)
            assert 0 < lattice.arcs.shape().tot_size(1) <= num_states // 2
            assert torch.equal(self.best(lattice), self.best(whole))

            lattice = self.intersect(device, max_arcs=whole.num_arcs // 2)
            assert 0 < lattice.num_arcs <= whole.num_arcs // 2
            assert torch.equal(self.best(lattice), self.best(whole))


if __name__ == '__main__':
    unittest.main()

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
#  ctest --verbose -R intersect_dense_rounding_test_py

import unittest

import torch
from intersect_dense_cases import IntersectDenseCases


class TestIntersectDenseRounding(IntersectDenseCases, unittest.TestCase):

    def test_a_beam_that_rounding_exceeds(self):
        '''The sums of these scores have errors much larger than the beam.'''
        for device in self.devices:
            for offset in (0., 1.0e+06):
                log_probs = self.log_probs - offset
                expected = self.best(self.intersect(device, log_probs))
                for beam in (1.0e-02, 1.0e-05, 1.0e-08):
                    best = self.best(
                        self.intersect(device, log_probs, beam=beam))
                    # If the beam cut the best path, no path would be left.
                    assert torch.allclose(best, expected, rtol=1e-6)


if __name__ == '__main__':
    unittest.main()

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

import k2
import torch
from intersect_dense_cases import IntersectDenseCases


class TestIntersectDenseRounding(IntersectDenseCases, unittest.TestCase):

    def test_a_beam_that_rounding_exceeds(self):
        '''The rounding errors of the sums are much larger than the beam.'''
        for device in self.devices:
            for offset in (0., 1.0e+06):
                log_probs = self.log_probs - offset
                expected = self.best(self.intersect(device, log_probs))
                for beam in (1.0e-02, 1.0e-05, 1.0e-08):
                    best = self.best(
                        self.intersect(device, log_probs, beam=beam))
                    # If the best path were pruned, no path would be left.
                    assert torch.allclose(best, expected, rtol=1e-6)

    def test_best_path_of_large_scores(self):
        '''k2 keeps the best path if the rounding errors of the sums are smaller
        than the beam.'''
        num_frames, num_classes = 120, 6
        torch.manual_seed(1)
        noise = torch.randn(1, num_frames, num_classes)
        segments = torch.tensor([[0, 0, num_frames]], dtype=torch.int32)
        for offset, beam in ((1.0e+04, 20), (1.0e+05, 200), (2.0e+06, 4000)):
            log_probs = (2 * noise).log_softmax(dim=2) + offset
            # The graph allows any label in any frame.
            best = log_probs.double().max(dim=2)[0].sum().item()
            assert (num_frames + 1) * 2.0**-23 * best < beam
            for device in self.devices:
                graph = k2.create_fsa_vec([k2.ctc_topo(num_classes - 1,
                                                       device=device)])
                dense = k2.DenseFsaVec(log_probs.to(device), segments)
                lattice = k2.intersect_dense(graph, dense, beam)
                path = k2.shortest_path(lattice, use_double_scores=True)
                labels = path.labels[:-1].long().cpu()
                found = log_probs[0, range(num_frames), labels].double()
                assert found.sum().item() == best


if __name__ == '__main__':
    unittest.main()

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
#  ctest --verbose -R mps_intersect_dense_test_py

import os
import unittest
from unittest import mock

import k2
import torch


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
# Small problems would be the host's.
@mock.patch.dict(os.environ, {'K2_MPS_FORCE': 'metal'})
class TestMpsIntersectDense(unittest.TestCase):

    def setUp(self):
        torch.manual_seed(1)
        self.targets = [[1, 2, 2, 3], [4], [2, 1]]
        self.log_probs = torch.randn(3, 30, 6).log_softmax(-1)
        self.segments = torch.tensor([[0, 0, 30], [1, 0, 25], [2, 2, 20]],
                                     dtype=torch.int32)

    def lattice(self, device, **limits):
        '''Return a lattice, and the gradients of both inputs.'''
        log_probs = self.log_probs.clone().to(device).requires_grad_(True)
        graph = k2.ctc_graph(self.targets, device=device)
        graph.requires_grad_(True)
        lattice = k2.intersect_dense(
            graph, k2.DenseFsaVec(log_probs, self.segments), output_beam=10,
            **limits)
        lattice.scores.sum().backward()
        return lattice, graph.grad, log_probs.grad

    def compare(self, **limits):
        '''All bits are those of the CPU.'''
        lattice, *grads = self.lattice('mps', **limits)
        expected, *expected_grads = self.lattice('cpu', **limits)
        assert lattice.num_arcs > 0
        assert torch.equal(lattice.arcs.values().cpu(), expected.arcs.values())
        assert torch.equal(lattice.arcs.row_splits(1).cpu(),
                           expected.arcs.row_splits(1))
        assert torch.equal(lattice.aux_labels.cpu(), expected.aux_labels)
        assert lattice.properties == expected.properties
        for grad, expected_grad in zip(grads, expected_grads):
            assert torch.equal(grad.cpu(), expected_grad)

    def test_lattice_and_gradients(self):
        self.compare()

    def test_a_limit_narrows_the_beam(self):
        self.compare(max_states=150)

    def test_arcs_by_states(self):
        lattice, expected = self.lattice('mps')[0], self.lattice('cpu')[0]
        for name in ('_get_incoming_arcs', '_get_state_batches'):
            assert str(getattr(lattice, name)().to('cpu')) == str(
                getattr(expected, name)())


if __name__ == '__main__':
    unittest.main()

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
#  ctest --verbose -R mps_intersect_dense_pruned_test_py

import os
import unittest
from unittest import mock

import k2
import torch
from paths_in_float64 import SumsOfLattices
from paths_in_float64 import arcs_of
from paths_in_float64 import num_states
from paths_in_float64 import paths_by_source
from paths_in_float64 import sources_of


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
# The host is faster for these small problems, so force Metal.
@mock.patch.dict(os.environ, {'K2_MPS_FORCE': 'metal'})
class TestMpsIntersectDensePruned(unittest.TestCase):

    def setUp(self):
        torch.manual_seed(1)
        # There are more frames than in a window of the pruning.
        self.log_probs = torch.randn(3, 70, 6).log_softmax(-1)
        self.segments = torch.tensor([[0, 0, 70], [1, 0, 41], [2, 2, 0]],
                                     dtype=torch.int32)

    def lattice(self, graph, device, max_active, allow_partial=False):
        '''Return a lattice and the gradients of the scores of both inputs.'''
        log_probs = self.log_probs.clone().to(device).requires_grad_(True)
        graph = graph.to(device).clone().requires_grad_(True)
        lattice = k2.intersect_dense_pruned(
            graph, k2.DenseFsaVec(log_probs, self.segments), 8, 5, 2,
            max_active, seqframe_idx_name='seqframe', frame_idx_name='frame',
            allow_partial=allow_partial)
        lattice.scores.sum().backward()
        return lattice, graph.grad, log_probs.grad

    def compare(self, graph, max_active=100, allow_partial=False):
        '''Check that the result equals the CPU's result bit for bit.'''
        options = max_active, allow_partial
        lattice, *grads = self.lattice(graph, 'mps', *options)
        expected, *expected_grads = self.lattice(graph, 'cpu', *options)
        assert lattice.num_arcs > 0
        for name in ('labels', 'aux_labels', 'seqframe', 'frame'):
            assert torch.equal(
                getattr(lattice, name).cpu(), getattr(expected, name)), name
        assert torch.equal(lattice.arcs.values().cpu(), expected.arcs.values())
        for axis in (1, 2):
            assert torch.equal(lattice.arcs.row_splits(axis).cpu(),
                               expected.arcs.row_splits(axis))
        assert lattice.properties == expected.properties
        for grad, expected_grad in zip(grads, expected_grads):
            assert torch.equal(grad.cpu(), expected_grad)

    def test_a_graph_for_all_sequences(self):
        self.compare(k2.ctc_topo(5))

    def test_a_graph_for_each_sequence(self):
        self.compare(k2.ctc_graph([[1, 2, 2, 3], [4], [2, 1]]))

    def test_max_active_narrows_the_beam(self):
        self.compare(k2.ctc_topo(5), max_active=3)

    def test_partial_paths(self):
        # The graph ends after three frames, but the sequences are longer.
        graph = k2.linear_fst([1, 2, 3], [1, 2, 3])
        self.compare(graph, allow_partial=True)


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
@mock.patch.dict(os.environ, {'K2_MPS_FORCE': 'metal'})
class TestMpsIntersectDensePrunedPaths(SumsOfLattices, unittest.TestCase):
    '''Compares a lattice with all paths of the graphs.

    The sums of scores are exact, so it is certain which paths are within the
    beam.  The search beam is wide and all frames are in one window, so only the
    output beam prunes paths.
    '''

    def intersect(self, cases, beam):
        '''Return the lattices, and the graphs and log-probs that they were made
        from.  The graphs and the log-probs require gradients.'''
        log_probs = cases.log_probs.clone().to('mps').requires_grad_(True)
        graphs = cases.graphs.to('mps').requires_grad_(True)
        lattices = k2.intersect_dense_pruned(
            graphs, cases.dense(log_probs), search_beam=1000,
            output_beam=beam, min_active_states=1, max_active_states=1000,
            frame_idx_name='frame')
        assert k2.mps.lattice.made_by_metal(lattices)
        return lattices, graphs, log_probs

    def test_a_lattice_has_the_paths_within_the_beam(self):
        for cases, beam in self.each_case():
            lattices = self.intersect(cases, beam)[0]
            sources = sources_of(lattices)
            assert paths_by_source(lattices) == [
                expected.paths_by_source()
                for expected in cases.expected(beam)]
            for arcs, expected in zip(arcs_of(lattices),
                                      cases.expected(beam)):
                assert {sources[arc.index] for arc in arcs} == {
                    (frame, arc.index) for frame, arc in expected.kept}

    def test_each_state_of_a_lattice_is_on_a_path(self):
        for cases, beam in self.each_case():
            lattices = self.intersect(cases, beam)[0]
            for arcs, size in zip(arcs_of(lattices), num_states(lattices)):
                # If no arc is left, k2 on any device keeps states that are on
                # no path.
                if not arcs:
                    continue
                assert {arc.src for arc in arcs} == set(range(size - 1))
                assert {arc.dest for arc in arcs} == set(range(1, size))


if __name__ == '__main__':
    unittest.main()

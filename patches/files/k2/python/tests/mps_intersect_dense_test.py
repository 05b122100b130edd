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
from paths_in_float64 import IntersectionCases
from paths_in_float64 import SumsOfLattices
from paths_in_float64 import arcs_of
from paths_in_float64 import num_states
from paths_in_float64 import paths_by_source
from paths_in_float64 import sources_of


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
# The host is faster for these small problems, so force Metal.
@mock.patch.dict(os.environ, {'K2_MPS_FORCE': 'metal'})
class TestMpsIntersectDense(unittest.TestCase):

    def setUp(self):
        torch.manual_seed(1)
        self.targets = [[1, 2, 2, 3], [4], [2, 1]]
        self.log_probs = torch.randn(3, 30, 6).log_softmax(-1)
        self.segments = torch.tensor([[0, 0, 30], [1, 0, 25], [2, 2, 20]],
                                     dtype=torch.int32)

    def lattice(self, device, **limits):
        '''Return a lattice and the gradients of the scores of both inputs.'''
        log_probs = self.log_probs.clone().to(device).requires_grad_(True)
        graph = k2.ctc_graph(self.targets, device=device)
        graph.requires_grad_(True)
        lattice = k2.intersect_dense(
            graph, k2.DenseFsaVec(log_probs, self.segments), output_beam=10,
            **limits)
        lattice.scores.sum().backward()
        return lattice, graph.grad, log_probs.grad

    def compare(self, **limits):
        '''Check that the result equals the CPU's result bit for bit.'''
        lattice, *grads = self.lattice('mps', **limits)
        expected, *expected_grads = self.lattice('cpu', **limits)
        assert k2.mps.lattice.made_by_metal(lattice)
        assert lattice.num_arcs > 0
        assert torch.equal(lattice.arcs.values().cpu(), expected.arcs.values())
        assert torch.equal(lattice.arcs.row_splits(1).cpu(),
                           expected.arcs.row_splits(1))
        assert torch.equal(lattice.aux_labels.cpu(), expected.aux_labels)
        assert lattice.properties == expected.properties
        for grad, expected_grad in zip(grads, expected_grads):
            assert torch.equal(grad.cpu(), expected_grad)

    def test_the_result_is_that_of_the_cpu(self):
        self.compare()

    def test_the_host_computes_if_a_limit_is_exceeded(self):
        lattice = self.lattice('mps', max_states=150)[0]
        assert not k2.mps.lattice.made_by_metal(lattice)
        assert 0 < lattice.arcs.shape().tot_size(1) <= 150

    def test_the_caller_may_write_to_the_map(self):
        def gradient(force, writes):
            log_probs = self.log_probs.to('mps').requires_grad_(True)
            order = torch.tensor([0, 1, 2], dtype=torch.int32, device='mps')
            with mock.patch.dict(os.environ, {'K2_MPS_FORCE': force}):
                lattice = k2.intersect_dense(
                    k2.ctc_graph(self.targets, device='mps'),
                    k2.DenseFsaVec(log_probs, self.segments), 10,
                    a_to_b_map=order)
                if writes:
                    order.zero_()
                lattice.scores.sum().backward()
            return log_probs.grad

        for force in ('host', 'metal'):
            assert torch.equal(gradient(force, True), gradient(force, False))

    def test_arcs_by_states(self):
        lattice, expected = self.lattice('mps')[0], self.lattice('cpu')[0]
        for name in ('_get_incoming_arcs', '_get_state_batches'):
            assert str(getattr(lattice, name)().to('cpu')) == str(
                getattr(expected, name)())


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
@mock.patch.dict(os.environ, {'K2_MPS_FORCE': 'metal'})
class TestMpsIntersectDensePaths(SumsOfLattices, unittest.TestCase):
    '''Compares a lattice with all paths of the graphs.  The sums of scores are
    exact, so it is certain which paths are within the beam.'''

    def intersect(self, cases, beam, **options):
        '''Return the lattices, and the graphs and log-probs that they were made
        from.  The graphs and the log-probs require gradients.'''
        log_probs = cases.log_probs.clone().to('mps').requires_grad_(True)
        graphs = cases.graphs.to('mps').requires_grad_(True)
        lattices = k2.intersect_dense(graphs, cases.dense(log_probs), beam,
                                      frame_idx_name='frame', **options)
        return lattices, graphs, log_probs

    def test_a_lattice_has_the_paths_within_the_beam(self):
        for cases, beam in self.each_case():
            lattices = self.intersect(cases, beam)[0]
            assert paths_by_source(lattices) == [
                expected.paths_by_source() for expected in cases.expected(beam)]

    def test_each_arc_of_a_lattice_is_on_a_path_within_the_beam(self):
        for cases, beam in self.each_case():
            lattices = self.intersect(cases, beam)[0]
            sources = sources_of(lattices)
            for arcs, expected in zip(arcs_of(lattices), cases.expected(beam)):
                assert sorted(sources[arc.index] for arc in arcs) == sorted(
                    (frame, arc.index) for frame, arc in expected.kept)

    def test_each_state_of_a_lattice_is_on_a_path(self):
        for cases, beam in self.each_case():
            lattices = self.intersect(cases, beam)[0]
            for arcs, size in zip(arcs_of(lattices), num_states(lattices)):
                assert {arc.src for arc in arcs} == set(range(size - 1))
                assert {arc.dest for arc in arcs} == set(range(1, size))

    def test_states_come_in_the_order_of_frames(self):
        for cases, beam in self.each_case():
            lattices = self.intersect(cases, beam)[0]
            frames = lattices.frame.tolist()
            for arcs in arcs_of(lattices):
                for arc in arcs:
                    assert arc.src < arc.dest
                    assert all(frames[other.index] == frames[arc.index] + 1
                               for other in arcs if other.src == arc.dest)
                in_order = [frames[arc.index] for arc in arcs]
                assert in_order == sorted(in_order)

    def test_each_arc_is_among_the_incoming_arcs_of_its_state(self):
        for cases, beam in self.each_case():
            lattices = self.intersect(cases, beam)[0]
            expected = [[[arc.index for arc in arcs if arc.dest == state]
                         for state in range(size)]
                        for arcs, size in zip(arcs_of(lattices),
                                              num_states(lattices))]
            found = lattices._get_incoming_arcs().to('cpu')
            assert found.tolist() == expected

    def test_gradients_are_differences(self):
        cases = IntersectionCases(1)
        lattices, graphs, log_probs = self.intersect(cases, cases.beams[0])
        weights = torch.randint(-8, 9, lattices.scores.shape).to('mps')

        def value(lattices):
            return (lattices.scores * weights).sum()

        value(lattices).backward()
        a_scores = cases.graphs.scores.clone()
        for leaf, gradient in ((a_scores, graphs.grad),
                               (cases.log_probs, log_probs.grad)):
            for index in range(0, leaf.numel(), 3):
                leaf.view(-1)[index] += 1
                cases.graphs.scores = a_scores
                moved = value(self.intersect(cases, cases.beams[0])[0])
                leaf.view(-1)[index] -= 1
                # The beam is wide and the sums are exact, so the difference is
                # exact, too.
                assert moved - value(lattices) == gradient.view(-1)[index]

    def test_graphs_that_share_a_sequence(self):
        for cases, beam in self.each_case():
            cases.sequences = [0, 0, 0, 2]
            order = torch.tensor(cases.sequences, dtype=torch.int32)
            lattices = self.intersect(cases, beam, a_to_b_map=order.to('mps'))
            sources = sources_of(lattices[0])
            for arcs, expected in zip(arcs_of(lattices[0]),
                                      cases.expected(beam)):
                assert sorted(sources[arc.index] for arc in arcs) == sorted(
                    (frame, arc.index) for frame, arc in expected.kept)


if __name__ == '__main__':
    unittest.main()

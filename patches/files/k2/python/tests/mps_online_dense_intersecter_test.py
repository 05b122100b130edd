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
#  ctest --verbose -R mps_online_dense_intersecter_test_py

import os
import unittest
from unittest import mock

import _k2
import k2
import torch
from paths_in_float64 import Intersection
from paths_in_float64 import IntersectionCases
from paths_in_float64 import arcs_of
from paths_in_float64 import num_states
from paths_in_float64 import paths

DEVICES = ('cpu', 'mps')


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
# The host is faster for these small problems, so force Metal.
@mock.patch.dict(os.environ, {'K2_MPS_FORCE': 'metal'})
class TestMpsOnlineDenseIntersecter(unittest.TestCase):
    '''After every chunk, the lattices equal the CPU's lattices bit for bit.'''

    def setUp(self):
        torch.manual_seed(1)
        self.begin(k2.ctc_topo(5))

    def begin(self, graph, **options):
        graph = k2.create_fsa_vec([graph])
        self.intersecters = {
            device: k2.OnlineDenseIntersecter(
                graph.to(device), 2, search_beam=8, output_beam=4,
                min_active_states=2, max_active_states=20, **options)
            for device in DEVICES
        }
        self.states = {device: {} for device in DEVICES}

    def decode(self, device, log_probs, lengths):
        segments = [[i, 0, n] for i, n in enumerate(lengths.values())]
        dense = k2.DenseFsaVec(log_probs.to(device),
                               torch.tensor(segments, dtype=torch.int32))
        states = self.states[device]
        lattice, new_states = self.intersecters[device].decode(
            dense,
            [states.get(stream, k2.DecodeStateInfo()) for stream in lengths])
        states.update(zip(lengths, new_states))
        return lattice

    def compare(self, *chunks):
        for lengths in chunks:
            log_probs = torch.randn(len(lengths), 9, 6).log_softmax(-1)
            expected, lattice = [
                self.decode(device, log_probs, lengths) for device in DEVICES
            ]
            assert torch.equal(lattice.arcs.values().cpu(),
                               expected.arcs.values())
            for axis in (1, 2):
                assert torch.equal(lattice.arcs.row_splits(axis).cpu(),
                                   expected.arcs.row_splits(axis))
            assert torch.equal(lattice.aux_labels.cpu(), expected.aux_labels)
            assert lattice.properties == expected.properties

    def test_chunks(self):
        self.compare(*[{'a': 4, 'b': 4}] * 5)

    def test_chunks_of_a_frame(self):
        self.compare(*[{'a': 1, 'b': 1}] * 6)

    def test_the_host_goes_on_after_an_infinite_score(self):
        self.compare(*[{'a': 4, 'b': 4}] * 4)
        log_probs = torch.zeros(2, 9, 6)
        log_probs[0, 1, 3] = float('inf')
        for device in DEVICES:
            self.decode(device, log_probs, {'c': 4, 'd': 4})
        self.compare({'a': 4, 'c': 4}, {'b': 4, 'd': 4}, {'a': 2, 'd': 2})


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
@mock.patch.dict(os.environ, {'K2_MPS_FORCE': 'metal'})
class TestMpsOnlineDenseIntersecterPaths(unittest.TestCase):
    '''Compares lattices with all paths of a graph.  The sums of scores are
    exact, so it is certain which paths are within the beams.'''

    # The frames of each stream's chunks.
    CHUNKS = ((2, 1, 2, 0), (1, 3, 0, 1), (2, 0, 2, 1))

    def each_case(self):
        for seed in range(2):
            cases = IntersectionCases(seed)
            for graph in range(cases.graphs.shape[0]):
                for beams in ((1000.01, 100.01), (1000.01, 0.51),
                              (2.51, 100.01), (2.51, 3.01)):
                    yield (k2.create_fsa_vec([cases.graphs[graph]]), cases,
                           beams)

    def after_each_chunk(self, graph, cases, beams):
        '''Yield the lattices, and the number of frames of each stream.

        Args:
          beams:
            The search beam and the output beam.
        '''
        intersecter = k2.OnlineDenseIntersecter(
            graph, len(self.CHUNKS[0]), *beams, min_active_states=1,
            max_active_states=1000, allow_partial=False)
        states = [k2.DecodeStateInfo()] * len(self.CHUNKS[0])
        begins = [0] * len(self.CHUNKS[0])
        for lengths in self.CHUNKS:
            segments = [[stream, 0, length]
                        for stream, length in enumerate(lengths)]
            chunks = torch.stack([
                torch.nn.functional.pad(of_stream[begin:begin + length],
                                        (0, 0, 0, 3 - length))
                for of_stream, begin, length in zip(cases.log_probs, begins,
                                                    lengths)])
            dense = k2.DenseFsaVec(chunks.to('mps'),
                                   torch.tensor(segments, dtype=torch.int32))
            lattices, states = intersecter.decode(dense, states)
            assert all(isinstance(state, _k2.MpsPrunedStream)
                       for state in states)
            begins = [sum(pair) for pair in zip(begins, lengths)]
            yield lattices, begins

    def check(self, graph, cases, beams, compare):
        '''Call compare() with the lattice of each stream after each chunk: its
        arcs, paths and scores, and the intersection that it must have.  A path
        is a tuple of the indexes of its arcs in the lattices.'''
        graph.arc_index = torch.arange(graph.num_arcs, dtype=torch.int32)
        arcs_of_graph, = arcs_of(graph)
        size_of_graph, = num_states(graph)
        search_beam, output_beam = beams
        for lattices, lengths in self.after_each_chunk(graph.to('mps'), cases,
                                                       beams):
            for arcs, size, length, of_stream in zip(
                    arcs_of(lattices), num_states(lattices), lengths,
                    cases.log_probs.double()):
                found = [tuple(arc.index for arc in path)
                         for path in paths(arcs, 0, size - 1)] if arcs else []
                compare(lattices, found, of_stream, Intersection(
                    arcs_of_graph, size_of_graph, length,
                    graph.scores.double(), of_stream, output_beam,
                    search_beam))

    def test_a_lattice_has_the_paths_within_the_beams(self):

        def compare(lattices, found, of_stream, expected):
            sources = lattices.arc_index.tolist()
            found = sorted([sources[arc] for arc in path] for path in found)
            wanted = sorted([arc.index for arc in path]
                            for path in expected.paths)
            if output_beam > 100:
                assert found == wanted
            # The pruning after a chunk keeps arcs that a later chunk may need.
            else:
                assert all(path in found for path in wanted)

        for graph, cases, beams in self.each_case():
            output_beam = beams[1]
            self.check(graph, cases, beams, compare)

    def test_scores_are_sums_of_both_inputs(self):

        def compare(lattices, found, of_stream, expected):
            sources = lattices.arc_index.tolist()
            labels, scores = lattices.labels.tolist(), lattices.scores.tolist()
            rows = of_stream.tolist()
            for path in found:
                assert len(path) == expected.num_frames + 1
                for frame, arc in enumerate(path):
                    # The scores after the last frame are 0.
                    label = labels[arc]
                    b_score = rows[frame][label] if label >= 0 else 0
                    assert scores[arc] == a_scores[sources[arc]] + b_score

        for graph, cases, beams in self.each_case():
            a_scores = graph.scores.tolist()
            self.check(graph, cases, beams, compare)

    def test_gradients_are_sums_over_arcs(self):
        for graph, cases, beams in self.each_case():
            graph.arc_index = torch.arange(graph.num_arcs, dtype=torch.int32)
            on_mps = graph.to('mps').requires_grad_(True)
            *_, (lattices, _) = self.after_each_chunk(on_mps, cases, beams)
            # The weights are whole numbers, so their sums are exact.
            weights = torch.randint(-8, 9, lattices.scores.shape).float()
            (lattices.scores * weights.to('mps')).sum().backward()
            expected = torch.zeros(graph.num_arcs).index_add(
                0, lattices.arc_index.cpu().long(), weights)
            assert torch.equal(on_mps.grad.cpu(), expected)


if __name__ == '__main__':
    unittest.main()

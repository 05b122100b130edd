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
#  ctest --verbose -R online_dense_intersecter_lengths_test_py

import unittest

import k2
import torch


def new_intersecter(graph, num_streams):
    return k2.OnlineDenseIntersecter(decoding_graph=graph,
                                     num_streams=num_streams,
                                     search_beam=8,
                                     output_beam=4,
                                     min_active_states=1,
                                     max_active_states=100)


def dense_fsas(log_probs, lengths):
    segments = [[i, 0, length] for i, length in enumerate(lengths)]
    return k2.DenseFsaVec(log_probs, torch.tensor(segments, dtype=torch.int32))


class TestOnlineDenseIntersecterLengths(unittest.TestCase):
    '''The lattices of a stream do not depend on other streams in the batch.'''

    def setUp(self):
        torch.manual_seed(1)
        self.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            self.devices.append(torch.device('cuda', 0))

    def compare(self, chunks, graph=None):
        '''Decode streams together and alone, and compare the lattices.

        Args:
          chunks:
            A list with a dict for each call of ``decode``.  The dict maps the
            names of the streams in the call to the numbers of their frames.
          graph:
            The decoding graph, on the CPU; None for a CTC topology.
        Returns:
          The lattices of the last call of ``decode`` on the last device.
        '''
        graph = k2.Fsa.from_fsas([graph or k2.ctc_topo(5)])
        for device in self.devices:
            graph = graph.to(device)
            together = new_intersecter(graph, 3)
            alone = new_intersecter(graph, 1)
            states, states_alone = {}, {}
            for lengths in chunks:
                log_probs = torch.randn(len(lengths), 9, 6).log_softmax(-1)
                log_probs = log_probs.to(device)
                lattice, new_states = together.decode(
                    dense_fsas(log_probs, lengths.values()),
                    [states.get(stream) for stream in lengths])
                states.update(zip(lengths, new_states))
                for i, stream in enumerate(lengths):
                    expected, (states_alone[stream],) = alone.decode(
                        dense_fsas(log_probs[i:i + 1], [lengths[stream]]),
                        [states_alone.get(stream)])
                    self.compare_lattices(lattice[i], expected[0])
        return lattice

    def compare_lattices(self, lattice, expected):
        lattice, expected = lattice.to('cpu'), expected.to('cpu')
        # On CUDA, a race decides the order of states.
        if k2.connect(expected).num_arcs > 0:
            assert k2.is_rand_equivalent(lattice, expected, log_semiring=True)
        assert lattice.shape == expected.shape
        assert lattice.num_arcs == expected.num_arcs
        assert torch.equal(lattice.aux_labels.sort()[0],
                           expected.aux_labels.sort()[0])

    def test_chunks_of_different_lengths(self):
        lattice = self.compare([{'a': 5, 'b': 2, 'c': 9},
                                {'a': 1, 'b': 7, 'c': 3}])
        assert lattice.num_arcs > 0

    def test_a_stream_begins_in_the_middle(self):
        self.compare([{'a': 5, 'b': 5}, {'a': 5, 'b': 5, 'c': 5},
                      {'a': 4, 'b': 9, 'c': 2}])

    def test_a_stream_ends_in_the_middle(self):
        self.compare([{'a': 5, 'b': 5, 'c': 5}, {'a': 5, 'b': 3, 'c': 5},
                      {'a': 5, 'c': 5}, {'c': 6}])

    def test_a_stream_without_frames(self):
        self.compare([{'a': 5, 'b': 0, 'c': 3}, {'a': 0, 'b': 4, 'c': 0},
                      {'a': 2, 'b': 2, 'c': 2}])

    def test_no_active_state_is_left(self):
        # The graph ends after two symbols.  So no state is active before the
        # second chunk of `a` and `c`, and before the third frame of `b`.
        graph = k2.linear_fst([1, 2], [1, 2])
        lattice = self.compare([{'a': 2, 'b': 4, 'c': 2},
                                {'a': 3, 'b': 3, 'c': 0},
                                {'a': 1, 'b': 5, 'c': 1}], graph)
        # No stream has started again from the start state of the graph.
        assert (lattice.labels != -1).all()


if __name__ == '__main__':
    unittest.main()

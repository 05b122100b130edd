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

import k2
import torch

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


if __name__ == '__main__':
    unittest.main()

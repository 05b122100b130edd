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
#  ctest --verbose -R intersect_dense_pruned_states_test_py

import unittest

import k2
import torch


class TestIntersectDensePrunedStates(unittest.TestCase):
    '''Tests which states of the graph a frame of the lattice keeps, and which
    arcs enter these states.'''

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    def decode(self, graph: str, device: torch.device) -> k2.Fsa:
        '''Return the lattices of two sequences with three and two frames.

        All log-probs are 0.  The search beam is 3 in all frames: k2 does not
        widen the beam for the last frames, because at most two states are
        active.
        '''
        graphs = k2.create_fsa_vec([k2.Fsa.from_str(graph)]).to(device)
        segments = torch.tensor([[0, 0, 3], [1, 0, 2]], dtype=torch.int32)
        dense = k2.DenseFsaVec(torch.zeros(2, 3, 6, device=device), segments)
        return k2.intersect_dense_pruned(
            graphs, dense, search_beam=3, output_beam=100,
            min_active_states=0, max_active_states=2)

    # The arcs with labels 1 and 2 enter the same state.  In the first frame,
    # the arc with label 1 is within the beam, so k2 keeps that state.  The arc
    # with label 2 is below the beam.
    ONE_STATE = '''
        0 1 1 0
        0 1 2 -5
        0 2 3 -5
        1 1 4 0
        1 3 -1 0
        2 2 4 0
        2 3 -1 0
        3'''

    def test_an_arc_below_the_beam_enters_a_kept_state(self):
        for device in self.devices:
            lattice = self.decode(self.ONE_STATE, device)
            for i, num_frames in enumerate((3, 2)):
                labels = lattice[i].labels.tolist()
                self.assertEqual(labels.count(1), 1)
                self.assertEqual(labels.count(2), 1)
                self.assertEqual(labels.count(4), num_frames - 1)

    def test_a_state_is_not_kept_for_arcs_below_the_beam(self):
        for device in self.devices:
            lattice = self.decode(self.ONE_STATE, device)
            self.assertNotIn(3, lattice.labels.tolist())

    def test_the_next_frame_begins_with_the_best_arc_into_a_state(self):
        # The best arc into state 1 has score 0, and the only arc into state 2
        # has score -1.  So the arcs with score -2.5 end at scores -2.5 and
        # -3.5.  Only the arc that ends at -2.5 is within the beam and keeps a
        # state.
        graph = '''
            0 1 1 -1
            0 1 2 0
            0 1 3 -1
            0 2 3 -1
            1 1 4 0
            1 3 4 -2.5
            1 5 -1 0
            2 2 4 0
            2 4 4 -2.5
            2 5 -1 0
            3 3 5 0
            3 5 -1 0
            4 4 5 0
            4 5 -1 0
            5'''
        for device in self.devices:
            lattice = self.decode(graph, device)
            scores = sorted(lattice[1].scores.tolist())
            self.assertEqual(scores, [-2.5, -1, -1, -1, 0, 0, 0, 0, 0, 0])

    def test_states_have_the_order_of_their_first_arcs(self):
        # The test runs on the CPU only: on CUDA, a race decides the order of
        # the states of a frame.
        graph = '''
            0 1 1 -2
            0 2 2 0
            0 3 3 -4
            0 3 4 -1
            1 1 5 0
            1 4 -1 0
            2 2 5 0
            2 4 -1 0
            3 3 5 0
            3 4 -1 0
            4'''
        lattice = self.decode(graph, torch.device('cpu'))
        for i in (0, 1):
            dest = lattice[i].arcs.values()[:4, 1].tolist()
            self.assertEqual(dest, [1, 2, 3, 3])


if __name__ == '__main__':
    unittest.main()

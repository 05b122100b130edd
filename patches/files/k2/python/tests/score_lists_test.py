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
#  ctest --verbose -R score_lists_test_py

import unittest

import _k2
import k2
import torch


class Lists:
    '''The lists of an FsaVec from which k2's functions compute scores.'''

    def __init__(self, texts):
        fsas = k2.create_fsa_vec([k2.Fsa.from_str(text) for text in texts])
        self.arcs = fsas.arcs
        self.states = fsas._get_state_batches()
        self.dest = fsas._get_dest_states()
        self.incoming = fsas._get_incoming_arcs()
        self.entering = fsas._get_entering_arc_batches()
        self.leaving = fsas._get_leaving_arc_batches()
        self.forward = fsas._get_forward_scores(True, True)
        self.backward = fsas._get_backward_scores(True, True)
        self.best = fsas._get_entering_arcs(True)
        self.post = fsas._get_arc_post(True, True)
        self.cdf = fsas._get_arc_cdf(True, True)
        self.totals = fsas._get_tot_scores(True, True)


def with_value(ragged, value):
    '''Return a copy of a ragged tensor, with `value` as the last element.'''
    values = ragged.values.clone()
    values[-1] = value
    return k2.RaggedTensor(ragged.shape, values)


class TestScoreLists(unittest.TestCase):
    '''Functions refuse lists that belong to other FSAs.'''

    @classmethod
    def setUpClass(cls):
        cls.own = Lists(['0 1 1 0.5\n0 2 2 0.2\n1 3 -1 0\n2 3 -1 0.3\n3'])
        long = '\n'.join(f'{i} {i + 1} {i + 1 if i < 999 else -1} 0'
                         for i in range(1000)) + '\n1000'
        cls.others = [Lists([long]), Lists([long, long]),
                      Lists(['0 1 -1 0\n1'])]

    def refuse(self, function, *args):
        with self.assertRaisesRegex(ValueError, '^[^\n]*FSAs$'):
            function(*args)

    def refuse_index(self, function, *args):
        with self.assertRaisesRegex(IndexError, '^index .* for size 4$'):
            function(*args)

    def test_own_lists(self):
        own = self.own
        for function, batches, result in (
                (_k2.get_forward_scores_double, own.entering, own.forward),
                (_k2.get_backward_scores_double, own.leaving, own.backward)):
            scores = function(own.arcs, own.states, batches, True)
            scores = scores[0] if isinstance(scores, tuple) else scores
            assert scores.tolist() == result.tolist()

    def test_state_batches_of_others(self):
        own = self.own
        for other in self.others:
            self.refuse(_k2.get_forward_scores_double, own.arcs, other.states,
                        own.entering, True)
            self.refuse(_k2.get_backward_scores_double, own.arcs,
                        other.states, own.leaving, True)
            self.refuse(_k2.get_entering_arc_index_batches, own.arcs,
                        own.incoming, other.states)
            self.refuse(_k2.get_leaving_arc_index_batches, own.arcs,
                        other.states)
            self.refuse(_k2.random_paths_double, own.arcs, own.cdf, 3,
                        own.totals, other.states)

    def test_arc_batches_of_others(self):
        own = self.own
        for other in self.others:
            self.refuse(_k2.get_forward_scores_double, own.arcs, own.states,
                        other.entering, True)
            self.refuse(_k2.get_backward_scores_double, own.arcs, own.states,
                        other.leaving, True)
            for log_semiring in (True, False):
                self.refuse(_k2.backprop_get_forward_scores_double, own.arcs,
                            own.states, other.leaving, log_semiring, own.best,
                            own.forward, own.forward)
                self.refuse(_k2.backprop_get_backward_scores_double, own.arcs,
                            own.states, other.entering, log_semiring,
                            own.backward, own.backward)

    def test_arcs_of_others(self):
        own = self.own
        for other in self.others:
            self.refuse(_k2.get_incoming_arcs, own.arcs, other.dest)
            self.refuse(_k2.get_entering_arc_index_batches, own.arcs,
                        other.incoming, own.states)
            self.refuse(_k2.backprop_get_arc_post_double, own.arcs,
                        other.incoming, own.post)
            self.refuse(_k2.shortest_path, own.arcs, other.best)

    def test_scores_of_others(self):
        own = self.own
        for other in self.others:
            for forward, grad in ((other.forward, own.forward),
                                  (own.forward, other.forward)):
                self.refuse(_k2.backprop_get_forward_scores_double, own.arcs,
                            own.states, own.leaving, True, own.best, forward,
                            grad)
                self.refuse(_k2.backprop_get_backward_scores_double, own.arcs,
                            own.states, own.entering, True, forward, grad)
        self.refuse(_k2.random_paths_double, own.arcs, own.cdf, 3,
                    self.others[1].totals, own.states)

    def test_indexes_that_do_not_exist(self):
        own = self.own
        for index in (4, 100000000, -1):
            states = with_value(own.states, index)
            self.refuse_index(_k2.get_forward_scores_double, own.arcs, states,
                              own.entering, True)
            self.refuse_index(_k2.get_leaving_arc_index_batches, own.arcs,
                              states)
            self.refuse_index(_k2.get_forward_scores_double, own.arcs,
                              own.states, with_value(own.entering, index),
                              True)
            self.refuse_index(_k2.get_entering_arc_index_batches, own.arcs,
                              with_value(own.incoming, index), own.states)
            dest = own.dest.clone()
            dest[0] = index
            self.refuse_index(_k2.get_incoming_arcs, own.arcs, dest)
        best = k2.RaggedTensor([[0, 4]])
        self.refuse_index(_k2.get_tot_scores_double_tropical_backward,
                          own.arcs, best, own.totals)

    def test_states_that_repeat(self):
        states = with_value(self.own.states, 1)
        self.refuse(_k2.get_leaving_arc_index_batches, self.own.arcs, states)
        self.refuse(_k2.get_entering_arc_index_batches, self.own.arcs,
                    self.own.incoming, states)

    def test_best_arcs_in_a_circle(self):
        fsas = k2.create_fsa_vec(
            [k2.Fsa.from_str('0 1 1 0\n1 2 1 0\n2 1 1 0\n2 3 -1 0\n3')])
        best = torch.tensor([-1, 2, 1, 3], dtype=torch.int32)
        self.refuse(_k2.shortest_path, fsas.arcs, best)

    def test_fewer_batches_than_a_path_needs(self):
        own = self.own
        shape = k2.RaggedTensor([[[0, 0, 0, 0]]]).shape
        states = k2.RaggedTensor(shape, own.states.values)
        with self.assertRaisesRegex(RuntimeError, 'found no path'):
            _k2.random_paths_double(own.arcs, own.cdf, 3, own.totals, states)

    def test_infinite_score_of_an_arc_to_a_dead_end(self):
        text = '0 1 1 0.5\n0 2 2 {}\n1 3 -1 0\n3'
        fsas = k2.create_fsa_vec([k2.Fsa.from_str(text.format('-1e38'))])
        assert k2.random_paths(fsas, True, 2).tolist() == [[[0, 2], [0, 2]]]
        fsas = k2.create_fsa_vec([k2.Fsa.from_str(text.format('inf'))])
        with self.assertRaisesRegex(RuntimeError, 'found no path'):
            k2.random_paths(fsas, True, 2)


if __name__ == '__main__':
    unittest.main()

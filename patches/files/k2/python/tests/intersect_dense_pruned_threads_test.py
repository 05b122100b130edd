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
#  ctest --verbose -R intersect_dense_pruned_threads_test_py

import contextlib
import unittest

import _k2
import k2
import torch


@contextlib.contextmanager
def num_threads(num: int):
    before = torch.get_num_threads()
    torch.set_num_threads(num)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def intersect(graphs, dense, options, threads: int):
    '''Return the tensors of the lattice and its arc maps, or None if k2 raises
    an error.'''
    with num_threads(threads):
        try:
            ragged, *maps = _k2.intersect_dense_pruned(
                graphs.arcs, dense.dense_fsa_vec, *options)
        except RuntimeError:
            return None
    splits = [ragged.shape().row_splits(axis) for axis in (1, 2)]
    return (*splits, ragged.values(), *maps)


def random_graph(num_symbols: int) -> k2.Fsa:
    num_states = int(torch.randint(2, 12, ()))
    lines = []
    for state in range(num_states - 1):
        for label in torch.randint(num_symbols, (4,)).sort().values.tolist():
            dest = int(torch.randint(num_states - 1, ()))
            lines.append(f'{state} {dest} {label} {float(torch.randn(()))}')
        if state % 2 == 0 or state == num_states - 2:
            lines.append(f'{state} {num_states - 1} -1 0')
    return k2.Fsa.from_str('\n'.join(lines + [str(num_states - 1)]))


class TestIntersectDensePrunedThreads(unittest.TestCase):
    '''Several threads, each of which intersects one sequence at a time, give
    the result of one thread.'''

    def check(self, graphs, dense, options):
        expected = intersect(graphs, dense, options, threads=1)
        for threads in (2, 5):
            found = intersect(graphs, dense, options, threads)
            self.assertEqual(expected is None, found is None)
            for one, other in zip(expected or (), found or ()):
                self.assertTrue(torch.equal(one, other))

    def random_case(self, seed: int):
        '''Return graphs, sequences and options.  The sequences have up to 74
        frames, and a window of the pruning has 30.'''
        torch.manual_seed(seed)
        num_seqs = int(torch.randint(2, 7, ()))
        lengths = torch.randint(0, 75, (num_seqs,)).sort(descending=True)
        lengths = lengths.values
        log_probs = torch.randn(num_seqs, max(int(lengths[0]), 1), 8)
        log_probs = (log_probs * (seed % 4)).log_softmax(-1)
        segments = torch.stack(
            [torch.randperm(num_seqs), torch.zeros(num_seqs), lengths], 1)
        dense = k2.DenseFsaVec(log_probs, segments.int())
        if seed % 3 == 0:
            graphs = k2.create_fsa_vec([k2.ctc_topo(7)])
        elif seed % 3 == 1:
            graphs = k2.create_fsa_vec([random_graph(8)])
        else:
            graphs = k2.create_fsa_vec(
                [random_graph(8) for _ in range(num_seqs)])
        min_active = seed % 5
        options = (4.0 + seed % 7, 2.0 + seed % 5, min_active,
                   min_active + (3, 20, 1000)[seed % 3], seed % 2 == 0)
        return graphs, dense, options

    def test_any_lattice(self):
        for seed in range(200):
            with self.subTest(seed=seed):
                self.check(*self.random_case(seed))

    def test_a_final_state_is_not_reached(self):
        graph = k2.create_fsa_vec([k2.linear_fsa([1, 2])])
        scores = torch.randn(3, 30, 4).log_softmax(-1)
        segments = torch.tensor([[0, 0, 30], [1, 0, 2], [2, 0, 1]],
                                dtype=torch.int32)
        dense = k2.DenseFsaVec(scores, segments)
        for allow_partial in (False, True):
            self.check(graph, dense, (20.0, 8.0, 3, 100, allow_partial))

    def test_an_error_in_a_thread_reaches_the_caller(self):
        graphs, dense, options = self.random_case(0)
        with num_threads(4), self.assertRaises(RuntimeError):
            _k2.intersect_dense_pruned(graphs.arcs, dense.dense_fsa_vec, -1.0,
                                       *options[1:])


if __name__ == '__main__':
    unittest.main()

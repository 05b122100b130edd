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
#  ctest --verbose -R argument_errors_test_py

import unittest

import k2
import torch


def _segments(*rows):
    return torch.tensor(rows, dtype=torch.int32).reshape(-1, 3)


class TestArgumentErrors(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    def check(self, reason, function, *args, error=AssertionError):
        with self.assertRaisesRegex(error, reason):
            function(*args)

    def test_dense_fsa_vec(self):
        good = _segments([0, 0, 5], [1, 1, 4])
        for device in self.devices:
            x = torch.zeros(2, 5, 4, device=device)
            for segments, reason in (
                    (_segments([0, 0, 5], [1, 2, 4]),
                     r'Row 1 .* \[1, 2, 4\]: it ends at frame 6,.* 5 frames'),
                    (_segments([2, 0, 5]), 'Row 0 .* 2 sequences, not .* 2'),
                    (_segments([-1, 0, 5]), '2 sequences, not number -1'),
                    (_segments([0, 5, 0]), '5 frames, not number 5'),
                    (_segments([0, 0, -1]), 'the duration is negative'),
                    (_segments(), 'must have a row'),
                    (good[0], r'3 columns.*\(3,\)'),
                    (good[:, :2], r'3 columns.*\(2, 2\)'),
                    (good.long(), 'torch.int64. Call .*int()'),
                    (good.to('meta'), 'on the CPU. Given: meta')):
                self.check(reason, k2.DenseFsaVec, x, segments)
            self.check(r'3 axes.*\(5, 4\)', k2.DenseFsaVec, x[0], good)
            self.check('a class or more', k2.DenseFsaVec, x[:, :, :0], good)
            self.check('torch.float16. Call .*float()', k2.DenseFsaVec,
                       x.half(), good)
            self.check('not be negative. Given: -1', k2.DenseFsaVec, x, good,
                       -1)
            late = _segments([0, 0, 5], [1, 2, 4])
            assert k2.DenseFsaVec(x, late, 1).duration.tolist() == [5, 3]

    def test_attributes(self):
        for device in self.devices:
            fsa = k2.linear_fsa([1, 2], device)  # 3 arcs
            scores = fsa.scores.tolist()
            for name, value, reason in (
                    ('scores', torch.zeros(3, device=device).half(),
                     'scores must be torch.float32. Given: torch.float16'),
                    ('scores', torch.zeros(3, device='meta'),
                     f'scores must be on {device}.* Given: meta'),
                    ('scores', torch.zeros(2, device=device),
                     'scores must have 3 rows.* Given: 2'),
                    ('scores', torch.tensor(1.0, device=device),
                     'scores must not be a number'),
                    ('labels', torch.zeros(3, device=device),
                     'labels must be torch.int32. Given: torch.float32'),
                    ('words', k2.RaggedTensor([[1], [2]]).to(device),
                     'words must have 3 rows.* Given: 2'),
                    ('arcs', fsa.arcs, 'arcs cannot be set')):
                self.check(reason, setattr, fsa, name, value)
            # The Fsa still has the old attributes.
            assert fsa.scores.tolist() == scores
            assert fsa.scores.dtype == torch.float32
            assert not hasattr(fsa, 'words')

    def test_devices(self):
        for device in self.devices:
            if device.type == 'cpu':
                continue
            x = torch.zeros(1, 5, 4)
            graph = k2.ctc_graph([[1]])
            for graph, x, move in (
                    (graph, x.to(device), r'graph\.to\('),
                    (graph.to(device), x, r'log_probs\.to\(')):
                dense = k2.DenseFsaVec(x, _segments([0, 0, 5]))
                for function, args in (
                        (k2.ctc_loss, ()),
                        (k2.intersect_dense, (10,)),
                        (k2.intersect_dense_pruned, (20, 8, 30, 100))):
                    self.check(move, function, graph, dense, *args,
                               error=RuntimeError)

    def test_maps_of_intersect_dense(self):
        for device in self.devices:
            graphs = k2.ctc_graph([[1], [2]], device=device)
            x = torch.zeros(2, 5, 4, device=device)
            dense = k2.DenseFsaVec(x, _segments([0, 0, 5], [1, 0, 5]))
            good = torch.tensor([0, 1], dtype=torch.int32, device=device)
            for seqs, reason in (
                    (good[:1], r'must have 2 numbers.* Given: \(1,\)'),
                    (good[None], r'must have 2 numbers.* Given: \(1, 2\)'),
                    (good.long(), 'torch.int64. Call .*int()'),
                    (good.to('meta'), f'must be on {device}.* Given: meta')):
                self.check(reason, k2.intersect_dense, graphs, dense, 10, 1000,
                           1000, seqs)

    def test_create_fsa_vec(self):
        for device in self.devices:
            fsa = k2.linear_fsa([1], device)
            self.check('an Fsa or more', k2.create_fsa_vec, [])
            self.check('no FsaVec', k2.create_fsa_vec,
                       [k2.create_fsa_vec([fsa])])

    def test_cat_of_nothing(self):
        self.check('needs an FsaVec or more', k2.cat, [])

    def test_create_fsa_vec_of_two_devices(self):
        for device in self.devices:
            if device.type == 'cpu':
                continue
            self.check('FSAs of one device. Given: cpu and', k2.create_fsa_vec,
                       [k2.linear_fsa([1]), k2.linear_fsa([1], device)])

    def test_numbers_of_axes(self):
        for device in self.devices:
            fsa = k2.linear_fsa([1], device)
            fsas = k2.create_fsa_vec([fsa])
            self.check('closure takes a single Fsa. Given: an FsaVec',
                       k2.closure, fsas)
            self.check('union takes an FsaVec. Given: a single Fsa', k2.union,
                       fsa)
            self.check('replace_fsa takes an FsaVec', k2.replace_fsa, fsa, fsa)

    def test_tokens_of_graphs(self):
        self.check('46340 is too large: 2147534622 arcs', k2.ctc_topo, 46340)
        self.check('is too large', k2.ctc_topo, 2**30, True)
        self.check('is too large', k2.trivial_graph, 2**31 - 1)
        for graph in (k2.ctc_topo, k2.trivial_graph):
            self.check('negative. Given: -5', graph, -5)
        self.assertEqual(k2.ctc_topo(0).labels.tolist(), [0, -1])

    def test_numbers_of_paths(self):
        fsas = k2.linear_fsa([[1, 2, 3]])
        for num_paths in (2**29, 2**30, 2**31 - 1):
            self.check(f'{num_paths} paths are too many', k2.random_paths,
                       fsas, True, num_paths)

    def test_thresholds(self):
        fsas = k2.linear_fsa([[1]])
        for threshold in (0, 1, 1.5, float('nan')):
            self.check('between 0 and 1', k2.prune_on_arc_post, fsas,
                       threshold, True)

    def test_intersection_of_unsorted_fsas(self):
        good = k2.linear_fsa([1])
        bad = k2.Fsa.from_str('0 1 2 0\n0 1 1 0\n1 2 -1 0\n2')
        self.check(r'a_fsa must be arc-sorted: call k2.arc_sort\(a_fsa\)',
                   k2.intersect, bad, good)
        self.check('b_fsa must be arc-sorted', k2.intersect, good, bad)

    def test_scores_of_unsorted_fsas(self):
        for text in ('0 1 1 0.1\n1 1 2 -0.5\n1 2 -1 0.2\n2',
                     '0 1 1 0.1\n1 0 2 -0.5\n1 2 -1 0.2\n2',
                     '0 2 1 0.1\n1 3 -1 0.2\n2 1 2 -0.5\n3'):
            fsas = k2.create_fsa_vec([k2.Fsa.from_str(text)])
            for function in (fsas.get_forward_scores, fsas.get_backward_scores,
                             fsas.get_tot_scores, fsas.get_arc_post):
                with self.assertRaisesRegex(ValueError, '^scores need FSAs '
                                            'without cycles.*sorts them$'):
                    function(True, True)
            with self.assertRaisesRegex(ValueError, 'without cycles'):
                k2.shortest_path(fsas, True)
            with self.assertRaisesRegex(ValueError, 'without cycles'):
                k2.random_paths(fsas, True, 3)

    def test_scores_of_one_fsa(self):
        with self.assertRaisesRegex(ValueError, 'create_fsa_vec'):
            k2.linear_fsa([1]).get_tot_scores(True, True)


if __name__ == '__main__':
    unittest.main()

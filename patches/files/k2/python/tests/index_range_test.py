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
#  ctest --verbose -R index_range_test_py

import unittest

import k2
import k2.ragged
import torch


def ints(values, device):
    return torch.tensor(values, dtype=torch.int32, device=device)


class TestIndexRange(unittest.TestCase):
    '''If a kernel finds a wrong index on CUDA, the process cannot use the GPU
    any more.  So on CUDA, only indexes that the host checks are tested.'''

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    def check(self, index, size, function, *args):
        with self.assertRaisesRegex(
                IndexError,
                f'index {index} is out of range for size {size}$'):
            function(*args)

    def test_item_of_a_ragged_tensor(self):
        for device in self.devices:
            two = k2.RaggedTensor([[1, 2], [], [3]], device=device)
            three = k2.RaggedTensor([[[1], [2, 3]], [[]], [[4]]],
                                    device=device)
            for src in (two, three, three.shape):
                for i in (3, 1000000, -4):
                    self.check(i, 3, src.__getitem__, i)
            self.assertEqual([two[i].tolist() for i in (-1, -3)],
                             [[3], [1, 2]])
            self.assertEqual([three[i].tolist() for i in (-1, -3)],
                             [[[4]], [[1], [2, 3]]])
            self.assertEqual(three.shape[-3].tot_size(1), 3)

    def test_item_of_an_fsa_vec(self):
        for device in self.devices:
            fsas = k2.linear_fsa([[1], [2, 3]], device=device)
            for i in (2, 100000, -3):
                self.check(i, 2, fsas.__getitem__, i)
            self.assertEqual(fsas[-1].labels.tolist(), [2, 3, -1])
            self.assertEqual([fsa.labels.tolist() for fsa in fsas],
                             [[1, -1], [2, 3, -1]])

    def test_index_select(self):
        index = ints([0, 3], 'cpu')
        for dtype in (torch.int32, torch.int64, torch.float32, torch.float64,
                      torch.bool):
            self.check(3, 3, k2.index_select, torch.zeros(3, dtype=dtype),
                       index)
            # index_select takes no strided or 2-D tensor of torch.bool.
            if dtype != torch.bool:
                for src in (torch.zeros(6, dtype=dtype)[::2],
                            torch.zeros(3, 2, dtype=dtype)):
                    self.check(3, 3, k2.index_select, src, index)
        self.check(-2, 3, k2.index_select, torch.zeros(3), ints([-2], 'cpu'))
        self.check(1000000000, 3, k2.index_select, torch.zeros(3),
                   ints([-1, 1000000000], 'cpu'))
        self.check(0, 0, k2.index_select, torch.zeros(0), ints([0], 'cpu'))

    def test_index_add(self):
        for index in (3, -2):
            for shape in ((3,), (3, 2)):
                self.check(index, 3, k2.index_add, ints([index], 'cpu'),
                           torch.ones(1, *shape[1:]), torch.zeros(shape))

    def test_index_of_ragged_tensors(self):
        ragged = k2.RaggedTensor([[1, 2], [], [3], [4, 5, 6]])
        for index in (4, 100000000, -2):
            indexes = ints([0, index], 'cpu')
            nested = k2.RaggedTensor([[0], [index]])
            self.check(index, 4, ragged.index, indexes, 0)
            self.check(index, 4, ragged.index, nested)
            self.check(index, 4, ragged.shape.index, 0, indexes)
            self.check(index, 4, k2.ragged.index, torch.zeros(4), nested)
            self.check(index, 4, k2.ragged.index_and_sum, torch.zeros(4),
                       nested)
        for index in (6, -1):
            self.check(index, 6, ragged.index, ints([index], 'cpu'), 1)

    def test_index_fsa(self):
        fsas = k2.linear_fsa([[1], [2, 3]])
        for index in (2, -2):
            self.check(index, 2, k2.index_fsa, fsas, ints([index], 'cpu'))

    def test_row_splits(self):
        shape = k2.ragged.create_ragged_shape2
        for end in (4, 1000000, -1):
            with self.assertRaises((IndexError, ValueError)):
                shape(ints([0, end, 3], 'cpu'))
            with self.assertRaises((IndexError, ValueError)):
                shape(ints([0, 2, end], 'cpu'), None, 3)
        self.check(4, 4, shape, ints([0, 4, 3], 'cpu'), None, 3)
        with self.assertRaisesRegex(ValueError, 'begin with 0'):
            shape(ints([1, 3], 'cpu'))
        self.assertEqual(str(shape(ints([0, 2, 2, 3], 'cpu'), None, 3)),
                         '[ [ x x ] [ ] [ x ] ]')

    def test_row_ids(self):
        shape = k2.ragged.create_ragged_shape2
        for index in (2, 1000000, -1):
            self.check(index, 2, shape, ints([0, 2, 3], 'cpu'),
                       ints([0, 0, index], 'cpu'))
        for index in (1000000, -1):
            self.check(index, 3, shape, None, ints([0, index, 2], 'cpu'))
        with self.assertRaisesRegex(ValueError, 'not decrease'):
            shape(None, ints([1, 0, 1], 'cpu'))
        with self.assertRaisesRegex(ValueError, 'agree'):
            shape(ints([0, 2, 3], 'cpu'), ints([0, 1, 1], 'cpu'))

    def test_source_states(self):
        for state in (3, 1000000, 2147483647):
            with self.assertRaises(RuntimeError):
                k2.Fsa(ints([[0, 1, 1, 0], [1, 2, -1, 0], [state, 1, 1, 0]],
                            'cpu'))

    def test_tokens_of_best_matching_stats(self):
        def stats(token, eos):
            return k2.get_best_matching_stats(
                k2.RaggedTensor([[0, 1, token]]), torch.ones(3),
                ints([1, 1, 1], 'cpu'), eos, min_token=0, max_token=5,
                max_order=2)

        for token in (6, 1000000, -1):
            self.check(token, 6, stats, token, 0)
            self.check(token, 6, stats, 2, token)
        self.assertEqual(len(stats(5, 5)), 4)

    def test_maps(self):
        self.check(2, 2, k2.compose_arc_maps, ints([0, 1], 'cpu'),
                   ints([2], 'cpu'))
        fsas = k2.arc_sort(k2.linear_fsa([[1]]))
        for index in (1, -1):
            self.check(index, 1, k2.intersect_device, fsas, fsas,
                       ints([index], 'cpu'))


if __name__ == '__main__':
    unittest.main()

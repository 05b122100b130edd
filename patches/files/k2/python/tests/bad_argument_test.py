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
#  ctest --verbose -R bad_argument_test_py

import unittest

import k2
import k2.ragged
import torch


def ints(values):
    return torch.tensor(values, dtype=torch.int32)


class TestBadArgument(unittest.TestCase):
    '''Each error is one line, unlike an error of K2_CHECK().'''

    def refuse(self, reason, function, *args, **kwargs):
        with self.assertRaisesRegex(RuntimeError, f'^[^\n]*{reason}[^\n]*$'):
            function(*args, **kwargs)

    def test_tensors_that_are_no_fsa(self):
        self.refuse('Expected dim: 1. Given: 3', k2.Fsa, ints([[[0]]]))
        self.refuse('Expected dim: 1. Given: 0', k2.Fsa, ints(0))
        self.refuse('Int. Given: Float', k2.Fsa, torch.zeros(1, 4))
        self.refuse('Int. Given: Long', k2.Fsa, torch.tensor([[0, 1, -1, 0]]))
        self.refuse('4 columns. Given: 3', k2.Fsa, ints([[0, 1, -1]]))
        self.refuse('not an Fsa', k2.Fsa, ints([[0, 1, 1, 0]]))
        self.refuse('not an Fsa', k2.Fsa, ints([1, 2, 3]))
        self.assertEqual(k2.Fsa(ints([[0, 1, -1, 0]])).labels.tolist(), [-1])

    def test_indexes_must_be_int32_with_one_axis(self):
        ragged = k2.RaggedTensor([[1], [2, 3]])
        fsas = k2.linear_fsa([[1], [2]])
        for index, reason in ((ints([[0]]), 'Expected dim: 1. Given: 2'),
                              (ints(0), 'Expected dim: 1. Given: 0'),
                              (torch.tensor([0]), 'Int. Given: Long'),
                              (torch.zeros(1), 'Int. Given: Float')):
            for src in (torch.zeros(3), torch.zeros(3, 2), torch.zeros(0, 2)):
                self.refuse(reason, k2.index_select, src, index)
            self.refuse(reason, k2.index_add, index, torch.ones(1),
                        torch.zeros(3))
            self.refuse(reason, k2.index_fsa, fsas, index)
            self.refuse(reason, ragged.index, index, 0)
            self.refuse(reason, ragged.shape.index, 0, index)

    def test_sources_of_index_select(self):
        index = ints([0])
        for src in (torch.zeros(1, 1, 1), torch.tensor(1.0)):
            self.refuse('Unsupported dim', k2.index_select, src, index)
        self.refuse('Unsupported scalar type: Half', k2.index_select,
                    torch.zeros(1).half(), index)
        self.refuse('default_value must be an integer', k2.index_select,
                    ints([1]), index, 0.5)

    def test_devices_that_k2_does_not_support(self):
        ragged = k2.RaggedTensor([[1]])
        for function, args in ((k2.linear_fsa, ([1], 'meta')),
                               (k2.ctc_topo, (2, False, 'meta')),
                               (k2.ctc_graph, ([[1]], False, 'meta')),
                               (k2.RaggedTensor, ([[1]], None, 'meta')),
                               (ragged.to, ('meta',)),
                               (ragged.shape.to, ('meta',)),
                               (k2.Fsa, (ints([[0, 1, -1, 0]]).to('meta'),))):
            self.refuse('k2 supports no device meta', function, *args)

    def test_dtypes_of_ragged_tensors(self):
        self.refuse('Unsupported scalar_type: Half', k2.RaggedTensor, [[1]],
                    dtype=torch.half)
        self.refuse('instance of torch.dtype. Given: int', k2.RaggedTensor,
                    [[1]], dtype='int')
        self.refuse('more than 1-D', k2.RaggedTensor, ints([1]))

    def test_sizes_that_are_too_large(self):
        for sizes in ((65536, 65536), (2**31 - 1, 2), (-1, 2), (2, -1)):
            self.refuse('no shape of {} by {}'.format(*sizes),
                        k2.ragged.regular_ragged_shape, *sizes)
        for vocabulary, history in ((500, 8), (2, 63), (4, 100), (0, 2),
                                    (4, 0)):
            self.refuse(f'vocabulary of {vocabulary} with a history of '
                        f'{history}', k2.RnntDecodingConfig, vocabulary,
                        history, 8.0, 10, 10)
        self.assertEqual(
            k2.RnntDecodingConfig(500, 7, 8.0, 10, 10).decoder_history_len, 7)

    def test_arguments_on_two_devices(self):
        if not (torch.cuda.is_available() and k2.with_cuda):
            return
        index = ints([0]).to(torch.device('cuda', 0))
        ragged = k2.RaggedTensor([[1], [2]])
        self.refuse('Given: cpu and ', ragged.add, index, 1)
        self.refuse('Given: (cuda|mps):0 and cpu',
                    ragged.to(index.device).add, ints([0, 1]), 1)
        self.refuse('on one device', k2.index_select, torch.zeros(1), index)
        self.refuse('on one device', k2.index_add, index, torch.zeros(1),
                    torch.zeros(1))


if __name__ == '__main__':
    unittest.main()

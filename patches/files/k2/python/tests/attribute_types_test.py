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
#  ctest --verbose -R attribute_types_test_py

import unittest

import k2
import torch

TEXT = '0 1 2 0.1\n0 2 3 0.3\n1 2 0 0.5\n1 3 -1 0.1\n2 3 -1 0.4\n3'
NUM_ARCS = 5

TYPES = (torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16,
         torch.bfloat16, torch.float64)


def with_attribute(value):
    fsa = k2.Fsa.from_str(TEXT)
    fsa.extra = value
    return fsa


def transducer(fsa):
    fsa.aux_labels = fsa.labels.clone()
    return fsa


def functions():
    '''Return functions that take an Fsa, and map arcs to arcs.'''
    dense = k2.DenseFsaVec(torch.zeros(1, 2, 4),
                           torch.tensor([[0, 0, 2]], dtype=torch.int32))
    other = k2.arc_sort(k2.trivial_graph(9))
    return dict(
        arc_sort=k2.arc_sort,
        top_sort=k2.top_sort,
        connect=k2.connect,
        closure=k2.closure,
        add_epsilon_self_loops=k2.add_epsilon_self_loops,
        reverse=k2.reverse,
        compose=lambda x: k2.compose(transducer(x), other),
        union=lambda x: k2.union(k2.create_fsa_vec([x, x])),
        shortest_path=lambda x: k2.shortest_path(k2.create_fsa_vec([x]), True),
        intersect=lambda x: k2.intersect(k2.arc_sort(x), other),
        intersect_dense_pruned=lambda x: k2.intersect_dense_pruned(
            x, dense, 100., 100., 0, 100),
        expand_ragged_attributes=k2.expand_ragged_attributes)


class TestAttributeTypes(unittest.TestCase):

    def check(self, name, function, value, rows):
        '''Check that `function` maps an attribute as it maps the arcs.

        An attribute of torch.float32 holds the numbers of the arcs, from 1 on.
        Its values in the result tell which row of `value` each row of the
        result must equal.
        '''
        numbers = torch.arange(1., NUM_ARCS + 1)
        arcs = function(with_attribute(numbers)).extra.int().tolist()
        found = rows(function(with_attribute(value)).extra)
        given = rows(value)
        expected = [given[arc - 1] if arc != 0 else None for arc in arcs]
        assert len(found) == len(expected) > 0, (name, found)
        for row, want in zip(found, expected):
            assert want is None and not any(row) or row == want, (name, found)

    def test_tensors(self):
        for dtype in TYPES:
            value = torch.tensor([1, 0, 3, 1, 5]).to(dtype)
            for name, function in functions().items():
                self.check((name, dtype), function, value.reshape(-1, 1),
                           lambda x: x.tolist())
                self.check((name, dtype), function, value,
                           lambda x: [[y] for y in x.tolist()])

    def test_three_axes(self):
        value = torch.arange(4. * NUM_ARCS).reshape(NUM_ARCS, 2, 2)
        self.check('arc_sort', k2.arc_sort, value,
                   lambda x: x.flatten(1).tolist())

    def test_ragged_tensors(self):
        for dtype in (torch.float32, torch.float64, torch.int32):
            value = k2.RaggedTensor([[1, 2], [], [3], [4, 5, 6], [7]],
                                    dtype=dtype)
            for name, function in functions().items():
                if name != 'expand_ragged_attributes':
                    self.check((name, dtype), function, value,
                               lambda x: x.tolist())

    def test_gradients(self):
        for dtype, axes in ((torch.float16, 1), (torch.bfloat16, 2),
                            (torch.float32, 3)):
            value = torch.ones((3,) + (2,) * (axes - 1), dtype=dtype,
                               requires_grad=True)
            index = torch.tensor([2, -1, 0, 2, 2], dtype=torch.int32)
            k2.index_select(value, index).sum().backward()
            expected = torch.tensor([1, 0, 3]).reshape((3,) + (1,) * (axes - 1))
            assert (value.grad == expected).all()

    def test_indexes_that_do_not_exist(self):
        for index in (-2, 3):
            with self.assertRaisesRegex(IndexError, f'{index}.*size 3'):
                k2.index_select(torch.ones(3).half(),
                                torch.tensor([0, index], dtype=torch.int32))
        for value in (torch.ones(0).half(), torch.ones(0, 2, 3)):
            found = k2.index_select(value, torch.tensor([-1] * 4).int())
            assert found.shape == (4, *value.shape[1:]) and not found.any()

    def test_default_values(self):
        index = torch.tensor([-1, 0], dtype=torch.int32)
        for dtype in (torch.uint8, torch.int16, torch.int32, torch.int64):
            value = torch.ones(1, dtype=dtype)
            found = k2.index_select(value, index, default_value=7)
            assert found.tolist() == [7, 1], dtype
            for wrong in (0.5, 1e10 + 0.5):
                with self.assertRaises(RuntimeError):
                    k2.index_select(value, index, default_value=wrong)
        for dtype, wrong in ((torch.uint8, -1), (torch.uint8, 256),
                             (torch.int16, 2**15)):
            with self.assertRaises(RuntimeError):
                k2.index_select(torch.ones(1, dtype=dtype), index,
                                default_value=wrong)

    def test_arcs_that_are_made_of_several_arcs(self):
        # With an epsilon, and two arcs of the same label from state 0.
        text = '0 1 0 0\n0 1 2 0\n0 2 2 0\n1 2 3 0\n2 3 -1 0\n3'
        # A sum of these numbers tells which numbers it has.
        numbers = torch.tensor([1, 2, 4, 8, 16])
        rows = numbers.reshape(-1, 1)
        ragged = [k2.RaggedTensor(rows.to(dtype)) for dtype in
                  (torch.int32, torch.float32, torch.float64)]
        for function in (k2.remove_epsilon, k2.determinize,
                         k2.remove_epsilon_and_add_self_loops):

            def result_of(value):
                fsa = k2.Fsa.from_str(text)
                fsa.extra = value
                return function(fsa).extra.tolist()

            expected = result_of(numbers.float())
            assert not set(expected) <= set(numbers.tolist()), function
            for value in (numbers.int(), numbers.double(), *ragged):
                found = result_of(value)
                # An attribute of int32 becomes ragged.
                found = [sum(x) if isinstance(x, list) else x for x in found]
                assert found == expected, (function, value)
            for value in (numbers.bool(), numbers.short(), numbers,
                          numbers.half(), rows.float(), rows.int()):
                with self.assertRaisesRegex(AssertionError,
                                            'attribute extra must be ragged'):
                    result_of(value)

    def test_errors_name_the_attribute(self):
        value = k2.RaggedTensor([[1.5]] * NUM_ARCS)
        for names in (None, ['extra']):
            with self.assertRaisesRegex(AssertionError, 'attribute extra'):
                k2.expand_ragged_attributes(
                    with_attribute(value), ragged_attribute_names=names)
        a, b = with_attribute(torch.ones(NUM_ARCS)), with_attribute(value)
        for x, y in ((a, b), (b, a), (b, b)):
            with self.assertRaisesRegex(AttributeError, ': extra'):
                k2.intersect(k2.arc_sort(x), k2.arc_sort(y))


if __name__ == '__main__':
    unittest.main()

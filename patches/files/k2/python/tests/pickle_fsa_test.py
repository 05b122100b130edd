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
#  ctest --verbose -R pickle_fsa_test_py

import copy
import pickle
import unittest

import k2
import torch


def _fsas(device):
    s = '0 1 1 2 0.5\n0 1 2 3 0.25\n1 2 -1 -1 1\n2'
    fsa = k2.Fsa.from_str(s, num_aux_labels=1)
    fsas = k2.create_fsa_vec([fsa, fsa]).to(device)
    fsas.numbers = torch.arange(6, device=device)
    fsas.words = k2.RaggedTensor([[1], [2, 3], [], [4], [5], [6]]).to(device)
    fsas.words_filler = 7
    fsas.name = 'two'
    return fsas


def _check_equal(found, expected):
    assert found.device == expected.device
    assert str(found) == str(expected)
    assert found.properties == expected.properties
    assert found.words == expected.words
    assert found.words_filler == expected.words_filler


class _Graphs:
    '''A dataset with an Fsa as an attribute and with Fsas as items.'''

    def __init__(self, fsas):
        self.fsas = fsas

    def __len__(self):
        return 2

    def __getitem__(self, i):
        return k2.linear_fsa([i + 1]), self.fsas.to('cpu')


def _first(batch):
    return batch[0]


class TestPickleFsa(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    def test_copies(self):
        for device in self.devices:
            for requires_grad in (False, True):
                fsas = _fsas(device).requires_grad_(requires_grad)
                expected = str(fsas)
                for duplicate in (copy.copy, copy.deepcopy,
                                  lambda x: pickle.loads(pickle.dumps(x))):
                    found = duplicate(fsas)
                    _check_equal(found, fsas)
                    assert found.requires_grad == requires_grad
                    # A change of the copy does not change the original.
                    found.scores = torch.zeros_like(fsas.scores)
                    found.numbers.zero_()
                    found.name = 'other'
                    assert str(fsas) == expected

    def test_one_fsa(self):
        for device in self.devices:
            fsa = _fsas(device)[1]
            _check_equal(pickle.loads(pickle.dumps(fsa)), fsa)

    def test_gradient(self):
        for device in self.devices:
            fsas = _fsas(device).requires_grad_(True)
            # Autograd records the copy, as it does for a tensor.
            copy.copy(fsas).scores.sum().backward()
            assert fsas.grad.tolist() == [1] * 6
            # A pickle has no autograd history, so scores from it are a leaf.
            fsas.scores = fsas.scores * 2
            assert pickle.loads(pickle.dumps(fsas)).scores.is_leaf

    def test_workers(self):
        for device in self.devices:
            fsas = _fsas(device)
            for start in ('fork', 'spawn'):
                # A forked process cannot use a GPU.
                graphs = _Graphs(fsas if start == 'spawn' else fsas.to('cpu'))
                loader = torch.utils.data.DataLoader(
                    graphs, num_workers=1, collate_fn=_first,
                    multiprocessing_context=start)
                for i, (made, found) in enumerate(loader):
                    assert made.labels.tolist() == [i + 1, -1]
                    _check_equal(found.to(device), fsas)


if __name__ == '__main__':
    unittest.main()

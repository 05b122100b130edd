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
#  ctest --verbose -R pickle_ragged_test_py

import copy
import io
import pickle
import unittest

import k2
import torch


def _text(x):
    '''Return all contents of an object except its autograd history.'''
    if isinstance(x, k2.DenseFsaVec):
        return str(x), x.scores.tolist(), x.scores.requires_grad, x.device
    if isinstance(x, k2.Fsa):
        return str(x), str(x.words), x.words.device, x.device
    if isinstance(x, k2.RaggedShape):
        return str(x), str(x.device)
    return str(x), x.tolist(), x.dtype, x.device


def _objects(device):
    nested = [[[[1, 2], []], [[3]]], [[]], []]
    ragged = [k2.RaggedTensor(nested[0][0]), k2.RaggedTensor(nested[0]),
              k2.RaggedTensor(nested), k2.RaggedTensor([nested, []]),
              k2.RaggedTensor([[0.5], []], dtype=torch.float32),
              k2.RaggedTensor([[], []], dtype=torch.int32)]
    dense = k2.DenseFsaVec(torch.randn(2, 5, 3),
                           torch.tensor([[0, 0, 5], [1, 1, 3]],
                                        dtype=torch.int32))
    return [x.to(device) for x in ragged + [x.shape for x in ragged] + [dense]]


class _Items:
    '''A dataset whose items are copies of objects on the CPU.'''

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i].to('cpu')


def _first(batch):
    return batch[0]


class TestPickleRagged(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    def test_copies_have_equal_contents(self):
        for device in self.devices:
            for x in _objects(device):
                for duplicate in (copy.copy, copy.deepcopy,
                                  lambda x: pickle.loads(pickle.dumps(x))):
                    self.assertEqual(_text(duplicate(x)), _text(x))

    def test_requires_grad(self):
        for device in self.devices:
            dense = _objects(device)[-1]
            dense.scores.requires_grad_(True)
            found = pickle.loads(pickle.dumps(dense))
            self.assertEqual(_text(found), _text(dense))

    def test_dense_fsa_vec_reads_its_scores(self):
        dense = _objects('cpu')[-1]
        found = pickle.loads(pickle.dumps(dense))
        found.scores.zero_()
        self.assertNotEqual(str(found), str(dense))

    def test_copy_has_the_attributes(self):
        dense = _objects('cpu')[-1]
        dense.name = 'a'
        found = copy.copy(dense)
        self.assertEqual(found.name, 'a')
        self.assertIs(found.scores, dense.scores)

    def test_map_location(self):
        for device in self.devices:
            fsas = k2.linear_fsa([[1], [2, 3]], device=device)
            fsas.words = k2.RaggedTensor([[1], [], [2, 3], [], []]).to(device)
            for x in _objects(device) + [fsas]:
                saved = io.BytesIO()
                torch.save(x, saved)
                for location, expected in ((None, device), ('cpu', 'cpu')):
                    saved.seek(0)
                    found = torch.load(saved, map_location=location,
                                       weights_only=False)
                    self.assertEqual(_text(found), _text(x.to(expected)))

    def test_workers(self):
        for device in self.devices:
            items = _objects(device)
            for start in ('fork', 'spawn', 'forkserver'):
                # A forked process cannot use a GPU.
                given = [x.to('cpu') for x in items] if start == 'fork' \
                    else items
                loader = torch.utils.data.DataLoader(
                    _Items(given), num_workers=1, collate_fn=_first,
                    multiprocessing_context=start, batch_size=1)
                self.assertEqual([_text(x) for x in loader],
                                 [_text(x.to('cpu')) for x in items])


if __name__ == '__main__':
    unittest.main()

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
#  ctest --verbose -R mps_edited_fsa_test_py

import os
import unittest
from unittest import mock

import k2
import torch

import dense_fsa_vec_test
import edited_fsa_test


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
class TestMpsEditedFsa(edited_fsa_test.TestEditedFsa):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('mps', 0)]

    def run(self, result=None):
        # Without a value, the host does these small problems.
        for computes in ('host', 'metal'):
            with mock.patch.dict(os.environ, {'K2_MPS_FORCE': computes}):
                super().run(result)

    def test_index_after_a_copy(self):
        '''After a copy of the arcs, the index is that of the copied labels.'''
        for edit in (lambda graphs: graphs.clone(), _with_other_scores):
            graphs = edited_fsa_test._graphs(self.devices[0])
            graphs.labels = edited_fsa_test._other_labels(graphs)
            edited_fsa_test._ctc_loss(graphs, True, None)
            graphs = edit(graphs)
            # k2 refuses this edit only where it reads the properties.
            graphs.labels[(graphs.labels == 1).nonzero()[0]] = 2
            expected = k2.Fsa(graphs.arcs.clone())
            self.assertEqual(_gradient(graphs), _gradient(expected))


def _gradient(graphs):
    dense = edited_fsa_test._dense(graphs.device)
    scores = dense.scores.requires_grad_(True)
    k2.ctc_loss(graphs, dense, output_beam=100).backward()
    return scores.grad.tolist()


def _with_other_scores(graphs):
    graphs.scores = graphs.scores * 1
    return graphs


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
class TestMpsDenseFsaVec(dense_fsa_vec_test.TestDenseFsaVec):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('mps', 0)]


if __name__ == '__main__':
    unittest.main()

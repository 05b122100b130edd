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
#  ctest --verbose -R mps_graph_index_test_py

import unittest

import k2
import torch
from k2.mps.graph_index import GraphIndex
from k2.mps.graph_index import graph_index


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
class TestMpsGraphIndex(unittest.TestCase):

    def setUp(self):
        self.graph = k2.ctc_graph([[3], [7, 7, 1], []])

    def check(self, index):
        incoming = self.graph._get_incoming_arcs()
        begins = self.graph.arcs.shape().remove_axis(1).row_splits(1).tolist()
        by_label, fsa_of_arc, labels = [], [], []
        for i, (begin, end) in enumerate(zip(begins, begins[1:])):
            values, order = self.graph.labels[begin:end].sort(stable=True)
            by_label += (begin + order).tolist()
            fsa_of_arc += [i] * (end - begin)
            labels.append([int(values[0]), int(values[-1])])
        assert torch.equal(index.incoming_begins.cpu(),
                           incoming.shape.row_splits(2))
        assert torch.equal(index.incoming.cpu(), incoming.values)
        assert index.by_label.tolist() == by_label
        assert index.fsa_of_arc.tolist() == fsa_of_arc
        assert index.labels.tolist() == labels
        assert index.every_fsa.tolist() == [0, 1, 2]

    def test_by_the_host(self):
        fsas = self.graph.to('mps')
        made = GraphIndex(fsas, by_host=True)
        made.fill()
        assert made.labels() == (-1, 7)
        self.check(made.index)

    def test_by_the_gpu(self):
        made = GraphIndex(self.graph.to('mps'), by_host=False)
        self.check(made.index)

    def test_it_is_made_once(self):
        fsas = self.graph.to('mps')
        made = graph_index(fsas)
        assert graph_index(fsas) is made

    def test_labels_that_change(self):
        fsas = self.graph.to('mps')
        self.check(graph_index(fsas).index)
        self.graph.labels[0] = 9
        fsas.labels[0] = 9
        self.check(graph_index(fsas).index)


if __name__ == '__main__':
    unittest.main()

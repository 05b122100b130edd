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

# A problem for several tests of intersect_dense's beam.

import k2
import torch


class IntersectDenseCases:
    '''A base class for a unittest.TestCase: intersects three sequences with a
    CTC topology.'''

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    def setUp(self):
        torch.manual_seed(20261122)
        self.num_frames = [30, 30, 21]
        self.log_probs = torch.randn(3, 30, 6).log_softmax(-1)

    def intersect(self, device, log_probs=None, beam=20., **limits):
        '''Intersect each sequence with a CTC topology; return the lattices.  At
        least 6 arcs leave each state of the topology except the final state.'''
        if log_probs is None:
            log_probs = self.log_probs
        segments = torch.tensor(
            [[i, 0, n] for i, n in enumerate(self.num_frames)],
            dtype=torch.int32)
        dense = k2.DenseFsaVec(log_probs.to(device), segments)
        graphs = k2.create_fsa_vec([k2.ctc_topo(5)] * 3).to(device)
        return k2.intersect_dense(graphs, dense, beam, **limits)

    def best(self, lattice):
        return lattice.get_tot_scores(log_semiring=False,
                                      use_double_scores=True)

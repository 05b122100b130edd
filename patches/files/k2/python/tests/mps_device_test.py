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
#  ctest --verbose -R mps_device_test_py

import os
import signal
import unittest

import k2
import torch


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
class TestMpsDevice(unittest.TestCase):

    def setUp(self):
        torch.manual_seed(1)
        self.fsas = self.make()

    @staticmethod
    def make():
        fsa = k2.Fsa.from_str('0 1 1 0.5\n0 2 2 0.25\n1 2 3 0.1\n2 3 -1 0\n3')
        return k2.create_fsa_vec([fsa, fsa])

    def test_a_round_trip_changes_nothing(self):
        fsas = self.fsas.to('mps')
        assert fsas.device == torch.device('mps', 0)
        assert fsas.scores.device == fsas.device
        assert str(fsas.to('cpu')) == str(self.fsas)

    def test_tensors_share_the_memory_of_fsas(self):
        fsas = self.fsas.to('mps')
        arcs = fsas.arcs.values()
        assert arcs.data_ptr() == fsas.arcs.values().data_ptr()
        fsas.scores = fsas.scores + 1
        assert torch.equal(fsas.scores.cpu(), self.fsas.scores + 1)

    def test_ragged_tensors(self):
        ragged = k2.RaggedTensor([[3, 1], [], [2]], device='mps')
        assert ragged.device == torch.device('mps', 0)
        assert ragged.sum().tolist() == [4, 0, 2]
        assert ragged.to('cpu').tolist() == [[3, 1], [], [2]]
        with self.assertRaises(TypeError):
            k2.RaggedTensor([[0.5]], dtype=torch.float64, device='mps')

    def test_scores_in_double_precision(self):
        # k2 computes the scores in double precision, and rounds the results.
        expected = self.fsas.get_tot_scores(True, True)
        found = self.fsas.to('mps').get_tot_scores(True, True)
        assert found.dtype == torch.float32
        assert torch.equal(found.cpu(), expected.to(torch.float32))

    def test_child_of_fork(self):
        fsas = self.fsas.to('mps')
        fsas.get_tot_scores(True, True)
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # if the child waited, it would wait forever
            try:
                fsas.get_forward_scores(True, True)
                status = 1
            except RuntimeError as error:
                status = 0 if 'start processes by spawn' in str(error) else 2
            os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_gradients(self):
        for use_double in (False, True):
            grads = []
            for device in ('cpu', 'mps'):
                fsas = self.make().to(device)
                fsas.requires_grad_(True)
                scores = fsas.get_tot_scores(use_double, True)
                scores.sum().backward()
                assert fsas.grad.device == fsas.device
                grads.append(fsas.grad.cpu())
            # The gradients are sums of a few terms of at most 1.
            assert torch.allclose(*grads, rtol=0, atol=1e-6)

    def test_an_algorithm_for_the_cpu_only(self):
        fsa = self.fsas[0].to('mps')
        assert k2.determinize(fsa).device == fsa.device

    def test_swoosh(self):
        x = torch.randn(2, 100)
        for function in (k2.swoosh_l_forward, k2.swoosh_r_forward):
            # Each element is rounded a few times.
            assert torch.allclose(function(x.to('mps')).cpu(), function(x),
                                  rtol=1e-5, atol=1e-6)


if __name__ == '__main__':
    unittest.main()

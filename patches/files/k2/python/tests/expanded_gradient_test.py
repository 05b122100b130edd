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
#  ctest --verbose -R expanded_gradient_test_py

import unittest

import k2
import torch


class TestExpandedGradient(unittest.TestCase):

    def setUp(self):
        self.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            self.devices.append(torch.device('cuda', 0))

    def test_gradient_of_a_sum(self):
        # sum() passes back one number, expanded to a tensor of stride 0.
        for device in self.devices:
            for name in ('get_forward_scores', 'get_backward_scores'):
                for weight in (False, True):
                    fsa = k2.Fsa.from_str('0 1 1 0.5\n1 2 -1 0.25\n2')
                    fsas = k2.create_fsa_vec([fsa]).to(device)
                    fsas.requires_grad_(True)
                    scores = getattr(fsas, name)(False, True)
                    if weight:
                        scores = scores * torch.ones_like(scores)
                    scores.sum().backward()
                    expected = ([2, 1] if name == 'get_forward_scores'
                                else [1, 2])
                    assert fsas.grad.tolist() == expected, fsas.grad


if __name__ == '__main__':
    unittest.main()

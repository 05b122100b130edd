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
#  ctest --verbose -R strided_input_test_py

import unittest

import k2
import torch


def _strided(n, device):
    '''Return some tensors of n numbers, with strides other than 1.'''
    return (torch.tensor(2.0, device=device).expand(n),
            torch.arange(2.0 * n, device=device)[::2],
            torch.arange(3.0 * n, device=device).reshape(n, 3)[:, 1])


class TestStridedInput(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    def test_gradients(self):
        def sums(x):
            return x.sum()

        def log_sums(x):
            return x.logsumexp()

        def normalized(x):
            return x.normalize(use_log=True).values

        def indexed(x):
            rows = k2.RaggedTensor([[0, 2], [], [1, 3]]).to(x.device)
            return k2.ragged.index_and_sum(x.values, rows)

        def selected(x):
            index = torch.tensor([3, -1, 0], dtype=torch.int32,
                                 device=x.device)
            return k2.index_select(x.values, index)

        for device in self.devices:
            for function in (sums, log_sums, normalized, indexed, selected):
                rows = k2.RaggedTensor([[3., 4.], [1., 2.], [5.]]).to(device)
                for i in range(3):
                    gradients = []
                    for is_strided in (True, False):
                        x = rows.clone().requires_grad_(True)
                        y = function(x)
                        grad = _strided(y.numel(), device)[i]
                        y.backward(grad if is_strided else grad.contiguous())
                        gradients.append(x.grad)
                    assert torch.equal(*gradients)

    def test_gradient_of_a_stack(self):
        for device in self.devices:
            x = k2.RaggedTensor([[3., 4.], [1., 2.]]).to(device)
            x.requires_grad_(True)
            y = x.normalize(use_log=True).values
            torch.stack([y, y.detach()], dim=1).pow(2).sum().backward()
            strided = x.grad
            x = x.clone().requires_grad_(True)
            x.normalize(use_log=True).values.pow(2).sum().backward()
            assert torch.allclose(strided, x.grad)

    def test_gradients_of_values(self):
        for device in self.devices:
            shape = k2.RaggedTensor([[1, 2], [], [3, 4]]).to(device).shape
            for function in (lambda x: x.sum(), lambda x: x.logsumexp(),
                             lambda x: x.normalize(use_log=True).values):
                strided = torch.tensor([3., 0, 1, 0, 2, 0, 5, 0],
                                       device=device, requires_grad=True)
                values = strided.detach()[::2].clone().requires_grad_(True)
                for each in (strided[::2], values):
                    y = function(k2.RaggedTensor(shape, each))
                    weights = torch.arange(1.0, len(y) + 1, device=device)
                    y.backward(weights)
                assert torch.equal(strided.grad[::2], values.grad)

    def test_values(self):
        for device in self.devices:
            for values in _strided(4, device):
                shape = k2.RaggedTensor([[1, 2], [], [3, 4]]).to(device).shape
                assert k2.RaggedTensor(shape, values).tolist() == \
                    k2.RaggedTensor(shape, values.contiguous()).tolist()
                ragged = k2.RaggedTensor(shape, values)
                ragged.sort_(descending=True)
                assert ragged.values.tolist() == sum(ragged.tolist(), [])
                index = values.to(torch.int32).repeat_interleave(2)[::2]
                found = k2.index_select(torch.arange(12, device=device), index)
                assert found.tolist() == index.tolist()


if __name__ == '__main__':
    unittest.main()

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
#  ctest --verbose -R mps_rnnt_pruning_test_py

import unittest

import k2
import torch

B, S, T, D = 3, 7, 19, 33
BOUNDARY = torch.tensor([[0, 0, 7, 19], [0, 0, 3, 11], [0, 0, 0, 17]])
EPS = torch.finfo(torch.float32).eps


def _gradients(rnnt_type, S=S, T=T):
    '''Return px_grad, py_grad and the boundary of a recursion, on the CPU.'''
    columns = T + (rnnt_type == 'regular')
    px = torch.randn(B, S, columns)
    if rnnt_type == 'regular':
        px[:, :, T] = float('-inf')
    boundary = BOUNDARY if T == BOUNDARY[0, 3] else torch.tensor(
        [[0, 0, S, T]] * B)
    _, grads = k2.mutual_information_recursion(
        px, torch.randn(B, S + 1, T), boundary, return_grad=True)
    return [*grads, boundary]


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
class TestMpsRnntPruning(unittest.TestCase):

    def setUp(self):
        torch.manual_seed(1)

    def same_ranges(self, arguments, s_range):
        expected = k2.get_rnnt_prune_ranges(*arguments, s_range)
        found = k2.get_rnnt_prune_ranges(*[x.to('mps') for x in arguments],
                                         s_range)
        assert found.dtype == torch.int64
        assert torch.equal(found.cpu(), expected), (found, expected)

    def test_ranges(self):
        for rnnt_type in ('regular', 'modified'):
            # S + 5 is more than the number of positions.
            for s_range in (2, 3, S + 1, S + 5):
                self.same_ranges(_gradients(rnnt_type), s_range)

    def test_ranges_of_more_frames_than_threads(self):
        for rnnt_type in ('regular', 'modified'):
            self.same_ranges(_gradients(rnnt_type, S=40, T=1100), 4)

    def test_least_range_of_few_frames(self):
        # With two frames for seven symbols, s_range is raised to 5.
        self.same_ranges(_gradients('regular', T=2), 2)

    def test_modified_loss_needs_a_frame_for_each_symbol(self):
        arguments = _gradients('modified')
        arguments[2] = torch.tensor([[0, 0, 7, 6]] * B)
        for device in ('cpu', 'mps'):
            with self.assertRaises(AssertionError):
                k2.get_rnnt_prune_ranges(*[x.to(device) for x in arguments], 3)

    def pruned(self, function, device, dtype, S=S, D=D, lm_columns=None):
        '''Call a function with am, lm and ranges.  Return its results and the
        gradients of am and lm.'''
        torch.manual_seed(2)
        # The positions of a frame have no order.
        ranges = torch.randint(0, S + 1, (B, T, 4))
        leaves = [x.to(dtype).to(device).requires_grad_(True)
                  for x in (torch.randn(B, T, D),
                            torch.randn(B, S + 1, lm_columns or D))]
        results = function(*leaves, ranges.to(device))
        weights = [torch.randn(x.shape).to(dtype).to(device) for x in results]
        sum((w * x).sum() for w, x in zip(weights, results)).backward()
        return [x.detach().cpu() for x in results] + [
            x.grad.cpu() for x in leaves]

    def same(self, function, dtype=torch.float32, eps=EPS, **kwargs):
        '''Compare mps with the CPU, which computes in float64.'''
        expected = self.pruned(function, 'cpu', torch.float64, **kwargs)
        for x, y in zip(self.pruned(function, 'mps', dtype, **kwargs),
                        expected):
            assert x.dtype == dtype and x.shape == y.shape
            # A result is a sum of at most B * T * 4 numbers of about 1.  With
            # half types, the arguments, the weights and the results are
            # rounded, and also the tens of terms in each sum.
            difference = (x.double() - y).abs().max()
            assert difference <= 300 * eps, difference

    def test_pruning_with_one_gradient(self):
        self.same(lambda *args: [sum(k2.do_rnnt_pruning(*args))])

    def test_pruning_with_two_gradients(self):
        self.same(k2.do_rnnt_pruning)
        self.same(k2.do_rnnt_pruning, lm_columns=5)

    def test_pruning_of_one_of_both(self):
        for i in range(2):
            results = []
            for device in ('cpu', 'mps'):
                torch.manual_seed(3)
                leaves = [torch.randn(B, T, D).to(device),
                          torch.randn(B, S + 1, D).to(device)]
                leaves[i].requires_grad_(True)
                ranges = torch.randint(0, S + 1, (B, T, 4)).to(device)
                sum(k2.do_rnnt_pruning(*leaves, ranges)).sum().backward()
                results.append(leaves[i].grad.cpu())
            # Each element is a sum of ones, so it is exact.
            assert torch.equal(*results)

    def test_pruning_of_more_symbols_than_threadgroup_memory_holds(self):
        self.same(lambda *args: [sum(k2.do_rnnt_pruning(*args))], S=300, D=3)
        self.same(lambda *args: [k2.mps.joiner_input(*args)], S=129, D=3)

    def test_pruning_of_half_types(self):
        for dtype in (torch.float16, torch.bfloat16):
            self.same(lambda *args: [sum(k2.do_rnnt_pruning(*args))], dtype,
                      torch.finfo(dtype).eps / 4)

    def test_joiner_input(self):
        self.same(lambda *args: [k2.mps.joiner_input(*args)])
        self.same(lambda *args: [k2.mps.joiner_input(*args)], torch.float16,
                  torch.finfo(torch.float16).eps / 4)

    def test_joiner_input_is_tanh_of_the_sum(self):
        for device in ('cpu', 'mps'):
            am, lm = torch.randn(1, 2, 3), torch.randn(1, 2, 3)
            ranges = torch.tensor([[[0, 1], [1, 0]]])
            found = k2.mps.joiner_input(am.to(device), lm.to(device),
                                        ranges.to(device))
            expected = torch.tanh(am.unsqueeze(2) + lm[:, [[0, 1], [1, 0]]])
            assert torch.allclose(found.cpu(), expected, atol=4 * EPS)

    def test_two_runs_give_the_same_bits(self):
        for function in (lambda *args: [sum(k2.do_rnnt_pruning(*args))],
                         lambda *args: [k2.mps.joiner_input(*args)]):
            both = [self.pruned(function, 'mps', torch.float32)
                    for _ in range(2)]
            for x, y in zip(*both):
                assert torch.equal(x, y)

    def test_loss_in_place(self):
        ranges = torch.arange(4).expand(B, T, 4).to('mps')
        args = [torch.randint(1, 9, (B, 3)).to('mps'), ranges, 0]
        values = torch.randn(B, T, 4, 9, device='mps')
        grads = []
        for loss in (k2.rnnt_loss_pruned, k2.mps.rnnt_loss_pruned_in_place):
            for use_hat_loss in (False, True):
                leaf = values.clone().requires_grad_(True)
                logits = leaf * 1
                loss(logits, *args, use_hat_loss=use_hat_loss).backward()
                grads.append(leaf.grad)
        assert torch.equal(logits.detach(), grads[3])
        for x, y in zip(grads[:2], grads[2:]):
            assert torch.equal(x, y)

    def test_loss_in_place_leaves_a_leaf(self):
        values = torch.randn(B, T, 4, 9, device='mps')
        ranges = torch.arange(4).expand(B, T, 4).to('mps')
        leaf = values.clone().requires_grad_(True)
        for logits in (leaf, leaf.view(B, T, 4, 9)):
            k2.mps.rnnt_loss_pruned_in_place(
                logits, torch.ones(B, 3, dtype=torch.int64, device='mps'),
                ranges, 0).backward()
            assert torch.equal(leaf.detach(), values)

    def test_a_second_backward_of_the_loss_in_place_is_refused(self):
        ranges = torch.arange(4).expand(B, T, 4).to('mps')
        leaf = torch.randn(B, T, 4, 9, device='mps', requires_grad=True)
        logits = leaf * 1
        loss = k2.mps.rnnt_loss_pruned_in_place(
            logits, torch.ones(B, 3, dtype=torch.int64, device='mps'), ranges,
            0)
        loss.backward(retain_graph=True)
        with self.assertRaises(RuntimeError):
            loss.backward()


if __name__ == '__main__':
    unittest.main()

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
#  ctest --verbose -R mps_rnnt_pruned_test_py

import unittest

import k2
import torch
from k2.mps import rnnt_pruned

B, S, T, C, R = 3, 6, 13, 11, 3
BOUNDARY = torch.tensor([[0, 0, 6, 13], [0, 0, 4, 11], [1, 2, 5, 9]])
EPS = torch.finfo(torch.float32).eps


FULL = torch.tensor([[0, 0, S, T]] * B)


def _ranges(boundary=BOUNDARY):
    '''Return ranges of R positions.  Over the frames of a boundary, the ranges
    move from the first position of the boundary to its last position.'''
    s_begin, t_begin, s_end, t_end = [
        x.reshape(B, 1) for x in boundary.unbind(1)]
    part = (torch.arange(T) - t_begin).clamp(min=0) / (t_end - 1 - t_begin)
    begin = s_begin + (part.clamp(max=1) * (s_end - R + 1 - s_begin)).long()
    return begin.unsqueeze(2) + torch.arange(R)


def _loss_and_grad(loss, logits, device, dtype, weight):
    '''Return the losses, and the gradient of their weighted sum.

    Args:
      loss:
        A function that takes the logits and the device and returns the losses.
    '''
    leaf = logits.to(device).to(dtype).requires_grad_(True)
    losses = loss(leaf, device)
    (losses * weight.to(device).to(losses.dtype)).sum().backward()
    return losses.detach().cpu(), leaf.grad.cpu()


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
class TestMpsRnntPruned(unittest.TestCase):

    def setUp(self):
        torch.manual_seed(1)
        self.symbols = torch.randint(1, C, (B, S))
        self.weight = torch.rand(B)

    def same(self, loss, logits, dtype=torch.float32, eps=EPS):
        '''Compare mps with the CPU, which computes in float64.  Both devices
        get logits that are rounded to `dtype`.'''
        logits = logits.to(dtype)
        found, grad = _loss_and_grad(loss, logits, 'mps', dtype, self.weight)
        expected, expected_grad = _loss_and_grad(loss, logits, 'cpu',
                                                 torch.float64, self.weight)
        assert found.dtype == torch.float32, found.dtype
        # The recursion rounds S + T sums, whose values are some tens.  In each
        # sum, the error of exp() and log() is 2^-21.
        self.close(found, expected, 20 * 100 * EPS)
        # A gradient is a product of S + T ratios, and is rounded to `dtype`.
        self.close(grad, expected_grad, 20 * 20 * EPS + eps)

    def close(self, found, expected, tolerance):
        assert expected.isfinite().all()
        difference = (found.double() - expected).abs()
        assert difference.max() <= tolerance, difference.max()

    def pruned(self, ranges, rnnt_type='regular', boundary=BOUNDARY, **kwargs):
        '''Return a function that takes logits and a device and returns
        rnnt_loss_pruned().'''

        def loss(logits, device):
            bound = boundary if boundary is None else boundary.to(device)
            return k2.rnnt_loss_pruned(
                logits, self.symbols.to(device), ranges.to(device), 0, bound,
                rnnt_type, reduction='none', **kwargs)

        return loss

    def test_types_of_loss(self):
        for rnnt_type in ('regular', 'modified', 'constrained'):
            for hat in (False, True):
                for boundary in (None, BOUNDARY):
                    ranges = _ranges(FULL if boundary is None else boundary)
                    loss = self.pruned(ranges, rnnt_type, boundary,
                                       use_hat_loss=hat)
                    self.same(loss, 2 * torch.randn(B, T, R, C))

    def test_delay_penalty(self):
        for rnnt_type in ('regular', 'constrained'):
            loss = self.pruned(_ranges(), rnnt_type, delay_penalty=0.3)
            self.same(loss, torch.randn(B, T, R, C))

    def test_half_types(self):
        logits = 2 * torch.randn(B, T, R, C)
        for dtype in (torch.float16, torch.bfloat16):
            self.same(self.pruned(_ranges()), logits, dtype,
                      torch.finfo(dtype).eps)

    def test_large_logits(self):
        self.same(self.pruned(_ranges()), 40 * torch.randn(B, T, R, C))

    def test_logits_of_minus_infinity(self):
        logits = torch.randn(B, T, R, C)
        # Symbol C - 1, which has no probability, is in no reference.
        self.symbols[self.symbols == C - 1] = 1
        logits[..., C - 1] = float('-inf')
        self.same(self.pruned(_ranges()), logits)

    def test_logits_of_nan_and_infinity(self):
        for at in ((1,), (1, 5), (1, 0, 0, 0), (1, 5, 1, 3)):
            for value in (float('nan'), float('inf')):
                logits = torch.randn(B, T, R, C)
                logits[at] = value
                # mps does not read padding.
                padding = torch.arange(T).unsqueeze(0) >= BOUNDARY[:, 3:]
                logits[padding] = 0
                for hat in (False, True):
                    loss = self.pruned(_ranges(), use_hat_loss=hat)
                    found, expected = [
                        _loss_and_grad(loss, logits.clone(), device,
                                       torch.float32, self.weight)
                        for device in ('mps', 'cpu')]
                    assert hat or expected[1][1].isnan().any()
                    for x, y in zip(found, expected):
                        # The tolerances of same(), which has the reasons.
                        assert torch.allclose(x, y, rtol=0, atol=20 * 100 * EPS,
                                              equal_nan=True), (at, value, hat)

    def test_padding_is_not_read(self):
        logits = torch.randn(B, T, R, C)
        padding = torch.arange(T).unsqueeze(0) >= BOUNDARY[:, 3:]
        logits[padding] = float('nan')
        loss = self.pruned(_ranges())
        found, grad = _loss_and_grad(loss, logits, 'mps', torch.float32,
                                     self.weight)
        logits[padding] = 0
        expected, expected_grad = _loss_and_grad(loss, logits, 'mps',
                                                 torch.float32, self.weight)
        assert torch.equal(found, expected)
        assert torch.equal(grad, expected_grad)
        assert (grad[padding] == 0).all()

    def test_more_rows_than_threadgroup_memory_holds(self):
        # The logits have 131 positions in a frame, with two columns each.
        symbols = torch.ones(1, 130, dtype=torch.int64)
        boundary = torch.tensor([[0, 0, 100, 9]])
        self.weight = torch.rand(1)
        for rnnt_type in ('regular', 'constrained'):
            if rnnt_type == 'constrained':
                boundary = torch.tensor([[0, 0, 5, 9]])

            def loss(logits, device):
                return k2.rnnt_loss(logits, symbols.to(device), 0,
                                    boundary.to(device), rnnt_type,
                                    reduction='none')

            self.same(loss, torch.randn(1, 9, 131, 2))

    def test_empty_references(self):
        self.symbols = torch.empty(B, 0, dtype=torch.int64)
        boundary = torch.tensor([[0, 0, 0, 13], [0, 0, 0, 7], [0, 0, 0, 9]])
        ranges = torch.zeros(B, T, 1, dtype=torch.int64)
        for rnnt_type in ('regular', 'constrained'):
            self.same(self.pruned(ranges, rnnt_type, boundary),
                      torch.randn(B, T, 1, C))

    def test_reductions(self):
        logits = torch.randn(B, T, R, C)
        args = [self.symbols, _ranges(), 0, BOUNDARY]
        for reduction in ('mean', 'sum'):
            results = []
            for device, dtype in (('mps', torch.float32),
                                  ('cpu', torch.float64)):
                leaf = logits.to(device).to(dtype).requires_grad_(True)
                there = [x.to(device) if torch.is_tensor(x) else x
                         for x in args]
                loss = k2.rnnt_loss_pruned(leaf, *there, reduction=reduction)
                loss.backward()
                results.append((loss.detach().cpu(), leaf.grad.cpu()))
            for found, expected in zip(*results):
                assert found.shape == expected.shape
                self.close(found, expected, 2000 * EPS)

    def test_wrong_sequences_are_nan(self):
        # Only sequence 1 is wrong.  Its last symbols and frames are outside of
        # the boundary, and are checked, too.
        def changed(x, at, value):
            x = x.clone()
            x[at] = torch.tensor(value)
            return x

        good = self.symbols, _ranges()
        wrong = [(changed(good[0], (1, s), value), good[1])
                 for s, value in ((0, C), (2, -1), (S - 1, 10**12))]
        wrong += [(good[0], changed(good[1], (1, t), value))
                  for t, value in ((5, [-1, 0, 1]), (0, [-1, 0, 1]),
                                   (5, [S - 1, S, S + 1]), (5, [S, 0, 1]),
                                   (5, [3, 2, 1]), (5, [0, 1, 3]),
                                   (T - 1, [10**12] * R))]
        logits = torch.randn(B, T, R, C)
        for boundary in (None, BOUNDARY):
            for rnnt_type in ('regular', 'modified', 'constrained'):
                for hat in (False, True):

                    def results(symbols, ranges):
                        self.symbols = symbols
                        loss = self.pruned(ranges, rnnt_type, boundary,
                                           use_hat_loss=hat)
                        with torch.no_grad():
                            alone = loss(logits.to('mps'), 'mps').cpu()
                        return (*_loss_and_grad(loss, logits, 'mps',
                                                torch.float32, self.weight),
                                alone)

                    expected = results(*good)
                    for symbols, ranges in wrong:
                        found = results(symbols, ranges)
                        for x, y in zip(found, expected):
                            assert x[1].isnan().all()
                            assert torch.equal(x[::2], y[::2])

    def test_wrong_symbols_of_rnnt_loss_are_nan(self):
        logits = torch.randn(B, T, S + 1, C)
        wrong = self.symbols.clone()
        wrong[1, S - 1] = C
        for boundary in (None, BOUNDARY.to('mps')):
            expected, found = [
                _loss_and_grad(
                    lambda logits, device: k2.rnnt_loss(
                        logits, symbols.to(device), 0, boundary,
                        reduction='none'),
                    logits, 'mps', torch.float32, self.weight)
                for symbols in (self.symbols, wrong)]
            for x, y in zip(found, expected):
                assert x[1].isnan().all() and y.isfinite().all()
                assert torch.equal(x[::2], y[::2])

    def test_two_runs_give_the_same_bits(self):
        logits = torch.randn(B, T, R, C)
        loss = self.pruned(_ranges())
        first, second = [
            _loss_and_grad(loss, logits, 'mps', torch.float32, self.weight)
            for _ in range(2)]
        for x, y in zip(first, second):
            assert torch.equal(x, y)

    def test_metal_takes_no_more_rows_than_an_int_counts(self):
        zero = torch.zeros(1, dtype=torch.int64, device='mps')
        logit = torch.zeros(1, device='mps')
        for T, S, taken in ((1, 2**28 - 2, True), (1, 2**28 - 1, False),
                            (2, 2**27 - 1, False)):
            # Expanded tensors take no memory.
            logits = logit.expand(1, T, 2, 4)
            symbols, ranges = zero.expand(1, S), zero.expand(1, T, 2)
            self.assertEqual(taken, rnnt_pruned.in_metal(
                logits, symbols, ranges, 0, None, False))

    def test_boundary_is_checked_again_after_a_change_in_place(self):
        boundary = BOUNDARY.to('mps')
        loss = self.pruned(_ranges(), boundary=boundary)
        logits = torch.randn(B, T, R, C, device='mps')
        loss(logits, 'mps')
        boundary[1, 3] = T + 1
        with self.assertRaises(AssertionError):
            loss(logits, 'mps')

    def test_torch_computes_with_symbols_of_int32(self):
        logits = torch.randn(B, T, R, C, device='mps')
        loss = self.pruned(_ranges())
        expected = loss(logits, 'mps').cpu().double()
        self.symbols = self.symbols.to(torch.int32)
        found = loss(logits, 'mps').cpu()
        self.close(found, expected, 2000 * EPS)


if __name__ == '__main__':
    unittest.main()

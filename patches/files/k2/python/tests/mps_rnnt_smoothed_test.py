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
#  ctest --verbose -R mps_rnnt_smoothed_test_py

import itertools
import unittest

import k2
import torch

B, S, T, C = 3, 6, 14, 9
TYPES = ('regular', 'modified', 'constrained')


def make(scale=1.0):
    '''Return lm and am in float64, symbols (some repeat), and a boundary.'''
    torch.manual_seed(1)
    am = torch.randn(B, T, C).double() * scale
    lm = torch.randn(B, S + 1, C).double() * scale
    symbols = torch.randint(0, 4, (B, S))
    boundary = torch.tensor([[0, 0, S, T], [0, 0, 4, 11], [1, 2, 5, 9]])
    return lm, am, symbols, boundary


def run(function, lm, am, device, dtype):
    '''Call a function with lm and am.  Return its results and the gradients of
    lm and am, all in float64 on the CPU.'''
    leaves = [x.detach().to(device, dtype).requires_grad_(True)
              for x in (lm, am)]
    found = function(*leaves)
    total = sum((x * w).masked_fill(x.isinf(), 0).sum()
                for x, w in zip(found, weights(found)) if x.requires_grad)
    total.backward()
    return [x.detach().cpu().double()
            for x in (*found, *(leaf.grad for leaf in leaves))]


def weights(tensors):
    '''Return weights for the elements of tensors, in tensors of the same shapes
    as `tensors`.  The elements of a tensor have different weights.'''
    return [torch.linspace(1, 2, x.numel()).view(x.shape).to(x)
            for x in tensors]


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
class TestMpsRnntSmoothed(unittest.TestCase):

    def check(self, function, lm, am):
        expected = run(lambda *x: function('cpu', *x), lm, am, 'cpu',
                       torch.float64)
        found = run(lambda *x: function('mps', *x), lm, am, 'mps',
                    torch.float32)
        for a, b in zip(found, expected):
            # A score is a sum of T + S log-probs of about 3, in float32.
            assert torch.allclose(a, b, rtol=1e-5, atol=2e-5), (a - b).abs()

    def test_loss(self):
        lm, am, symbols, boundary = make(2.0)
        for rnnt_type, lm_scale, am_scale, delay, bound, reduction in (
                itertools.product(TYPES, (0.0, 0.25), (0.0, 0.1, 0.5),
                                  (0.0, 0.3), (None, boundary),
                                  ('none', 'sum', 'mean'))):
            def loss(device, lm, am):
                ans, grads = k2.rnnt_loss_smoothed(
                    lm, am, symbols.to(device), 2, lm_scale, am_scale,
                    bound if bound is None else bound.to(device), rnnt_type,
                    delay, reduction, return_grad=True)
                return (ans, *grads)

            with self.subTest((rnnt_type, lm_scale, am_scale, delay,
                               bound is None, reduction)):
                self.check(loss, lm, am)

    def test_simple_loss(self):
        lm, am, symbols, boundary = make(2.0)
        for rnnt_type in TYPES:
            def loss(device, lm, am):
                return k2.rnnt_loss_simple(
                    lm, am, symbols.to(device), 2, boundary.to(device),
                    rnnt_type, 0.2, 'none'),

            with self.subTest(rnnt_type):
                self.check(loss, lm, am)

    def test_logprobs(self):
        lm, am, symbols, boundary = make(2.0)
        for rnnt_type, bound in itertools.product(TYPES, (None, boundary)):
            def some(device):
                return dict(symbols=symbols.to(device), termination_symbol=2,
                            boundary=None if bound is None
                            else bound.to(device), rnnt_type=rnnt_type)

            with self.subTest((rnnt_type, bound is None)):
                self.check(lambda device, lm, am: k2.get_rnnt_logprobs(
                    lm, am, **some(device)), lm, am)
                self.check(lambda device, lm, am: get_smoothed(
                    lm, am, **some(device)), lm, am)

    def test_finite_differences(self):
        lm, am, symbols, boundary = make(2.0)
        symbols, boundary = symbols.to('mps'), boundary.to('mps')

        def loss(lm, am):
            return k2.rnnt_loss_smoothed(
                lm.to('mps', torch.float32), am.to('mps', torch.float32),
                symbols, 2, 0.25, 0.1, boundary, reduction='sum')

        _, lm_grad, am_grad = run(lambda *x: (loss(*x),), lm, am, 'mps',
                                  torch.float32)
        step = 0.05
        lm_by, am_by = torch.randn_like(lm), torch.randn_like(am)
        up, down = [loss(lm + sign * step * lm_by, am + sign * step * am_by)
                    for sign in (1, -1)]
        found = (up - down).item() / (2 * step)
        expected = ((lm_grad * lm_by).sum() + (am_grad * am_by).sum()).item()
        # The error of the difference is step ** 2 / 6 times the third
        # derivative.  Each of B * (S + T) steps of the recursion adds about 1
        # to this derivative.  The rounding of sums of about 100 adds
        # 1e-5 / step to the error.
        assert abs(found - expected) < B * (S + T) * step ** 2 / 6 + 1e-3

    def test_autocast(self):
        '''autocast does not change the loss, which is computed in float32.'''
        lm, am, symbols, boundary = make(4.0)
        symbols, boundary = symbols.to('mps'), boundary.to('mps')

        def smoothed(lm, am):
            return k2.rnnt_loss_smoothed(lm, am, symbols, 2, 0.25, 0.1,
                                         boundary, reduction='sum'),

        def simple(lm, am):
            return k2.rnnt_loss_simple(lm, am, symbols, 2, boundary,
                                       reduction='sum'),

        for dtype, loss in itertools.product((torch.float16, torch.bfloat16),
                                             (smoothed, simple)):
            def cast(*x):
                with torch.autocast('mps', dtype=dtype):
                    return loss(*x)

            for a, b in zip(run(cast, lm, am, 'mps', torch.float32),
                            run(loss, lm, am, 'mps', torch.float32)):
                assert torch.equal(a, b) and a.isfinite().all()

            # A network in autocast gives lm and am in half precision.  With
            # such inputs, only the gradients are rounded.
            halves = [x.to(dtype) for x in (lm, am)]
            for a, b in zip(run(cast, *halves, 'mps', dtype),
                            run(loss, *halves, 'mps', torch.float32)):
                assert torch.equal(a, b.to(dtype).double() if a.ndim else b)
                assert a.isfinite().all()

    def test_padding_is_not_read(self):
        lm, am, symbols, boundary = make()

        def loss(lm, am):
            return k2.rnnt_loss_smoothed(
                lm, am, symbols.to('mps'), 2, 0.25, 0.0, boundary.to('mps'),
                reduction='none'),

        expected = run(loss, lm, am, 'mps', torch.float32)
        for b, (s_begin, t_begin, s_end, t_end) in enumerate(
                boundary.tolist()):
            am[b, :t_begin] = am[b, t_end:] = float('nan')
            lm[b, :s_begin] = lm[b, s_end + 1:] = float('nan')
        for a, b in zip(run(loss, lm, am, 'mps', torch.float32), expected):
            assert torch.equal(a, b)

    def test_two_runs_give_the_same_bits(self):
        lm, am, symbols, boundary = make(3.0)

        def loss(lm, am):
            return k2.rnnt_loss_smoothed(
                lm, am, symbols.to('mps'), 2, 0.25, 0.1, boundary.to('mps')),

        for a, b in zip(*[run(loss, lm, am, 'mps', torch.float32)
                          for _ in range(2)]):
            assert torch.equal(a, b)

    def test_wrong_symbols_give_nan(self):
        # Sequence 1 has a wrong symbol, in the boundary or after it.
        one = torch.tensor([1], device='mps')
        for at, value, rnnt_type in itertools.product(
                (0, 2, S - 1), (-1, C, 10**12), TYPES):
            lm, am, symbols, boundary = make()
            wrong = symbols.clone()
            wrong[1, at] = value
            for bound in (None, boundary.to('mps')):
                rest = dict(termination_symbol=2, boundary=bound,
                            rnnt_type=rnnt_type)
                for function in (
                        lambda lm, am, symbols: (k2.rnnt_loss_simple(
                            lm, am, symbols, reduction='none', **rest),),
                        lambda lm, am, symbols: (k2.rnnt_loss_smoothed(
                            lm, am, symbols, lm_only_scale=0.25,
                            reduction='none', **rest),),
                        lambda lm, am, symbols: k2.get_rnnt_logprobs(
                            lm, am, symbols, **rest)):
                    found = run(
                        lambda lm, am: function(lm, am, wrong.to('mps')),
                        lm, am, 'mps', torch.float32)
                    # With an am_only_scale, the loss of a sequence depends on
                    # lm of all sequences.  So leave out the gradient of the
                    # loss of sequence 1.
                    expected = run(
                        lambda lm, am: [x.index_fill(0, one, 0) for x in
                                        function(lm, am, symbols.to('mps'))],
                        lm, am, 'mps', torch.float32)
                    for x, y in zip(found, expected):
                        assert x[1].isnan().all()
                        assert torch.equal(x[::2], y[::2])

    def test_wrong_arguments_are_refused_as_on_the_cpu(self):
        lm, am, symbols, boundary = make()
        boundary[1, 2] = S + 1
        for change in (dict(boundary=boundary), dict(symbols=symbols[:, 1:]),
                       dict(lm=lm[:, :, 1:]), dict(rnnt_type='other')):
            arguments = {**dict(lm=lm, am=am, symbols=symbols), **{
                'termination_symbol': 2, **change}}
            for device in ('cpu', 'mps'):
                with self.assertRaises(AssertionError):
                    k2.rnnt_loss_smoothed(**{
                        name: (x.float() if x.is_floating_point() else x
                               ).to(device) if torch.is_tensor(x) else x
                        for name, x in arguments.items()})


def get_smoothed(lm, am, **rest):
    return k2.get_rnnt_logprobs_smoothed(lm, am, lm_only_scale=0.25,
                                         am_only_scale=0.1, **rest)


if __name__ == '__main__':
    unittest.main()

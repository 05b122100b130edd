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
#  ctest --verbose -R mps_ctc_loss_test_py

import math
import os
import unittest
from unittest import mock

import k2
import torch
from paths_in_float64 import IntersectionCases
from paths_in_float64 import differences


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
# The host is faster for these small problems, so force Metal.
@mock.patch.dict(os.environ, {'K2_MPS_FORCE': 'metal'})
class TestMpsCtcLoss(unittest.TestCase):

    def setUp(self):
        torch.manual_seed(1)
        self.targets = [[1, 2, 2, 3], [4], [2, 1]]
        self.log_probs = torch.randn(3, 30, 6).log_softmax(-1)
        self.segments = torch.tensor([[0, 0, 30], [1, 0, 25], [2, 2, 20]],
                                     dtype=torch.int32)

    def loss_and_gradients(self, device, **options):
        log_probs = self.log_probs.clone().to(device).requires_grad_(True)
        graph = k2.ctc_graph(self.targets, device=device).requires_grad_(True)
        loss = k2.ctc_loss(graph, k2.DenseFsaVec(log_probs, self.segments),
                           reduction='none', **options)
        loss.sum().backward()
        return loss.detach(), log_probs.grad, graph.grad

    def compare(self, **options):
        for found, expected in zip(self.loss_and_gradients('mps', **options),
                                   self.loss_and_gradients('cpu', **options)):
            # Both devices sum some hundred terms, with different exp() and
            # log().
            assert torch.allclose(found.cpu(), expected, rtol=1e-5, atol=1e-4)

    def test_results_agree_with_the_cpu(self):
        for use_double in (True, False):
            self.compare(use_double_scores=use_double)

    def test_delay_penalty(self):
        self.compare(delay_penalty=0.1)

    def test_a_label_without_scores(self):
        self.targets[1] = [6]
        with self.assertRaisesRegex(RuntimeError, 'has label 6'):
            self.loss_and_gradients('mps')

    def test_edited_labels_without_scores(self):
        for label in (2**31 - 1, -2, -2**31):
            graph = k2.ctc_graph(self.targets, device='mps')
            graph.labels[graph.labels == 4] = label
            dense = k2.DenseFsaVec(self.log_probs.to('mps'), self.segments)
            # The host does not know the labels of an edited graph yet.
            loss = k2.ctc_loss(graph, dense, reduction='none')
            assert loss.isnan().tolist() == [False, True, False], label


def forward_algorithm(log_probs, targets):
    '''Return the CTC loss of a sequence.

    This is the algorithm of A. Graves et al., Connectionist Temporal
    Classification, 2006, section 4.1.

    Args:
      log_probs:
        A tensor of shape (T, C).  The blank is 0.
      targets:
        A list of symbols.
    '''
    symbols = [0]
    for target in targets:
        symbols += [target, 0]
    # Whether a path can enter a state from the state two places before.
    skips = [i >= 2 and symbol not in (0, symbols[i - 2])
             for i, symbol in enumerate(symbols)]
    # This number replaces -infinity, for which torch's gradient of logsumexp()
    # would be NaN.
    nothing = -1e30
    skips = torch.tensor([0 if skip else nothing for skip in skips],
                         dtype=log_probs.dtype)

    def after(alpha, count):
        padding = alpha.new_full((count,), nothing)
        return torch.cat([padding, alpha])[:len(symbols)]

    alpha = log_probs.new_full((len(symbols),), nothing)
    alpha[0] = 0
    for frame, row in enumerate(log_probs):
        # In the first frame, a path can begin with a symbol instead of the
        # blank.
        before = [alpha, after(alpha, 1)]
        before += [after(alpha, 2) + skips] if frame else []
        alpha = torch.stack(before).logsumexp(0) + row[symbols]
    return -alpha[-2:].logsumexp(0)


def gradient_by_torch(function, point):
    point.requires_grad_(True)
    return torch.autograd.grad(function(point), point)[0]


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
@mock.patch.dict(os.environ, {'K2_MPS_FORCE': 'metal'})
class TestMpsCtcLossInDoublePrecision(unittest.TestCase):

    # The scores of paths differ by less than this beam, so k2 prunes no path.
    BEAM = 1000

    def check_targets(self, log_probs, num_frames, targets, gradient_of):
        '''Compare with the forward algorithm in double precision.

        Args:
          log_probs:
            A tensor of shape (N, T, C).
          num_frames:
            The number of frames of each sequence; the largest comes first.
          targets:
            A list of symbols for each sequence.
          gradient_of:
            A function that takes a function of log_probs and a value of
            log_probs, and returns the gradient.
        '''
        weights = torch.rand(len(targets)) + 0.5
        segments = torch.tensor(
            [[i, 0, frames] for i, frames in enumerate(num_frames)],
            dtype=torch.int32)

        def losses(log_probs):
            return [forward_algorithm(of_seq[:frames], of_target)
                    for of_seq, frames, of_target in zip(log_probs, num_frames,
                                                         targets)]

        expected = torch.stack(losses(log_probs.double()))
        expected_gradient = gradient_of(
            lambda point: sum(loss * weight for loss, weight in
                              zip(losses(point), weights.double())),
            log_probs.double())
        graphs = k2.ctc_graph(targets, device='mps')
        for use_double in (True, False):
            leaf = log_probs.clone().to('mps').requires_grad_(True)
            found = k2.ctc_loss(graphs, k2.DenseFsaVec(leaf, segments),
                                self.BEAM, reduction='none',
                                use_double_scores=use_double)
            (found * weights.to('mps')).sum().backward()
            # The loss is rounded to float32.  Without double scores, the sum
            # over the frames is rounded in each frame.
            rtol = 2**-23 if use_double else max(num_frames) * 2**-23
            torch.testing.assert_close(found.detach().cpu().double(), expected,
                                       rtol=rtol, atol=1e-6)
            # For each symbol, the gradient has products of four numbers in
            # float32.
            torch.testing.assert_close(leaf.grad.cpu().double(),
                                       expected_gradient, rtol=0, atol=1e-5)

    def test_differences_of_the_forward_algorithm(self):
        torch.manual_seed(1)
        log_probs = torch.randn(4, 9, 5).log_softmax(-1)
        self.check_targets(log_probs, [9, 8, 6, 1],
                           [[1, 1, 2, 3], [4], [2, 4, 2], [3]], differences)

    def test_long_sequences(self):
        torch.manual_seed(1)
        log_probs = torch.randn(2, 300, 20).log_softmax(-1)
        targets = [torch.randint(1, 20, (n,)).tolist() for n in (90, 5)]

        self.check_targets(log_probs, [300, 270], targets, gradient_by_torch)

    def test_scores_of_any_size(self):
        torch.manual_seed(1)
        log_probs = torch.randn(2, 7, 5).mul(3)
        for offset in (-1e4, 100, 1e5):
            # Both devices get log_probs + offset, rounded to float32.
            self.check_targets(log_probs + offset, [7, 6], [[1, 2], [3, 3]],
                               gradient_by_torch)

    def test_scores_up_to_the_limit(self):
        torch.manual_seed(1)
        log_probs = torch.randn(3, 30, 6).log_softmax(-1).mul(4).round()
        # The largest loss is 3.6e8.  Up to 3.7e8, the kernels' exponents are
        # exact.
        for offset in (2e6, -5e6, 1.2e7, -1.2e7):
            self.check_targets(log_probs + offset, [30, 25, 20],
                               [[1, 2, 2, 3], [4], [2, 1]], gradient_by_torch)

    def test_paths_of_any_graph(self):
        for seed in range(5):
            cases = IntersectionCases(seed)
            for beam in cases.beams:
                self.check_paths(cases, beam)

    def check_paths(self, cases, beam):
        '''Compare with the sum over all paths whose arcs the beam keeps.

        To compute its gradient, the reference changes the scores, but sums over
        the same paths.  k2 also differentiates a sum over fixed paths.
        '''
        kept = cases.expected(beam)
        scores, log_probs = cases.graphs.scores, cases.log_probs
        weights = torch.rand(len(kept), dtype=torch.float64) + 0.5

        def value(scores, log_probs):
            totals = [case.total(scores, of_seq)
                      for case, of_seq in zip(kept, log_probs)]
            return sum(-total * weight for total, weight in zip(totals, weights)
                       if total > -math.inf)

        expected = torch.stack([
            -case.total(scores.double(), of_seq)
            for case, of_seq in zip(kept, log_probs.double())])
        graphs = cases.graphs.to('mps').requires_grad_(True)
        leaf = log_probs.clone().to('mps').requires_grad_(True)
        found = k2.ctc_loss(graphs, cases.dense(leaf), beam, reduction='none')
        # The loss is rounded to float32.
        torch.testing.assert_close(found.detach().cpu().double(), expected,
                                   rtol=2**-23, atol=1e-6)
        found[found.isfinite()].mul(
            weights.float().to('mps')[found.isfinite()]).sum().backward()
        of_scores = differences(lambda to: value(to, log_probs.double()),
                                scores.double())
        of_log_probs = differences(lambda to: value(scores.double(), to),
                                   log_probs.double())
        # The gradients are sums of up to five products of four numbers in
        # float32.
        for gradient, expected in ((graphs.grad, of_scores),
                                   (leaf.grad, of_log_probs)):
            torch.testing.assert_close(gradient.cpu().double(), expected,
                                       rtol=0, atol=1e-5)

    def test_gradients_of_a_frame_add_up_to_that_of_the_loss(self):
        torch.manual_seed(1)
        leaf = torch.randn(2, 12, 6).to('mps').requires_grad_(True)
        segments = torch.tensor([[0, 0, 12], [1, 0, 9]], dtype=torch.int32)
        k2.ctc_loss(k2.ctc_graph([[1, 2, 2], [5]], device='mps'),
                    k2.DenseFsaVec(leaf, segments)).backward()
        # Each path has one symbol in a frame, so the posteriors of a frame add
        # up to 1.
        expected = -torch.ones(2, 12)
        expected[1, 9:] = 0
        torch.testing.assert_close(leaf.grad.sum(-1).cpu(), expected, rtol=0,
                                   atol=1e-5)


if __name__ == '__main__':
    unittest.main()

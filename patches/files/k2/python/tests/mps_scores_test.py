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
#  ctest --verbose -R mps_scores_test_py

import os
import random
import unittest
from unittest import mock

import k2
import torch
from paths_in_float64 import arcs_of
from paths_in_float64 import differences
from paths_in_float64 import log_sum
from paths_in_float64 import num_states
from paths_in_float64 import paths


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
# The host is faster for these small problems, so force Metal.
@mock.patch.dict(os.environ, {'K2_MPS_FORCE': 'metal'})
class TestMpsScores(unittest.TestCase):

    def setUp(self):
        torch.manual_seed(1)
        dense = k2.DenseFsaVec(torch.randn(2, 30, 6).log_softmax(-1),
                               torch.tensor([[0, 0, 30], [1, 0, 25]],
                                            dtype=torch.int32))
        self.lattice = k2.intersect_dense(k2.ctc_graph([[1, 2, 2], [4]]), dense,
                                          output_beam=10)

    def compare(self, name, log_semiring):
        '''Compare with the CPU, which computes in double precision.'''
        fsas = self.lattice.detach().requires_grad_(True)
        expected = getattr(fsas, name)(True, log_semiring)
        weights = torch.rand(len(expected))
        (expected * weights).sum().backward()
        for use_double in (True, False):
            on_mps = self.lattice.detach().to('mps').requires_grad_(True)
            scores = getattr(on_mps, name)(use_double, log_semiring)
            (scores * weights.to('mps')).sum().backward()
            # Scores of up to about 100 are rounded once to float32.
            assert torch.allclose(scores.cpu(), expected.to(torch.float32),
                                  rtol=1e-6, atol=1e-5)
            assert torch.allclose(on_mps.grad.cpu(), fsas.grad, rtol=0,
                                  atol=1e-6 * float(fsas.grad.abs().max()))

    def test_scores(self):
        for log_semiring in (True, False):
            for name in ('forward', 'backward', 'tot'):
                self.compare(f'get_{name}_scores', log_semiring)

    def test_posteriors_of_arcs(self):
        found = []
        for device in ('cpu', 'mps'):
            fsas = self.lattice.detach().to(device).requires_grad_(True)
            post = fsas.get_arc_post(True, True).exp()
            post.sum().backward()
            found += [(post.cpu().to(torch.float32), fsas.grad.cpu())]
        for expected, given in zip(*found):
            # The gradients are sums of some hundred terms in float32.
            assert torch.allclose(given, expected, rtol=1e-5, atol=1e-4)

    def test_gradients_up_to_the_limit(self):
        # The total scores are up to 1e13.  Up to this score, the kernels'
        # exponents are exact.
        for size in (1e5, -2e6, 2e7, -1e10, 3e11):
            size = torch.tensor(size)
            unit = size.nextafter(2 * size) - size
            # Scores have only two values, so many paths have equal scores.
            scores = size + unit * torch.randint(0, 2,
                                                 self.lattice.scores.shape)
            found = []
            for device in ('cpu', 'mps'):
                fsas = self.lattice.detach().to(device)
                of_arcs = scores.clone().to(device).requires_grad_(True)
                fsas.scores = of_arcs
                total = fsas.get_tot_scores(True, True)
                total.sum().backward()
                found.append(of_arcs.grad.cpu())
            # of_cpu allows for the rounding of doubles in 30 additions on the
            # CPU.  The last bit of a double is 2^-52 of the total score.
            of_cpu = 4 * 2**-52 * float(total.detach().abs().max())
            assert torch.allclose(*found, rtol=0, atol=1e-6 + of_cpu)


@unittest.skipUnless(k2.with_mps and torch.backends.mps.is_available(),
                     'there is no mps')
@mock.patch.dict(os.environ, {'K2_MPS_FORCE': 'metal'})
class TestMpsScoresOfPaths(unittest.TestCase):
    '''Compares scores with sums over all paths in double precision.'''

    def setUp(self):
        torch.manual_seed(1)
        chance = random.Random(1)
        # The last two FSAs have no path.  The last one has no state either.
        self.fsas = k2.create_fsa_vec([
            *(self.fsa(chance, size) for size in (2, 5, 7, 7)),
            k2.Fsa.from_str('0 1 1 0\n2'),
            k2.Fsa.from_str('')])
        self.scores = torch.randn(self.fsas.num_arcs).mul(2)
        self.arcs = arcs_of(self.fsas)
        self.sizes = num_states(self.fsas)

    def fsa(self, chance, size):
        '''Return a random FSA without cycles, of `size` states.  Some states
        may be on no path.'''
        arcs = {(0, 1, 1 if size > 2 else -1)}
        for _ in range(2 * size):
            src, dest = sorted(chance.sample(range(size), 2))
            label = -1 if dest == size - 1 else chance.randint(1, 4)
            arcs.add((src, dest, label))
        lines = [f'{src} {dest} {label} 0' for src, dest, label in sorted(arcs)]
        return k2.Fsa.from_str('\n'.join([*lines, str(size - 1)]))

    def sums(self, scores, ends, log_semiring):
        '''Return the log_sum() of the scores of all paths from one state to
        another.

        Args:
          ends:
            A tuple for each sum: the number of an FSA, the first state and the
            last state of the paths.
        '''
        return torch.stack([
            log_sum(self.of_paths(scores, fsa, begin, end)[1], log_semiring)
            for fsa, begin, end in ends])

    def of_paths(self, scores, fsa, begin, end):
        '''Return the paths from one state to another, and their scores.'''
        found = list(paths(self.arcs[fsa], begin, end))
        return found, scores.new_tensor([
            sum(scores[arc.index].item() for arc in path) for path in found])

    def tot(self, scores, log_semiring=True):
        return self.sums(scores, [(fsa, 0, size - 1)
                                  for fsa, size in enumerate(self.sizes)],
                         log_semiring)

    def forward(self, scores, log_semiring=True):
        return self.sums(scores, [(fsa, 0, state)
                                  for fsa, size in enumerate(self.sizes)
                                  for state in range(size)], log_semiring)

    def backward(self, scores, log_semiring=True):
        return self.sums(scores, [(fsa, state, size - 1)
                                  for fsa, size in enumerate(self.sizes)
                                  for state in range(size)], log_semiring)

    def posteriors(self, scores):
        '''Return the posterior of each arc, by its definition.'''
        through = []
        for fsa, size in enumerate(self.sizes):
            found, of_paths = self.of_paths(scores, fsa, 0, size - 1)
            for arc in self.arcs[fsa]:
                has_arc = torch.tensor([arc in path for path in found],
                                       dtype=torch.bool)
                through.append(log_sum(of_paths[has_arc]) - log_sum(of_paths))
        return torch.stack(through).exp().nan_to_num(0)

    def check(self, found, leaf, expected):
        '''Compare scores, and the gradient of their weighted sum, with a
        reference in float64.

        Args:
          found:
            The scores on mps.
          leaf:
            The scores of arcs on mps, from which ``found`` was computed.
          expected:
            A function that takes the scores of arcs in float64 and returns the
            reference.
        '''
        scores = self.scores.double()
        values = expected(scores)
        assert found.dtype == torch.float32
        # The results, which are below 32, are rounded to float32.
        torch.testing.assert_close(found.detach().cpu().double(), values,
                                   rtol=0, atol=32 * 2**-24 + 1e-7)
        finite = values.isfinite()
        weights = torch.randn(values.shape, dtype=torch.float64)
        found[finite.to('mps')].mul(
            weights[finite].float().to('mps')).sum().backward()
        gradient = differences(
            lambda point: (expected(point) * weights)[finite].sum(), scores)
        # A gradient is a sum of tens of products in float32.
        torch.testing.assert_close(leaf.grad.cpu().double(), gradient,
                                   rtol=1e-5, atol=1e-5)

    def call(self, name, *args):
        '''Call a method of k2.Fsa on mps.  Return its result, and the scores of
        arcs on mps, which require gradients.'''
        leaf = self.scores.clone().to('mps').requires_grad_(True)
        fsas = self.fsas.to('mps')
        fsas.scores = leaf
        return getattr(fsas, name)(*args), leaf

    def test_total_scores(self):
        for use_double in (True, False):
            for log_semiring in (True, False):
                found, leaf = self.call('get_tot_scores', use_double,
                                        log_semiring)
                self.check(found, leaf,
                           lambda scores: self.tot(scores, log_semiring))

    def test_forward_scores(self):
        for use_double in (True, False):
            for log_semiring in (True, False):
                found, leaf = self.call('get_forward_scores', use_double,
                                        log_semiring)
                self.check(found, leaf,
                           lambda scores: self.forward(scores, log_semiring))

    def test_backward_scores(self):
        for use_double in (True, False):
            for log_semiring in (True, False):
                found, leaf = self.call('get_backward_scores', use_double,
                                        log_semiring)
                self.check(found, leaf,
                           lambda scores: self.backward(scores, log_semiring))

    def test_posteriors_of_arcs(self):
        for use_double in (True, False):
            found, leaf = self.call('get_arc_post', use_double, True)
            self.check(found.exp(), leaf, self.posteriors)

    def test_sums_that_float32_rounds(self):
        # The score of each path of an FSA is the same multiple of 2^22 plus a
        # small number.  float32 would round the small number away.
        of_arcs = [2**22 * (arc.dest - arc.src)
                   for arcs in self.arcs for arc in arcs]
        self.scores = torch.tensor(of_arcs) + self.scores.round()
        expected = self.posteriors(self.scores.double()).float()
        found, leaf = self.call('get_tot_scores', True, True)
        found[found.isfinite()].sum().backward()
        # A gradient is a product of four numbers in float32.
        torch.testing.assert_close(leaf.grad.cpu(), expected, rtol=1e-5,
                                   atol=1e-6)
        found, _ = self.call('get_arc_post', True, True)
        torch.testing.assert_close(found.exp().cpu(), expected, rtol=1e-5,
                                   atol=1e-6)

    def test_posteriors_flow_from_state_to_state(self):
        found, _ = self.call('get_arc_post', True, True)
        shares = found.exp().tolist()
        for arcs, size in zip(self.arcs[:-2], self.sizes):
            inflow, outflow = [0.] * size, [0.] * size
            for arc in arcs:
                inflow[arc.dest] += shares[arc.index]
                outflow[arc.src] += shares[arc.index]
            # All paths go through the first state, which no arc enters, and
            # through the last state, which no arc leaves.
            inflow[0] = outflow[-1] = 1.
            for entering, leaving in zip(inflow, outflow):
                self.assertAlmostEqual(entering, leaving, delta=1e-5)


if __name__ == '__main__':
    unittest.main()

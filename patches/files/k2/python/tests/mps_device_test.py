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
from concurrent.futures import ThreadPoolExecutor

import k2
import torch


@unittest.skipIf(k2.with_mps or not hasattr(torch.backends, 'mps'),
                 'k2 was built with mps, or torch is older than mps')
class TestWithoutMps(unittest.TestCase):

    def test_mps_is_refused(self):
        ragged, fsa = k2.RaggedTensor([[1]]), k2.linear_fsa([1])
        for function in (
                fsa.to, ragged.to, ragged.shape.to,
                lambda device: k2.linear_fsa([1], device=device),
                lambda device: k2.RaggedTensor([[1]], device=device)):
            with self.assertRaisesRegex(RuntimeError, 'not built with MPS'):
                function('mps')


@unittest.skipUnless(k2.mps.is_available(), 'there is no mps')
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
        # Memory of this size has to come from Metal.
        large = k2.linear_fsa([[1] * 100] * 10000)
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # if the child waited, it would wait forever
            status = 1
            try:
                for use_mps in (lambda: large.to('mps'),
                                lambda: fsas.get_forward_scores(True, True)):
                    with self.assertRaisesRegex(RuntimeError,
                                                'start processes by spawn'):
                        use_mps()
                status = 0
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_threads_share_a_graph(self):
        # A new graph has no row ids.  A thread that makes them waits for mps,
        # and meanwhile another thread may make them, too.
        expected = str(k2.add_epsilon_self_loops(k2.ctc_topo(30)))
        with ThreadPoolExecutor(4) as threads:
            for _ in range(20):
                graph = k2.ctc_topo(30, device='mps')
                for found in threads.map(k2.add_epsilon_self_loops,
                                         [graph] * 8):
                    assert str(found.to('cpu')) == expected

    def test_losses_of_lattices(self):
        log_probs = torch.randn(2, 50, 10).log_softmax(-1)
        segments = torch.tensor([[0, 0, 50], [1, 0, 40]], dtype=torch.int32)

        def loss_and_gradient(loss, device):
            leaf = log_probs.clone().to(device).requires_grad_(True)
            graph = k2.ctc_graph([[1, 2], [3, 3, 5]], device=device)
            loss(graph, k2.DenseFsaVec(leaf, segments)).backward()
            return leaf.grad.cpu()

        def of_lattice(intersect, *options):
            return lambda graph, dense: intersect(
                graph, dense, *options).get_tot_scores(True, True).sum()

        for loss in (k2.ctc_loss, of_lattice(k2.intersect_dense, 10.),
                     of_lattice(k2.intersect_dense_pruned, 20., 8., 1, 1000)):
            expected = loss_and_gradient(loss, 'cpu')
            assert expected.abs().sum() > 1
            # The gradients are posteriors, whose scores have been rounded to
            # float32 after sums of up to 50 terms.
            assert torch.allclose(loss_and_gradient(loss, 'mps'), expected,
                                  rtol=0, atol=1e-4)

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

    def test_algorithms_that_only_the_cpu_has(self):
        fsa = k2.Fsa.from_str('0 1 1 1\n0 2 1 2\n1 3 -1 0\n2 3 -1 0\n3')
        found = k2.determinize(fsa.to('mps'))
        assert found.device == torch.device('mps', 0)
        assert str(found.to('cpu')) == str(k2.determinize(fsa))

        tokens = k2.RaggedTensor([[[5, 1, 4, 6], [5, 3, 4, 6]]])
        scores = torch.arange(8.)
        counts = torch.tensor([1, 1, 1, 1, 0, 0, 0, 0], dtype=torch.int32)
        stats = [
            k2.get_best_matching_stats(tokens.to(device), scores.to(device),
                                       counts.to(device), 6, 1, 6, 2)
            for device in ('cpu', 'mps')
        ]
        for expected, found in zip(*stats):
            assert found.device.type == 'mps'
            assert torch.equal(found.cpu(), expected)

    def test_losses_without_kernels_are_refused(self):
        px = torch.randn(1, 2, 4, device='mps')
        py = torch.randn(1, 3, 3, device='mps')
        # k2 prints why.
        with self.assertRaises(RuntimeError):
            k2.mutual_information_recursion(px, py)

    def test_swoosh(self):
        x = torch.randn(2, 100)
        for function in (k2.swoosh_l_forward, k2.swoosh_r_forward):
            # Each element is rounded a few times.
            assert torch.allclose(function(x.to('mps')).cpu(), function(x),
                                  rtol=1e-5, atol=1e-6)


class TestEachDevice(unittest.TestCase):
    '''Compares with sums over the two paths of an FSA in double precision.'''

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))
        if k2.mps.is_available():
            cls.devices.append(torch.device('mps', 0))

    # The arcs of each path, and the scores of the arcs.
    PATHS = ((0, 2, 3), (1, 3))
    SCORES = (0.5, 0.25, 0.125, 0.)

    def fsas(self, device):
        return k2.create_fsa_vec([k2.Fsa.from_str(
            '0 1 1 0.5\n0 2 2 0.25\n1 2 3 0.125\n2 3 -1 0\n3')]).to(device)

    def total(self, scores, log_semiring):
        of_paths = torch.stack([scores[list(path)].sum()
                                for path in self.PATHS])
        return of_paths.logsumexp(0) if log_semiring else of_paths.max()

    def prefixes(self, scores, log_semiring):
        '''Return the sums of the paths from state 0 to each state.'''
        first, second = scores[0] + scores[2], scores[1]
        both = torch.stack([first, second])
        middle = both.logsumexp(0) if log_semiring else both.max()
        return torch.stack([0 * first, scores[0], middle, middle + scores[3]])

    def suffixes(self, scores, log_semiring):
        '''Return the sums of the paths from each state to state 3.'''
        last = scores[3]
        return torch.stack([self.total(scores, log_semiring),
                            scores[2] + last, last, 0 * last])

    def posteriors(self, scores):
        shares = torch.stack([scores[list(path)].sum()
                              for path in self.PATHS]).log_softmax(0)
        return torch.stack([shares[0], shares[1], shares[0], 0 * shares[0]])

    def check(self, function, expected):
        '''Compare a function of FSAs, and its gradient, with a function of
        their scores in float64.'''
        scores = torch.tensor(self.SCORES, dtype=torch.float64,
                              requires_grad=True)
        values = expected(scores)
        weights = torch.arange(1., 1 + values.numel(), dtype=torch.float64)
        gradient = torch.autograd.grad(
            (values.reshape(-1) * weights).sum(), scores)[0]
        for device in self.devices:
            fsas = self.fsas(device).requires_grad_(True)
            found = function(fsas)
            assert found.device == device
            (found * weights.to(device, found.dtype)).sum().backward()
            # Values and gradients are sums of a few terms of up to 10 in
            # float32.
            assert torch.allclose(found.detach().cpu().double(),
                                  values.detach().reshape(-1), rtol=0,
                                  atol=1e-5)
            assert torch.allclose(fsas.grad.cpu().double(), gradient, rtol=0,
                                  atol=1e-5)

    def test_scores_and_their_gradients(self):
        for log_semiring in (False, True):
            for use_double in (False, True):
                for name, expected in (
                        ('get_tot_scores', self.total),
                        ('get_forward_scores', self.prefixes),
                        ('get_backward_scores', self.suffixes)):
                    self.check(
                        lambda fsas: getattr(fsas, name)(use_double,
                                                         log_semiring),
                        lambda scores: expected(scores, log_semiring))

    def test_posteriors_and_their_gradients(self):
        for use_double in (False, True):
            self.check(lambda fsas: fsas.get_arc_post(use_double, True),
                       self.posteriors)

    def test_prune_on_arc_post(self):
        # The posteriors of the two paths are 0.59 and 0.41.
        for device in self.devices:
            pruned = k2.prune_on_arc_post(self.fsas(device), 0.5, True)
            assert pruned.device == device
            assert pruned[0].arcs.values()[:, :3].tolist() == [
                [0, 1, 1], [1, 2, 3], [2, 3, -1]]

    def test_random_paths_are_paths(self):
        for device in self.devices:
            paths = k2.random_paths(self.fsas(device), use_double_scores=True,
                                    num_paths=50)
            assert paths.device == device
            assert {tuple(path) for path in paths.tolist()[0]} == {*self.PATHS}

    def test_intersect_with_epsilons(self):
        for device in self.devices:
            if device.type == 'cuda':
                continue  # k2 refuses
            a = k2.Fsa.from_str('0 1 0 0.5\n1 2 1 0.25\n2 3 -1 0\n3')
            b = k2.linear_fsa([1])
            a, b = [k2.arc_sort(fsa).to(device) for fsa in (a, b)]
            a.requires_grad_(True)
            both = k2.intersect(a, b, treat_epsilons_specially=True)
            assert both.device == device
            total = k2.create_fsa_vec([both]).get_tot_scores(False, False)
            total.sum().backward()
            assert total.tolist() == [0.75]
            assert a.grad.tolist() == [1, 1, 1]

    def test_swoosh_and_its_gradient(self):
        x = torch.linspace(-12, 12, 97)
        weights = torch.ones_like(x)
        for function, shift, slope, offset in (
                (k2.swoosh_l, 4, 0.08, 0.035),
                (k2.swoosh_r, 1, 0.08, 0.313261687)):
            exact = x.double().requires_grad_(True)
            expected = (torch.nn.functional.softplus(exact - shift) -
                        slope * exact - offset)
            expected.sum().backward()
            for device in self.devices:
                leaf = x.clone().to(device).requires_grad_(True)
                found = function(leaf, 0.)
                (found * weights.to(device)).sum().backward()
                # Each element is rounded a few times to float32.
                assert torch.allclose(found.detach().cpu().double(),
                                      expected.detach(), rtol=1e-5, atol=1e-6)
                # k2 keeps derivatives, which are between -0.08 and 0.92, in
                # bytes: the steps are about 1 / 255.
                assert torch.allclose(leaf.grad.cpu().double(), exact.grad,
                                      rtol=0, atol=1.1 / 255)


if __name__ == '__main__':
    unittest.main()

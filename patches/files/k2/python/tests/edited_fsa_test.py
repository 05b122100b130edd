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
#  ctest --verbose -R edited_fsa_test_py

import itertools
import threading
import unittest

import k2
import torch


def _lattice(device):
    fsa = k2.Fsa.from_str('0 1 1 0.1\n0 1 2 0.7\n1 2 3 -0.3\n1 2 1 0.4\n'
                          '2 3 -1 0.2\n3')
    # The scores of this object are in the memory of its arcs, which no other
    # object has.
    return k2.Fsa(k2.create_fsa_vec([fsa, fsa]).arcs.clone().to(device))


def _graphs(device):
    return k2.ctc_graph([[1, 2], [3]], device=device)


def _weighted(scores):
    weights = torch.arange(1., len(scores) + 1, device=scores.device)
    return (scores * weights).sum()


def _dense(device):
    torch.manual_seed(1)
    segments = torch.tensor([[0, 0, 5], [1, 0, 5]], dtype=torch.int32)
    return k2.DenseFsaVec(
        torch.randn(2, 5, 4).log_softmax(-1).to(device), segments)


def _tot_scores(fsas, *options):
    return _weighted(fsas.get_tot_scores(*options))


def _forward_scores(fsas, *options):
    return _weighted(fsas.get_forward_scores(*options))


def _backward_scores(fsas, *options):
    return _weighted(fsas.get_backward_scores(*options))


def _arc_post(fsas, *options):
    return _weighted(fsas.get_arc_post(*options))


def _ctc_loss(graphs, use_double, unused):
    return k2.ctc_loss(graphs, _dense(graphs.device), output_beam=100,
                       use_double_scores=use_double)


def _intersect_dense(graphs, *options):
    lattice = k2.intersect_dense(graphs, _dense(graphs.device), 100)
    return _tot_scores(lattice, *options)


def _intersect_dense_pruned(graphs, *options):
    lattice = k2.intersect_dense_pruned(graphs, _dense(graphs.device), 100, 100,
                                        1, 10000)
    return _tot_scores(lattice, *options)


def _index_fsa(fsas, *options):
    index = torch.tensor([1, 0, 1], dtype=torch.int32, device=fsas.device)
    return _tot_scores(k2.index_fsa(fsas, index), *options)


# A function that makes the FSAs, a function with a gradient, and the arguments
# use_double_scores and log_semiring of the second function.
FUNCTIONS = [(_lattice, function, options) for function in (
    _tot_scores, _forward_scores, _backward_scores, _arc_post)
    for options in ((True, True), (True, False), (False, True))]
FUNCTIONS += [(make, function, (True, True)) for make, function in (
    (_lattice, _index_fsa), (_graphs, _ctc_loss), (_graphs, _intersect_dense),
    (_graphs, _intersect_dense_pruned))]


def _other_scores(fsas):
    return torch.arange(fsas.num_arcs, device=fsas.device) % 3 - 1.5


def _other_labels(fsas):
    return torch.where(fsas.labels == 3, 2, fsas.labels)


def _assign_scores(fsas):
    fsas.scores = _other_scores(fsas)


def _assign_twice(fsas):
    fsas.scores = fsas.scores.detach() - 1
    fsas.scores = _other_scores(fsas)


def _assign_labels(fsas):
    fsas.labels = _other_labels(fsas)


def _assign_both(fsas):
    fsas.labels = _other_labels(fsas)
    fsas.scores = _other_scores(fsas)


def _assign_attribute(fsas):
    fsas.aux_labels = fsas.labels.clone()


def _invert(fsas):
    fsas.aux_labels = _other_labels(fsas)
    fsas.invert_()


def _detached(fsas):
    # detach() shares the memory of the arcs.
    fsas.detach().scores = _other_scores(fsas)


def _same_arcs(fsas):
    k2.Fsa(fsas.arcs).labels = _other_labels(fsas)


def _one_fsa(fsas):
    # A single Fsa shares the memory of the FsaVec.
    one = fsas[0]
    one.scores = _other_scores(one)


def _detached_one(fsas):
    one = fsas.detach()[0]
    one.scores = _other_scores(one)
    one.labels = _other_labels(one)


def _parts(fsas):
    for i in range(fsas.shape[0]):
        part = fsas[i]
        part.labels = _other_labels(part)
        k2.arc_sort(part)


def _change_labels(fsas):
    # An error of k2 suggests to change labels in this way.
    labels = fsas.labels
    labels[labels == 3] = 2
    fsas.labels = labels


def _change_scores(fsas):
    with torch.no_grad():
        fsas.scores -= _other_scores(fsas)


def _change_detached_scores(fsas):
    fsas.scores.detach().mul_(-3)


def _change_some_scores(fsas):
    fsas.scores.detach()[::2] = 5


def _change_one_fsa(fsas):
    fsas[1].scores.detach().mul_(-3)


def _change_other_fsa(fsas):
    fsas.detach().scores.add_(1)


def _change_same_arcs(fsas):
    labels = k2.Fsa(fsas.arcs).labels
    labels[labels == 3] = 2


def _change_arcs(fsas):
    fsas.arcs.values()[:, 3] = 0


ASSIGNED = [_assign_scores, _assign_twice, _assign_labels, _assign_both,
            _assign_attribute, _invert]
SHARED = [_detached, _same_arcs, _one_fsa, _detached_one, _parts]
IN_PLACE = [_change_labels, _change_scores, _change_detached_scores,
            _change_some_scores, _change_one_fsa, _change_other_fsa,
            _change_same_arcs, _change_arcs]


def _make(make, device, is_view):
    '''Return FSAs, and the leaf that gets the gradient of their scores.'''
    fsas = make(device)
    if is_view:  # of the memory of the arcs
        return fsas.requires_grad_(True), fsas.scores
    leaf = fsas.scores.detach().clone().requires_grad_(True)
    fsas.scores = leaf * 1.0
    return fsas, leaf


class TestEditedFsa(unittest.TestCase):
    '''Gradients are those of the scores and labels of the forward pass.'''

    @classmethod
    def setUpClass(cls):
        cls.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            cls.devices.append(torch.device('cuda', 0))

    def each_case(self):
        return itertools.product(self.devices, FUNCTIONS, (True, False))

    def test_edit_between_forward_and_backward(self):
        for device, (make, function, options), is_view in self.each_case():
            fsas, leaf = _make(make, device, is_view)
            function(fsas, *options).backward()
            for edit in ASSIGNED + SHARED + IN_PLACE:
                fsas, other = _make(make, device, is_view)
                loss = function(fsas, *options)
                edit(fsas)
                name = (device, function.__name__, options, is_view,
                        edit.__name__)
                with self.subTest(name):
                    if edit in IN_PLACE:
                        try:
                            loss.backward()
                        except RuntimeError as error:
                            self.assertIn('inplace operation', str(error))
                            continue
                    else:
                        loss.backward()
                    torch.testing.assert_close(other.grad, leaf.grad, rtol=0,
                                               atol=0)

    def test_edit_between_two_losses(self):
        for device, (make, function, options), is_view in self.each_case():
            for edit in ASSIGNED:
                expected = []
                for edit_first in (False, True):
                    fsas, leaf = _make(make, device, is_view)
                    if edit_first:
                        edit(fsas)
                    loss = function(fsas, *options)
                    leaf.grad = None
                    if loss.requires_grad:
                        loss.backward()
                    expected.append((loss.item(), leaf.grad))

                fsas, leaf = _make(make, device, is_view)
                first = function(fsas, *options)
                edit(fsas)
                second = function(fsas, *options)
                name = (device, function.__name__, options, is_view,
                        edit.__name__)
                with self.subTest(name):
                    found = []
                    for loss in (first, second):
                        leaf.grad = None
                        if loss.requires_grad:
                            loss.backward(retain_graph=True)
                        found.append((loss.item(), leaf.grad))
                    for one, other in zip(found, expected):
                        self.assertEqual(one[0], other[0])
                        torch.testing.assert_close(one[1], other[1], rtol=0,
                                                   atol=0)

    def test_cache_follows(self):
        '''After an edit, an Fsa has the scores of an Fsa that was never
        edited.'''
        for device, is_view in itertools.product(self.devices, (True, False)):
            for edit in (_assign_scores, _change_scores,
                         _change_detached_scores, _change_some_scores):
                fsas, _ = _make(_lattice, device, is_view)
                for log in (True, False):
                    fsas.get_arc_post(True, log)
                    k2.shortest_path(fsas, True)
                edit(fsas)
                fresh = _lattice(device)
                fresh.scores = fsas.scores.detach().clone()
                with self.subTest((device, edit.__name__, is_view)):
                    self.assertEqual(str(fsas.arcs), str(fresh.arcs))
                    for function, log in itertools.product(
                            (_tot_scores, _forward_scores, _backward_scores,
                             _arc_post), (True, False)):
                        self.assertEqual(function(fsas, True, log).item(),
                                         function(fresh, True, log).item())
                    self.assertEqual(
                        k2.shortest_path(fsas, True).labels.tolist(),
                        k2.shortest_path(fresh, True).labels.tolist())

    def test_cache_follows_another_fsa(self):
        '''Two objects with the same arcs see an operation in place.'''
        for device in self.devices:
            for edit in (_change_one_fsa, _change_other_fsa, _change_arcs):
                fsas = _lattice(device)
                before = _tot_scores(fsas, True, True).item()
                edit(fsas)
                fresh = k2.Fsa(fsas.arcs.clone())
                with self.subTest((device, edit.__name__)):
                    self.assertEqual(fsas.scores.tolist(),
                                     fresh.scores.tolist())
                    after = _tot_scores(fsas, True, True).item()
                    self.assertNotEqual(before, after)
                    self.assertEqual(after,
                                     _tot_scores(fresh, True, True).item())

            fsas = _lattice(device)
            _change_same_arcs(fsas)
            with self.assertRaisesRegex(RuntimeError, 'labels'):
                fsas.properties

            # The new arcs of `fsas` do not hide a change of the labels.
            fsas, _ = _make(_lattice, device, False)
            other = fsas.detach()
            fsas.labels[0] = 3
            other.scores.zero_()
            for _ in range(2):
                with self.assertRaisesRegex(RuntimeError, 'labels'):
                    fsas.arcs

    def test_assignments_are_not_shared(self):
        for device, is_view in itertools.product(self.devices, (True, False)):
            for edit in SHARED:
                fsas, _ = _make(_lattice, device, is_view)
                text, properties = str(fsas), fsas.properties
                before = _tot_scores(fsas, True, True).item()
                edit(fsas)
                with self.subTest((device, edit.__name__, is_view)):
                    self.assertEqual(str(fsas), text)
                    self.assertEqual(fsas.properties, properties)
                    self.assertEqual(_tot_scores(fsas, True, True).item(),
                                     before)

    def test_two_fsas_of_one_dict(self):
        for device in self.devices:
            for fsas in (_lattice(device), _lattice(device)[0]):
                saved = fsas.as_dict()
                one, other = k2.Fsa.from_dict(saved), k2.Fsa.from_dict(saved)
                text = str(fsas)
                _assign_both(one)
                self.assertNotEqual(str(one), text)
                third = k2.Fsa.from_dict(saved)
                self.assertEqual([str(other), str(third), str(fsas)],
                                 [text] * 3)

            saved = _lattice(device).as_dict()
            one, other = k2.Fsa.from_dict(saved), k2.Fsa.from_dict(saved)
            loss = _tot_scores(other.requires_grad_(True), True, True)
            one.scores.mul_(3)
            with self.assertRaisesRegex(RuntimeError, 'inplace operation'):
                loss.backward()
            fresh = k2.Fsa(other.arcs.clone())
            self.assertEqual(_tot_scores(other, True, True).item(),
                             _tot_scores(fresh, True, True).item())

    def test_assigned_scores_stay(self):
        '''Scores that were assigned stay, whatever happens to the arcs.'''
        for device in self.devices:
            fsas, leaf = _make(_lattice, device, False)
            other = fsas.detach()
            expected = _tot_scores(fsas, True, True).item()
            other.scores.copy_(_other_scores(other))
            self.assertEqual(_tot_scores(fsas, True, True).item(), expected)
            self.assertEqual(fsas.scores.tolist(), leaf.tolist())
            self.assertEqual(other.scores.tolist(),
                             _other_scores(other).tolist())
            self.assertNotEqual(_tot_scores(other, True, True).item(), expected)

            # An assignment of labels copies the arcs, which have other scores.
            fsas, leaf = _make(_lattice, device, False)
            fsas.detach().scores.zero_()
            fsas.labels = fsas.labels.clone()
            self.assertEqual(_tot_scores(fsas, True, True).item(), expected)

    def test_torch_sees_an_assignment(self):
        '''torch has saved scores.  k2 must not write others into their memory.
        '''
        for device in self.devices:
            fsas = _lattice(device).requires_grad_(True)
            leaf = fsas.scores
            loss = (fsas.scores**2).sum()
            fsas.scores = _other_scores(fsas)
            loss.backward()
            self.assertEqual(leaf.grad.tolist(), (2 * leaf).tolist())

            fsas = _lattice(device)
            weight = torch.ones(fsas.num_arcs, device=device,
                                requires_grad=True)
            scores = fsas.scores.tolist()
            loss = (fsas.scores * weight).sum()
            fsas.scores = _other_scores(fsas)
            loss.backward()
            self.assertEqual(weight.grad.tolist(), scores)

    def test_an_assignment_leaves_the_old_scores(self):
        for device in self.devices:
            fsas = _lattice(device)
            old = fsas.scores
            scores = old.tolist()
            tot_scores = _tot_scores(fsas, True, True).item()
            other = fsas.clone()
            other.scores = fsas.scores
            fsas.scores = fsas.scores * 2
            self.assertEqual(old.tolist(), scores)
            self.assertEqual(_tot_scores(other, True, True).item(), tot_scores)
            fsas.scores = old
            self.assertEqual(_tot_scores(fsas, True, True).item(), tot_scores)

    def test_a_graph_without_a_gradient_gets_other_scores(self):
        for device in self.devices:
            for function in (k2.intersect_dense, k2.ctc_loss):
                gradients = []
                for edit in (False, True):
                    graphs, dense = _graphs(device), _dense(device)
                    leaf = dense.scores.requires_grad_(True)
                    ans = function(graphs, dense, output_beam=100)
                    loss = (ans if function is k2.ctc_loss else
                            _tot_scores(ans, True, True))
                    if edit:
                        graphs.scores = graphs.scores * 0.3
                    loss.backward()
                    gradients.append(leaf.grad.tolist())
                self.assertEqual(*gradients)

    def test_labels_of_two_fsas_of_one_dict(self):
        for device in self.devices:
            saved = _graphs(device).as_dict()
            graphs, others = k2.Fsa.from_dict(saved), k2.Fsa.from_dict(saved)
            graphs.labels[graphs.labels == 3] = 2
            with self.assertRaisesRegex(RuntimeError, 'labels'):
                others.properties

    def test_threads_read_scores_that_have_changed(self):
        for device in self.devices:
            fsas = k2.linear_fsa([[1] * 300] * 20, device=device)
            fsas.scores = leaf = fsas.scores.clone()
            for value in range(1, 21):
                leaf.fill_(value)
                barrier = threading.Barrier(3)
                found = []

                def read():
                    barrier.wait()
                    found.append(fsas.get_tot_scores(True, True).tolist())

                threads = [threading.Thread(target=read) for _ in range(3)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                self.assertEqual(found, [[301. * value] * 20] * 3)

    def test_scores_times_a_learned_scale(self):
        for device in self.devices:
            fsas = _lattice(device)
            scores = fsas.scores.tolist()
            scale = torch.tensor(2., device=device, requires_grad=True)
            fsas.scores = fsas.scores * scale
            fsas.scores.sum().backward()
            self.assertAlmostEqual(scale.grad.item(), sum(scores), places=3)

    def test_type_of_an_attribute_changes(self):
        for device in self.devices:
            fsas = _lattice(device)
            fsas.aux_labels = fsas.labels.clone()
            for value in (3, fsas.labels.clone(), 'text'):
                fsas.aux_labels = value
                self.assertIs(fsas.aux_labels, value)
                self.assertEqual(
                    'aux_labels' in dict(fsas.named_tensor_attr()),
                    isinstance(value, torch.Tensor))
            with self.assertRaisesRegex(AssertionError, 'must be a tensor'):
                fsas.scores = 3

    def test_unedited_arcs_are_not_copied(self):
        for device in self.devices:
            fsas, leaf = _make(_lattice, device, False)
            arcs = fsas.arcs
            loss = _tot_scores(fsas, True, True)
            fsas.aux_labels = fsas.labels.clone()
            loss.backward()
            del loss
            # No backward pass needs the arcs any more.
            fsas.scores = _other_scores(fsas)
            self.assertIs(fsas.arcs, arcs)


if __name__ == '__main__':
    unittest.main()

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
#  ctest --verbose -R state_scores_test_py

import math
import random
import unittest

import k2
import torch


def random_fsa(rng, num_states):
    '''Return an acyclic FSA in k2's text format, and its arcs as tuples.

    Scores are multiples of 1/4, so that sums are exact and many paths have
    equal scores.  Some states have no leaving arc.
    '''
    arcs = []
    for state in range(num_states - 1):
        for _ in range(rng.randrange(1 if state == 0 else 0, 4)):
            dest = rng.randrange(state + 1, num_states)
            arcs.append((state, dest, -1 if dest == num_states - 1 else 1,
                         rng.randrange(-4, 5) / 4))
    lines = [' '.join(map(str, arc)) for arc in arcs]
    return '\n'.join(lines + [str(num_states - 1)]), arcs


def definition(arcs, num_states, forward, log_semiring):
    '''Compute in Python the score of each state, by the score's definition.'''
    scores = [-math.inf] * num_states
    scores[0 if forward else -1] = 0.0
    states = range(num_states)
    for state in states if forward else reversed(states):
        here, there = (1, 0) if forward else (0, 1)
        found = [scores[arc[there]] + arc[3] for arc in arcs
                 if arc[here] == state]
        if not found or max(found) == -math.inf:
            continue
        best = max(found)
        if log_semiring:
            best += math.log(sum(math.exp(x - best) for x in found))
        scores[state] = best
    return scores


class TestStateScores(unittest.TestCase):

    def setUp(self):
        self.devices = [torch.device('cpu')]
        if torch.cuda.is_available() and k2.with_cuda:
            self.devices.append(torch.device('cuda', 0))

    def test_scores_are_those_of_the_definition(self):
        rng = random.Random(20261122)
        sizes = [2, 3, 12, 40]
        made = [random_fsa(rng, n) for n in sizes]
        cpu_fsas = k2.create_fsa_vec([k2.Fsa.from_str(text)
                                      for text, _ in made])
        for device in self.devices:
            fsas = cpu_fsas.to(device)
            for forward in (True, False):
                for log_semiring in (True, False):
                    expected = torch.tensor(
                        sum((definition(arcs, n, forward, log_semiring)
                             for (_, arcs), n in zip(made, sizes)), []),
                        dtype=torch.float64)
                    for double in (True, False):
                        get = (fsas.get_forward_scores if forward
                               else fsas.get_backward_scores)
                        given = get(double, log_semiring)
                        # Sums of scores are exact, but the log semiring rounds
                        # sums of exponentials.
                        tolerance = (100 * torch.finfo(given.dtype).eps
                                     if log_semiring else 0)
                        assert torch.allclose(
                            given.cpu().to(torch.float64), expected,
                            rtol=tolerance, atol=tolerance)

    def test_the_last_of_equal_arcs_is_the_best(self):
        '''The test runs only on the CPU, because a GPU can choose any of the
        paths of equal score.'''
        text = '0 1 1 0.5\n0 1 2 0.25\n0 1 3 0.5\n1 2 -1 0\n1 2 -1 0\n2'
        fsas = k2.create_fsa_vec([k2.Fsa.from_str(text)])
        fsas.requires_grad_(True)
        fsas.get_tot_scores(False, False).sum().backward()
        assert fsas.grad.tolist() == [0, 0, 1, 0, 1]


if __name__ == '__main__':
    unittest.main()

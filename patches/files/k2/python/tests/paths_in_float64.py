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

# Reference results for the tests of mps.  Python computes these results in
# double precision, from all paths of small FSAs.

import itertools
import math
import random
from typing import Callable
from typing import Iterator
from typing import List
from typing import NamedTuple
from typing import Optional
from typing import Set
from typing import Tuple

import k2
import torch


class Arc(NamedTuple):
    src: int
    dest: int
    label: int
    index: int  # the index among all arcs of the FsaVec


# The arcs of a path, from its first to its last one.
Path = Tuple[Arc, ...]


def arcs_of(fsas: k2.Fsa) -> List[List[Arc]]:
    '''Return the arcs of each FSA of an FsaVec.'''
    rows = fsas.arcs.values()[:, :3].tolist()
    begins = fsas.arcs.shape().remove_axis(1).row_splits(1).tolist()
    return [[Arc(*rows[i], i) for i in range(begin, end)]
            for begin, end in zip(begins, begins[1:])]


def num_states(fsas: k2.Fsa) -> List[int]:
    '''Return the number of states of each FSA of an FsaVec.'''
    begins = fsas.arcs.row_splits(1).tolist()
    return [end - begin for begin, end in zip(begins, begins[1:])]


def paths(arcs: List[Arc], begin: int, end: int,
          length: Optional[int] = None) -> Iterator[Path]:
    '''Yield the paths from one state to another.

    Args:
      arcs:
        The arcs of an FSA.  The FSA must have no cycle if `length` is None.
      length:
        The number of arcs of each path; None for paths of any length.
    '''
    if begin == end and not length:
        yield ()
    if length == 0:
        return
    left = None if length is None else length - 1
    for arc in arcs:
        if arc.src == begin:
            for rest in paths(arcs, arc.dest, end, left):
                yield (arc, *rest)


# The source of an arc of a lattice: a frame, and the index of an arc of the
# graphs.
Source = Tuple[int, int]


def sources_of(lattices: k2.Fsa) -> List[Source]:
    '''Return the source of each arc.  The attributes ``frame`` and
    ``arc_index`` of the lattices contain the sources.'''
    return list(zip(lattices.frame.tolist(), lattices.arc_index.tolist()))


def paths_by_source(lattices: k2.Fsa) -> List[List[List[Source]]]:
    '''Return a sorted list of the paths of each lattice.  A path is a list of
    the sources of its arcs.'''
    sources = sources_of(lattices)
    return [
        sorted([sources[arc.index] for arc in path]
               for path in paths(arcs, 0, size - 1))
        for arcs, size in zip(arcs_of(lattices), num_states(lattices))
    ]


def log_sum(scores: torch.Tensor, log_semiring: bool = True) -> torch.Tensor:
    '''Return log(sum(exp(scores))), or the largest score in the tropical
    semiring; -infinity if there are no scores.'''
    if scores.numel() == 0:
        return scores.new_tensor(-float('inf'))
    return scores.logsumexp(0) if log_semiring else scores.max()


def differences(function: Callable, point: torch.Tensor) -> torch.Tensor:
    '''Return the gradient of a function by central differences.

    Steps are 1e-5.  If values are below 1e3, the error is about 1e-8: the
    rounding error is 1e3 * 2^-52 / 1e-5, and the third derivative adds less.

    Args:
      function:
        A function that takes a tensor of the shape of `point` and returns a
        number.
      point:
        A tensor of torch.float64.
    '''
    step = 1e-5
    ans = torch.zeros(point.shape, dtype=torch.float64)
    for index in itertools.product(*map(range, point.shape)):
        moved = torch.zeros_like(ans)
        moved[index] = step
        ans[index] = (function(point + moved) -
                      function(point - moved)) / (2 * step)
    return ans


class Intersection:
    '''The paths of a graph and a sequence that intersect_dense must find.

    All scores are small multiples of 1/64, so sums are exact in any precision
    and order.  The beam is not a multiple of 1/64, so no path is exactly at the
    limit of the beam.
    '''

    def __init__(self, arcs: List[Arc], num_states: int, num_frames: int,
                 a_scores: torch.Tensor, b_scores: torch.Tensor, beam: float,
                 search_beam: float = math.inf):
        '''
        Args:
          arcs:
            The arcs of the graph.
          num_states, num_frames:
            The number of states of the graph; the number of frames of the
            sequence.
          a_scores:
            The scores of all arcs of the FsaVec.
          b_scores:
            The scores of the sequence, indexed by frame and label.
          beam:
            The output beam.
          search_beam:
            The beam of the search from frame to frame.
        '''
        self.num_frames = num_frames
        found = self._found(arcs, a_scores.tolist(), b_scores.tolist(),
                            search_beam)
        self.paths = [
            path for path in paths(arcs, 0, num_states - 1, num_frames + 1)
            if found.issuperset(enumerate(path))]
        scores = self._scores(a_scores, b_scores).tolist()
        # The pairs (frame, arc) of all paths within the beam.
        self.kept = {
            arc
            for path, score in zip(self.paths, scores)
            if score > max(scores) - beam for arc in enumerate(path)
        }
        self.paths = [path for path in self.paths
                      if self.kept.issuperset(enumerate(path))]

    def _found(self, arcs: List[Arc], a_scores: List[float],
               b_scores: List[List[float]], search_beam: float
               ) -> Set[Tuple[int, Arc]]:
        '''Return the pairs (frame, arc) that a search finds.  In each frame,
        the search finds the states whose best path is within the beam, and all
        arcs that enter these states.  It finds the final state in any case.'''
        found = set()
        best_of_state = {0: 0.}
        for frame in range(self.num_frames + 1):
            # The arcs to the final state follow the last frame.
            is_last = frame == self.num_frames
            ends = {
                arc: best_of_state[arc.src] + a_scores[arc.index] +
                (0 if is_last else b_scores[frame][arc.label])
                for arc in arcs
                if arc.src in best_of_state and (arc.label == -1) == is_last}
            limit = max(ends.values(), default=0) - search_beam
            best_of_state = {}
            for arc, end in ends.items():
                if is_last or end > limit:
                    best_of_state[arc.dest] = max(
                        end, best_of_state.get(arc.dest, end))
            found |= {(frame, arc) for arc in ends if arc.dest in best_of_state}
        return found

    def paths_by_source(self) -> List[List[Source]]:
        '''Return the paths as :func:`paths_by_source` does.'''
        return sorted([(frame, arc.index) for frame, arc in enumerate(path)]
                      for path in self.paths)

    def _scores(self, a_scores: torch.Tensor, b_scores: torch.Tensor
                ) -> torch.Tensor:
        '''Return the score of each path.'''
        shape = len(self.paths), self.num_frames + 1
        indexes = torch.tensor([[arc.index for arc in path]
                                for path in self.paths], dtype=torch.int64)
        labels = torch.tensor([[arc.label for arc in path]
                               for path in self.paths], dtype=torch.int64)
        # The last arc of a path enters the final state after the last frame, so
        # no frame adds a score to this arc.
        frames = torch.arange(self.num_frames)
        return (a_scores[indexes.view(shape)].sum(1) +
                b_scores[frames, labels.view(shape)[:, :-1]].sum(1))

    def total(self, a_scores: torch.Tensor, b_scores: torch.Tensor
              ) -> torch.Tensor:
        '''Return the log_sum() of the scores of self.paths, with these scores
        of the arcs and the frames.'''
        return log_sum(self._scores(a_scores, b_scores))


class IntersectionCases:
    '''Random graphs and sequences, to make several :class:`Intersection`.'''

    beams = (100.01, 3.01, 0.51)

    def __init__(self, seed: int):
        torch.manual_seed(seed)
        chance = random.Random(seed)
        # The longest sequence is first, and the last has no frame.
        self.num_frames = [5, 4, 4, 0]
        # The sequence of each graph.
        self.sequences = [0, 1, 2, 3]
        self.graphs = k2.create_fsa_vec([
            k2.ctc_graph([[1, 1, 2]])[0], k2.ctc_graph([[3, 2, 3, 3]])[0],
            *(self._graph(chance) for _ in range(2))])
        self.graphs.scores = self._scores(self.graphs.num_arcs)
        self.log_probs = self._scores(4, 5, 5)

    @staticmethod
    def _scores(*shape: int) -> torch.Tensor:
        return torch.randint(-128, 129, shape) / 64

    @staticmethod
    def _graph(chance: random.Random) -> k2.Fsa:
        '''Return a random graph.  The graph can have cycles, and states that
        are on no path.'''
        final = chance.randint(3, 5)
        arcs = {(state, chance.randrange(final), chance.randrange(5))
                for state in range(final) for _ in range(3)}
        arcs |= {(chance.randrange(final), final, -1) for _ in range(2)}
        lines = [f'{src} {dest} {label} 0' for src, dest, label in sorted(arcs)]
        return k2.Fsa.from_str('\n'.join([*lines, str(final)]))

    def dense(self, log_probs: torch.Tensor) -> k2.DenseFsaVec:
        segments = [[i, 0, frames] for i, frames in enumerate(self.num_frames)]
        return k2.DenseFsaVec(log_probs,
                              torch.tensor(segments, dtype=torch.int32))

    def expected(self, beam: float) -> List[Intersection]:
        '''Return the intersection of each graph with its sequence.'''
        a_scores = self.graphs.scores.double()
        b_scores = self.log_probs.double()
        return [
            Intersection(arcs, size, self.num_frames[seq], a_scores,
                         b_scores[seq], beam)
            for arcs, size, seq in zip(arcs_of(self.graphs),
                                       num_states(self.graphs), self.sequences)
        ]


class SumsOfLattices:
    '''Tests of lattices' scores, for a unittest.TestCase.

    The TestCase has intersect(cases, beam), which returns lattices, and the
    graphs and log-probs that they were made from.  The graphs and the log-probs
    are on mps and require gradients.
    '''

    def each_case(self):
        '''Yield (cases, beam), for random cases and several beams each.'''
        for seed in range(5):
            cases = IntersectionCases(seed)
            # An arc of a lattice inherits this attribute from the arc of the
            # graphs that it was made from.
            cases.graphs.arc_index = torch.arange(cases.graphs.num_arcs,
                                                  dtype=torch.int32)
            for beam in cases.beams:
                yield cases, beam

    def test_scores_are_sums_of_both_inputs(self):
        for cases, beam in self.each_case():
            lattices = self.intersect(cases, beam)[0]
            sources, scores = sources_of(lattices), lattices.scores.tolist()
            a_scores = cases.graphs.scores.tolist()
            for arcs, rows in zip(arcs_of(lattices), cases.log_probs.tolist()):
                for arc in arcs:
                    frame, source = sources[arc.index]
                    # The scores after the last frame are 0.
                    b_score = rows[frame][arc.label] if arc.label >= 0 else 0
                    assert scores[arc.index] == a_scores[source] + b_score

    def test_gradients_are_sums_over_arcs(self):
        for cases, beam in self.each_case():
            lattices, graphs, log_probs = self.intersect(cases, beam)
            # The weights are whole numbers, so their sums are exact.
            weights = torch.randint(-8, 9, lattices.scores.shape).float()
            (lattices.scores * weights.to('mps')).sum().backward()
            of_graphs = torch.zeros(graphs.scores.shape)
            of_frames = torch.zeros(log_probs.shape)
            sources = sources_of(lattices)
            for seq, arcs in enumerate(arcs_of(lattices)):
                for arc in arcs:
                    frame, source = sources[arc.index]
                    of_graphs[source] += weights[arc.index]
                    if arc.label >= 0:
                        of_frames[seq, frame, arc.label] += weights[arc.index]
            assert torch.equal(graphs.grad.cpu(), of_graphs)
            assert torch.equal(log_probs.grad.cpu(), of_frames)

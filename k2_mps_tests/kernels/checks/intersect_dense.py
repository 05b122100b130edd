"""Cases of intersect_dense.

The reference extends all paths by one frame at a time.  The reference adds in float32 and in the
kernel's order.  A maximum does not depend on the order.  So results must be equal.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from k2_mps_tests.kernels.case import UNTOUCHED, Buffer, Case, ints
from k2_mps_tests.kernels.graphs import NEVER, Graphs, forward_or_backward, with_padding
from k2_mps_tests.kernels.sources import enumeration, enumerators, layout

Number = enumeration("intersect_dense.h", "IntersectDenseBuffer")
PARAMS = layout("intersect_dense.h", "IntersectDenseParams")
SIZES = enumerators("intersect_dense.h")
MAX_THREADS = SIZES["kIdMaxThreads"]
CACHED = SIZES["kIdMaxCachedStates"]


class Shape(NamedTuple):
    """The sizes of a batch of graphs and sequences."""

    states: list  # the number of states of each FSA
    arcs: int  # the number of arcs that leave each state
    frames: list  # the number of frames of each sequence
    width: int = 1  # the number of lanes that compute a state together


# Some numbers of states are near CACHED, the limit of threadgroup memory.  Some states have more
# arcs than a lane keeps in registers.
SHAPES = [
    Shape(states=[2], arcs=1, frames=[1], width=1),
    Shape(states=[2, 3], arcs=2, frames=[3, 1], width=1),
    Shape(states=[40, 7, 33], arcs=3, frames=[9, 8, 2], width=1),
    Shape(states=[CACHED - 1], arcs=2, frames=[4], width=1),
    Shape(states=[CACHED], arcs=2, frames=[4], width=1),
    Shape(states=[CACHED + 1], arcs=2, frames=[4], width=1),
    Shape(states=[2 * CACHED + 5, 3], arcs=3, frames=[3, 3], width=1),
    Shape(states=[60, 50], arcs=8, frames=[6, 5], width=2),
    Shape(states=[33, 32], arcs=17, frames=[5, 5], width=4),
    Shape(states=[70, 2], arcs=40, frames=[4, 1], width=8),
    Shape(states=[40], arcs=64, frames=[4], width=16),
    Shape(states=[35, 31], arcs=130, frames=[4, 3], width=32),
    Shape(states=[CACHED + 1, 40], arcs=9, frames=[3, 2], width=2),
    Shape(states=[5, 0, 3], arcs=2, frames=[4, 3, 2], width=1),
]
SYMBOLS = 6
COLUMNS = SYMBOLS + 1  # column 0 is for label -1


def cases():
    for shape in SHAPES:
        yield _case("{} states, {} arcs, {} frames, {} lanes".format(*shape), shape)
    shape = Shape(states=[5, 9, 4], arcs=3, frames=[7, 4])
    yield _case("one sequence for several FSAs", shape, a_to_b=[0, 0, 1])
    shape = Shape(states=[12, 9], arcs=3, frames=[7, 4])
    yield _case("no numbers", shape, values=[np.nan, np.inf, -np.inf])
    for padded in (False, True):
        name = f"labels without scores, padded {padded}"
        yield _case(name, shape, labels=SYMBOLS + 3, padded=padded)
    for states in ([40, 7], [CACHED + 1, 7]):
        name = f"{states} states, frames 0 to 2, 3, and 4 to 8"
        yield _case(name, Shape(states, arcs=3, frames=[9, 4]), parts=(0, 3, 4, 9))


def _case(name, shape, a_to_b=None, values=(), labels=SYMBOLS, parts=None, padded=True):
    """Returns a case of one launch for all frames, or of several launches.

    Args:
      a_to_b: the sequence of each FSA; None: each FSA has its own sequence.
      values: numbers that some scores of frames get.
      labels: the labels of arcs are less than this number.
      parts: a list of frames; a launch goes from each frame of the list to the next one.  None: one
        launch.
      padded: whether the rows of scores have more elements than columns.
    """
    states, num_arcs, frames, width = shape
    if a_to_b is None:
        a_to_b = range(len(states))
    random = np.random.default_rng([sum(states), num_arcs, sum(frames)])
    graphs = Graphs.random(random, states, num_arcs, labels)
    state_begins = graphs.state_begins

    b_begins = np.cumsum([0, *frames])
    scores = random.standard_normal((b_begins[-1], COLUMNS)).astype(np.float32)
    for value in values:
        scores[random.integers(len(scores)), random.integers(SYMBOLS)] = value
    if padded:
        scores = with_padding(scores)
    num_states = state_begins[-1]
    params = [
        Buffer.struct(
            PARAMS,
            stride=scores.shape[1],
            num_columns=COLUMNS,
            num_states=num_states,
            width=width,
            first_row=first,
            last_row=last,
        )
        for first, last in pairwise(parts or (0, max(frames)))
    ]
    threads = min(MAX_THREADS, -(-max(states) * width // 32) * 32)
    buffers = {
        Number.kIdArcs: Buffer(graphs.arcs.view(np.int32)),
        Number.kIdStateBegins: ints(state_begins),
        Number.kIdLeavingBegins: ints(graphs.leaving_begins),
        Number.kIdIncomingBegins: ints(graphs.incoming_begins),
        Number.kIdIncoming: ints(graphs.incoming),
        Number.kIdBScores: Buffer(scores),
        Number.kIdBBegins: ints(b_begins),
        Number.kIdAToBMap: ints(a_to_b),
        Number.kIdStateScores: Buffer.output(_state_scores(graphs, scores, b_begins, a_to_b)),
        Number.kIdParams: params[0],
    }
    groups = 2 * len(states)
    more = [(groups, {Number.kIdParams: other}) for other in params[1:]]
    return Case(name, "intersect_dense", groups, threads, buffers, more)


def _state_scores(graphs, scores, b_begins, a_to_b):
    """Returns the expected scores: for each frame, and each FSA, of its states in both passes.

    Args:
      b_begins: the first row of `scores` of each sequence, and the number of rows.
      a_to_b: the sequence of each FSA.
    """
    frames = np.diff(b_begins)
    begins = graphs.state_begins
    expected = np.full((max(frames) + 1, 2 * begins[-1]), UNTOUCHED, np.float32)
    for fsa, b in enumerate(a_to_b):
        num_states = begins[fsa + 1] - begins[fsa]
        arcs = graphs.arcs[graphs.arcs_of(fsa)]
        for forward in (False, True):
            begin = 2 * begins[fsa] + forward * num_states
            passed = pass_of(arcs, num_states, scores, b_begins[b], frames[b], forward)
            for t, scores_of_pass in enumerate(passed):
                expected[t, begin : begin + num_states] = scores_of_pass
    return expected


def pass_of(arcs, num_states, scores, first_row, num_frames, forward):
    """Yields the best scores of an FSA's states after 0, 1, ... frames of a pass.

    Args:
      scores: the scores of frames, [rows][COLUMNS, or more with padding].
    """
    column = arcs["label"].astype(np.int64) + 1
    exists = (column >= 0) & (column < COLUMNS)

    def frame(t):
        row = first_row + (t if forward else num_frames - 1 - t)
        return np.where(exists, scores[row, np.where(exists, column, 0)], NEVER)

    return forward_or_backward(arcs, num_states, map(frame, range(num_frames)), forward)

"""Makes random FSAs in the format of the kernels' arguments, for several checks."""

import numpy as np

from k2_mps_tests.kernels.case import UNTOUCHED

NEVER = np.float32(-np.inf)
ARC = [("src", np.int32), ("dest", np.int32), ("label", np.int32), ("score", np.float32)]


class Graphs:
    """FSAs in the format of the kernels' arguments.

    Attributes:
      arcs: the arcs of all FSAs in the layout of k2's struct Arc, sorted by state.
      states: the number of states of each FSA.
      state_begins: the index of each FSA's first state among all states, then the number of all
        states.
      fsa_of_arc: the FSA of each arc.
      src, dest: the indexes of each arc's states among all states.
      leaving_begins: the index of each state's first leaving arc, then the number of arcs.
      incoming: the indexes of the arcs, sorted by destination.
      incoming_begins: where the arcs that enter each state begin in `incoming`, then the number
        of arcs.
      by_label: the indexes of the arcs, sorted by FSA and label.
      labels: the lowest and the highest label of each FSA; -1 for an FSA without arcs.
    """

    def __init__(self, states, arcs, fsa_of_arc):
        self.states, self.arcs, self.fsa_of_arc = states, arcs, np.array(fsa_of_arc, int)
        self.state_begins = np.cumsum([0, *states])
        offsets = self.state_begins[self.fsa_of_arc]
        self.src, self.dest = arcs["src"] + offsets, arcs["dest"] + offsets
        every = np.arange(self.state_begins[-1] + 1)
        self.leaving_begins = np.searchsorted(self.src, every)
        self.incoming = np.argsort(self.dest, kind="stable")
        self.incoming_begins = np.searchsorted(self.dest[self.incoming], every)
        self.by_label = np.lexsort((arcs["label"], self.fsa_of_arc))
        self.labels = [
            [some.min(), some.max()] if len(some) else [-1, -1]
            for some in (arcs["label"][self.arcs_of(fsa)] for fsa in range(len(states)))
        ]

    @classmethod
    def random(cls, random, states, num_arcs, labels):
        """Returns random FSAs with `num_arcs` arcs that leave each state, see random_arcs()."""
        return cls(states, *random_arcs(random, states, num_arcs, labels))

    def arcs_of(self, fsa):
        """Returns the indexes of an FSA's arcs as a slice."""
        return slice(*self.leaving_begins[self.state_begins[fsa : fsa + 2]])


def random_arcs(random, states, num_arcs, labels):
    """Returns (arcs, the FSA of each arc): `num_arcs` random arcs leave each state.

    Args:
      random: a generator of NumPy.
      states: the number of states of each FSA.
      labels: the labels of arcs are from -1 to `labels` - 1.
    """
    arcs = np.zeros(sum(states) * num_arcs, ARC)
    arcs["src"] = np.concatenate([np.repeat(np.arange(n), num_arcs) for n in states])
    arcs["dest"] = np.concatenate([random.integers(n, size=n * num_arcs) for n in states])
    arcs["label"] = random.integers(-1, labels, size=len(arcs))
    arcs["score"] = random.standard_normal(len(arcs))
    return arcs, np.repeat(np.arange(len(states)), np.array(states) * num_arcs)


def with_padding(scores):
    """Appends elements to each row of scores, so that the stride differs from the columns.

    The appended elements are larger than all scores.  So a kernel that takes one of them for a
    score gives a wrong result.
    """
    return np.pad(scores, ((0, 0), (0, 3)), constant_values=np.float32(UNTOUCHED))


def forward_or_backward(arcs, num_states, frames, forward):
    """Yields the best score of each state of an FSA after 0, 1, ... frames, in float32.

    Args:
      frames: the scores of the arcs in each frame, without the scores that the arcs have in the
        graph.  The frames are in the order of the pass.
      forward: whether the pass is forward.
    """
    state_scores = np.full(num_states, NEVER)
    if num_states:
        state_scores[0 if forward else -1] = 0
    here, there = ("dest", "src") if forward else ("src", "dest")
    yield state_scores
    for frame in frames:
        with np.errstate(invalid="ignore"):
            reached = state_scores[arcs[there]] + arcs["score"] + frame
        state_scores = np.full(num_states, NEVER)
        np.fmax.at(state_scores, arcs[here], reached)
        yield state_scores

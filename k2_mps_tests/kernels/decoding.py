"""Computes intersect_dense_pruned for one sequence with plain loops, as the reference of checks.

The code takes the same steps in the same order as MultiGraphDenseIntersectPruned in
k2/csrc/intersect_dense_pruned.cu.  The types of numbers are also the same: float64 for the beam,
and float32 for all other numbers.
"""

from typing import NamedTuple

import numpy as np

FLOAT = np.float32
NEVER = FLOAT(-np.inf)
WINDOW, SHIFT = 30, 20


class Options(NamedTuple):
    search_beam: float
    output_beam: float
    min_active: int
    max_active: int
    allow_partial: bool = False


class Step:
    """An arc that leaves a frame.

    Attributes:
      source: the number of a state of this frame.
      dest: the number of a state of the next frame; -1 if the arc was pruned.
      arc: the arc of the graph.
      state: the graph's state that the arc enters.
      score: the score of the arc.
      end: the score of the best path up to the end of the arc.
    """

    def __init__(self, source, arc, state, score, end):
        self.source, self.arc, self.state, self.score, self.end = source, arc, state, score, end
        self.dest = -1


class Frame:
    """The states that are active at a frame, and the arcs that leave the frame.

    Attributes:
      states: the graph's state of each active state.
      forward, backward: the scores of the active states.
      kept: whether the pruning has kept each active state.
      steps: the arcs, [Step], in their order.
    """

    def __init__(self, states, forward):
        self.states, self.forward = states, forward
        self.backward = [NEVER] * len(states)
        self.kept = [True] * len(states)
        self.steps = []


def decode(arcs, begins, rows, num_rows, options):
    """Returns the lattice of a sequence.

    Args:
      arcs: the arcs of the graph, sorted by states; see graphs.ARC.
      begins: the index of the first arc of each state, then the number of arcs.
      rows: the scores of the sequence, [frames][columns].
      num_rows: the number of frames of the longest sequence in the batch.
    Returns:
      Three lists: for each state, the number of arcs of the states before it; the arcs of the
      lattice, (src, dest, arc of the graph, frame); and the frame of each state.
    """
    num_states = len(begins) - 1
    frames = [Frame([0][:num_states], [FLOAT(0)][:num_states])]
    beam = FLOAT(options.search_beam)
    window = 0
    for t in range(num_rows):
        expand(frames[t], t, arcs, begins, rows, options)
        beam = next_beam(beam, len(frames[t].states), t, len(rows), options)
        frames.append(next_frame(frames[t], beam))
        if t + 1 == min(SHIFT * (window + 1), num_rows):
            prune(frames, max(SHIFT * (window + 1) - WINDOW, 0), t + 1, num_states, options)
            window += 1
    return lattice_of(frames)


def expand(frame, t, arcs, begins, rows, options):
    """Adds the arcs that leave the states of frame t; see decode() for the arguments."""
    if t >= len(rows):
        return
    leaving = [i for state in frame.states for i in range(*begins[state : state + 2])]
    is_last = t == len(rows) - 1
    partial = options.allow_partial and is_last and not any(arcs["label"][leaving] == -1)
    for source, state in enumerate(frame.states):
        for i in range(begins[state], begins[state + 1]):
            arc = arcs[i]
            column = arc["label"] + 1
            acoustic = rows[t][column] if column < len(rows[t]) else FLOAT(-np.inf)
            acoustic = FLOAT(0) if partial else acoustic
            score = acoustic + arc["score"]
            dest = len(begins) - 2 if partial else arc["dest"]
            frame.steps.append(Step(source, i, int(dest), score, frame.forward[source] + score))


def next_beam(beam, num_active, t, num_rows, options):
    """Returns the beam for the arcs that leave frame t, which has `num_active` states."""
    usual, most, least = FLOAT(options.search_beam), options.max_active, options.min_active
    near_end = t + 5 >= num_rows
    if near_end:
        least = max(least, most / 2)
    if num_active <= most:
        if num_active >= least or num_active == 0:
            beam = FLOAT(0.8 * float(beam) + 0.2 * float(usual))
        else:
            beam = FLOAT(max(beam, usual) * 1.25)
    elif not near_end:
        beam = FLOAT(float(min(beam, usual)) * 0.8)
    return FLOAT(1e10) if t == num_rows - 1 else beam


def next_frame(frame, beam):
    """Returns the frame after `frame`, with the states that arcs within the beam enter."""
    best = max((step.end for step in frame.steps), default=NEVER)
    numbers = {}
    for step in frame.steps:
        if step.end > best - beam:
            numbers.setdefault(step.state, len(numbers))
    forward = [NEVER] * len(numbers)
    for step in frame.steps:
        step.dest = numbers.get(step.state, -1)
        if step.dest >= 0:
            forward[step.dest] = max(forward[step.dest], step.end)
    return Frame(list(numbers), forward)


def prune(frames, begin, end, num_states, options):
    """Prunes the arcs of frames `begin` to `end` - 1 whose best path is outside of output_beam."""
    frames[end].backward = [-score for score in frames[end].forward]
    for t in range(end - 1, begin - 1, -1):
        frame, following = frames[t], frames[t + 1]
        frame.backward = [NEVER] * len(frame.states)
        for step in frame.steps:
            if step.dest < 0:
                continue
            score = step.score + following.backward[step.dest]
            if score + frame.forward[step.source] >= -FLOAT(options.output_beam):
                frame.backward[step.source] = max(frame.backward[step.source], score)
            else:
                step.dest = -1
        for i, state in enumerate(frame.states):
            if state == num_states - 1:
                frame.backward[i] = -frame.forward[i]
            if t > begin:
                frame.kept[i] = frame.backward[i] != NEVER


def lattice_of(frames):
    """Returns the lattice of the frames; see decode() for its three lists."""
    numbers, count = [], 0
    for frame in frames:
        numbers.append({})
        for i in np.flatnonzero(frame.kept):
            numbers[-1][int(i)] = count
            count += 1
    arc_begins, out, times = [], [], []
    for t, frame in enumerate(frames):
        for i in numbers[t]:
            arc_begins.append(len(out))
            times.append(t)
            for step in frame.steps:
                if step.source == i and step.dest >= 0:
                    out.append((numbers[t][i], numbers[t + 1][step.dest], step.arc, t))
    return arc_begins, out, times

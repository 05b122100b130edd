"""Cases of intersect_dense.

The reference extends all paths by one frame at a time, in float32, with the sums in the kernel's
order.  A maximum is the same in any order, so results must be equal.
"""

from itertools import pairwise

import numpy as np

from k2_mps_tests.kernels.case import Buffer, Case
from k2_mps_tests.kernels.sources import enumerators

NEVER = np.float32(-np.inf)
UNTOUCHED = 9.0

SIZES = enumerators("intersect_dense.h")
MAX_THREADS = SIZES["kIdMaxThreads"]
CACHED = SIZES["kIdMaxCachedStates"]

# States of each FSA, arcs that leave a state, frames of each sequence, lanes of a
# state: around the limits of threadgroup memory and of a thread, and with more arcs
# than a lane keeps in registers.
SHAPES = [
    ([2], 1, [1], 1),
    ([2, 3], 2, [3, 1], 1),
    ([40, 7, 33], 3, [9, 8, 2], 1),
    ([CACHED - 1], 2, [4], 1),
    ([CACHED], 2, [4], 1),
    ([CACHED + 1], 2, [4], 1),
    ([2 * CACHED + 5, 3], 3, [3, 3], 1),
    ([60, 50], 8, [6, 5], 2),
    ([33, 32], 17, [5, 5], 4),
    ([70, 2], 40, [4, 1], 8),
    ([40], 64, [4], 16),
    ([35, 31], 130, [4, 3], 32),
    ([CACHED + 1, 40], 9, [3, 2], 2),
]
SYMBOLS = 6


def cases():
    """Yields case.Case objects."""
    for states, arcs, frames, width in SHAPES:
        name = f"{states} states, {arcs} arcs, {frames} frames, {width} lanes"
        yield _case(name, states, arcs, frames, width, range(len(states)))
    yield _case("one sequence for several FSAs", [5, 9, 4], 3, [7, 4], 1, [0, 0, 1])
    yield _case("no numbers", [12, 9], 3, [7, 4], 1, [0, 1], values=[np.nan, np.inf, -np.inf])
    yield _case("labels without scores", [12, 9], 3, [7, 4], 1, [0, 1], labels=SYMBOLS + 3)
    for states in ([40, 7], [CACHED + 1, 7]):
        name = f"{states} states, frames 0 to 2, 3, and 4 to 8"
        yield _case(name, states, 3, [9, 4], 1, [0, 1], parts=(0, 3, 4, 9))


def _case(name, states, num_arcs, frames, width, a_to_b, values=(), labels=SYMBOLS, parts=None):
    """A launch for all frames, or one from each number in `parts` to the next."""
    random = np.random.default_rng([sum(states), num_arcs, sum(frames)])
    arcs = _arcs(random, states, num_arcs, labels)
    state_begins = np.cumsum([0, *states])
    offsets = np.repeat(state_begins[:-1], np.diff(state_begins) * num_arcs)
    sources, dests = arcs["src"] + offsets, arcs["dest"] + offsets
    entering = np.argsort(dests, kind="stable")
    total = int(state_begins[-1])
    leaving_begins = np.searchsorted(sources, np.arange(total + 1))
    entering_begins = np.searchsorted(dests[entering], np.arange(total + 1))

    # Column 0 is for label -1.
    b_begins = np.cumsum([0, *frames])
    scores = random.standard_normal((b_begins[-1], SYMBOLS + 1)).astype(np.float32)
    for value in values:
        scores[random.integers(len(scores)), random.integers(SYMBOLS)] = value

    # The longest sequence is first, so the FSAs of a step are the first ones.
    lengths = [frames[b] for b in a_to_b]
    alive = [sum(n >= t for n in lengths) for t in range(max(lengths) + 1)]
    step_begins = np.cumsum([0] + [2 * state_begins[n] for n in alive])
    expected = np.full(step_begins[-1], UNTOUCHED, np.float32)
    for fsa, b in enumerate(a_to_b):
        mine = slice(*np.searchsorted(offsets, state_begins[fsa : fsa + 2]))
        rows = scores[b_begins[b] : b_begins[b + 1]]
        for forward in (False, True):
            begin = 2 * state_begins[fsa] + forward * states[fsa]
            passed = _pass(arcs[mine], states[fsa], scores, b_begins[b], len(rows), forward)
            for t, state_scores in enumerate(passed):
                at = step_begins[t] + begin
                expected[at : at + states[fsa]] = state_scores
    parts = parts or (0, max(frames))
    params = [
        Buffer(np.array([SYMBOLS + 1, SYMBOLS + 1, scores.size, width, *part], np.int32))
        for part in pairwise(parts)
    ]
    threads = min(MAX_THREADS, -(-max(states) * width // 32) * 32)
    buffers = [
        Buffer(arcs.view(np.int32)),
        *[
            Buffer(x.astype(np.int32))
            for x in (state_begins, leaving_begins, entering_begins, entering)
        ],
        Buffer(scores),
        Buffer(b_begins.astype(np.int32)),
        Buffer(np.array(a_to_b, np.int32)),
        Buffer(step_begins[:-1].astype(np.int64)),
        Buffer(np.full(expected.shape, UNTOUCHED, np.float32), expected),
        params[0],
    ]
    return Case(
        name,
        "intersect_dense",
        2 * len(states),
        threads,
        buffers,
        [(2 * len(states), more) for more in params[1:]],
    )


def _arcs(random, states, num_arcs, labels):
    """The arcs of all FSAs in the layout of k2's struct, sorted by state."""
    arcs = np.zeros(
        sum(states) * num_arcs,
        [("src", np.int32), ("dest", np.int32), ("label", np.int32), ("score", np.float32)],
    )
    arcs["src"] = np.concatenate([np.repeat(np.arange(n), num_arcs) for n in states])
    arcs["dest"] = np.concatenate([random.integers(n, size=n * num_arcs) for n in states])
    arcs["label"] = random.integers(-1, labels, size=len(arcs))
    arcs["score"] = random.standard_normal(len(arcs))
    return arcs


def _pass(arcs, num_states, scores, first_row, num_frames, forward):
    """Yields the scores of the states after 0, 1, ... frames."""
    flat = np.append(scores.ravel(), NEVER)
    columns = scores.shape[1]
    state_scores = np.full(num_states, NEVER)
    state_scores[0 if forward else -1] = 0
    here, there = ("dest", "src") if forward else ("src", "dest")
    yield state_scores
    for t in range(num_frames):
        row = first_row + (t if forward else num_frames - 1 - t)
        column = arcs["label"] + 1
        # Upstream too reads the column behind the last one.
        at = np.where(column <= columns, row * columns + column, scores.size)
        frame = flat[np.minimum(at, scores.size)]
        with np.errstate(invalid="ignore"):
            reached = state_scores[arcs[there]] + arcs["score"] + frame
        state_scores = np.full(num_states, NEVER)
        np.fmax.at(state_scores, arcs[here], reached)
        yield state_scores

"""tot_scores, tot_scores_backprop, arc_post and arc_post_backprop.

tot_scores copies.  tot_scores_backprop multiplies with exp() of an arc's
posterior, which is off by 4 eps of the result at most.

arc_post adds in float32 what the reference adds in float32, in the same order,
so results have to be equal, NaN and infinities too.

Gradients are multiples of 1/8 of at most LARGEST, whose sums over any arcs here
are float32 in whatever order: they have to be equal as well.  With other ones a
sum of N terms may be off by N eps / 2 of the sum of their sizes.
"""

import numpy as np

from k2_mps_tests.kernels.case import Buffer, Case
from k2_mps_tests.kernels.sources import enumerators

EPS = float(np.finfo(np.float32).eps)
UNTOUCHED = 9.0
SIZES = enumerators("arc_post.h")
MAX_THREADS = SIZES["kApMaxThreads"]
SIMD_WIDTH = SIZES["kApSimdWidth"]
LONG = SIZES["kApArcsOfThread"]
ARC_THREADS = 256
LARGEST = 16

# Numbers of states and of arcs of each FSA: none at all, fewer and more than
# the threads of a threadgroup, FSAs of other sizes.
SHAPES = [
    [(2, 1)],
    [(0, 0), (3, 4), (0, 0), (2, 0), (1, 0)],
    [(40, ARC_THREADS - 1), (3, 1)],
    [(40, ARC_THREADS + 1)],
    [(MAX_THREADS - 1, 3000), (MAX_THREADS, 10), (MAX_THREADS + 2, 5000)],
]
# Arcs that leave the first state and enter the last one: summed by a thread,
# and by a simdgroup.
HUBS = [LONG - 1, LONG, LONG + 1, LONG + SIMD_WIDTH + 1, 1000]


def cases():
    """Yields case.Case objects."""
    for shape in SHAPES:
        states, arcs = np.max(shape, axis=0)
        name = f"{len(shape)} FSAs of up to {states} states and {arcs} arcs"
        graph = _Graph(shape)
        yield _tot_scores(name, graph)
        for stride in (0, 1, 3):
            yield _tot_scores_backprop(f"{name}, stride {stride}", graph, stride)
        yield _arc_post(name, graph)
        for threads in (SIMD_WIDTH, 2 * SIMD_WIDTH, MAX_THREADS):
            yield _backprop(f"{name}, {threads} threads", graph, threads, exact=True)
        yield _backprop(name + ", of any numbers", graph, MAX_THREADS, exact=False)
    for hub in HUBS:
        graph = _Graph([(hub + 2, 2 * hub), (5, 7)], hub)
        name = f"{hub} arcs of a state"
        for exact in (True, False):
            yield _backprop(
                name + ("" if exact else ", of any numbers"), graph, 4 * SIMD_WIDTH, exact
            )
    graph = _Graph([(6, 40), (9, 30), (4, 20)])
    for value in (-np.inf, np.inf, np.nan):
        yield _arc_post(f"scores of {value!r}", graph, value)
        yield _backprop(f"a gradient of {value!r}", graph, SIMD_WIDTH, True, value)


class _Graph:
    """FSAs with arcs from states to later ones."""

    def __init__(self, shape, hub=0):
        self.random = np.random.default_rng([hub, *np.ravel(shape)])
        self.state_begins = np.cumsum([0, *(states for states, _ in shape)])
        self.num_states = int(self.state_begins[-1])
        self.fsas = np.repeat(np.arange(len(shape)), [states for states, _ in shape])
        src, dest = [], []
        for fsa, (states, arcs) in enumerate(shape):
            begin = self.state_begins[fsa]
            if hub and fsa == 0:
                middle = begin + 1 + np.arange(hub)
                mine = np.r_[np.full(hub, begin), middle]
                src.append(mine)
                dest.append(np.r_[middle, np.full(hub, begin + states - 1)])
            elif arcs:
                mine = np.sort(self.random.integers(0, states - 1, arcs))
                src.append(begin + mine)
                dest.append(begin + self.random.integers(mine + 1, states))
        self.src = np.concatenate(src).astype(np.int32)
        self.dest = np.concatenate(dest).astype(np.int32)
        first = self.state_begins[self.fsas[self.src]]
        self.num_arcs = len(self.src)
        self.arcs = np.zeros(
            self.num_arcs,
            [("src", np.int32), ("dest", np.int32), ("label", np.int32), ("score", np.float32)],
        )
        self.arcs["src"] = self.src - first
        self.arcs["dest"] = self.dest - first
        self.arcs["score"] = self.random.normal(size=self.num_arcs)
        self.leaving_begins = self.begins(self.src)
        self.entering_begins = self.begins(self.dest)
        self.entering = np.argsort(self.dest, kind="stable")

    def begins(self, states):
        """Where the arcs of each state begin, if sorted by it."""
        return np.searchsorted(np.sort(states), np.arange(self.num_states + 1))

    def sums(self, grad):
        """The gradients of forward and of backward scores, in float64."""
        ans = []
        lasts, begins = self.state_begins[1:] - 1, self.state_begins[:-1]
        is_fsa = lasts >= begins
        of_fsas = np.bincount(self.fsas[self.src], grad, len(begins))
        for states, own in ((self.src, lasts), (self.dest, begins)):
            ans.append(np.bincount(states, grad, self.num_states))
            ans[-1][own[is_fsa]] = -0.5 * of_fsas[is_fsa]
        return ans

    def params(self, grad_stride=1):
        return np.array(
            [len(self.state_begins) - 1, self.num_states, self.num_arcs, grad_stride], np.int32
        )


def _ints(*arrays):
    return [Buffer(array.astype(np.int32)) for array in arrays]


def _tot_scores(name, graph):
    forward = graph.random.normal(size=graph.num_states).astype(np.float32)
    begins, ends = graph.state_begins[:-1], graph.state_begins[1:]
    expected = np.where(ends > begins, forward[np.maximum(ends - 1, 0)], np.float32(-np.inf))
    return Case(
        name,
        "tot_scores",
        -(-len(begins) // ARC_THREADS),
        ARC_THREADS,
        [
            *_ints(graph.state_begins),
            Buffer(forward),
            Buffer(np.full(len(begins), UNTOUCHED, np.float32), expected),
            Buffer(graph.params()),
        ],
    )


def _tot_scores_backprop(name, graph, stride):
    post = -20 * graph.random.random(graph.num_arcs).astype(np.float32)
    post[::7] = -np.inf
    count = len(graph.state_begins) - 1
    grad = graph.random.normal(size=(count - 1) * stride + 1).astype(np.float32)
    expected = np.exp(post.astype(np.float64)) * grad[graph.fsas[graph.src] * stride]
    return Case(
        name,
        "tot_scores_backprop",
        -(-graph.num_arcs // ARC_THREADS),
        ARC_THREADS,
        [
            Buffer(post),
            *_ints(graph.src, graph.fsas),
            Buffer(grad),
            Buffer(
                np.full(graph.num_arcs, UNTOUCHED, np.float32), expected, 5 * EPS * np.abs(expected)
            ),
            Buffer(graph.params(stride)),
        ],
    )


def _arc_post(name, graph, value=None):
    forward, backward = graph.random.normal(size=(2, graph.num_states)).astype(np.float32) * 30
    arcs = graph.arcs.copy()
    if value is not None:
        # The total score of the first FSA, and states of the second.
        forward[graph.state_begins[1] - 1] = value
        begin = graph.state_begins[1]
        forward[begin + 1] = backward[begin + 2] = value
        arcs["score"][-1] = value
    begins, lasts = graph.state_begins[:-1], graph.state_begins[1:] - 1
    with np.errstate(invalid="ignore"):
        tot = np.float32(0.5) * (
            forward[np.maximum(lasts, 0)] + backward[np.minimum(begins, graph.num_states - 1)]
        )
        minus_tot = np.where(tot == -np.inf, tot, -tot)
        expected = (
            arcs["score"]
            + forward[graph.src]
            + backward[graph.dest]
            + minus_tot[graph.fsas[graph.src]]
        )
    return Case(
        name,
        "arc_post",
        -(-graph.num_arcs // ARC_THREADS),
        ARC_THREADS,
        [
            Buffer(arcs.view(np.int32)),
            *_ints(graph.src, graph.fsas, graph.state_begins),
            Buffer(forward),
            Buffer(backward),
            Buffer(np.full(graph.num_arcs, UNTOUCHED, np.float32), expected),
            Buffer(graph.params()),
        ],
    )


def _backprop(name, graph, threads, exact, value=None):
    if exact:
        grad = graph.random.integers(-8 * LARGEST, 8 * LARGEST + 1, graph.num_arcs) / 8
    else:
        grad = graph.random.normal(size=graph.num_arcs)
    grad = grad.astype(np.float32)
    if value is not None:
        grad[::7] = value
    forward, backward = graph.sums(grad)
    allowed = [0.0, 0.0]
    if not exact:
        of_size = graph.sums(np.abs(grad))
        allowed = [
            count * EPS / 2 * size
            for count, size in zip(np.abs(graph.sums(np.ones(graph.num_arcs))), np.abs(of_size))
        ]
    groups = len(graph.state_begins) - 1 + -(-graph.num_states // threads)
    return Case(
        name,
        "arc_post_backprop",
        groups,
        threads,
        [
            Buffer(grad),
            *_ints(
                graph.fsas,
                graph.state_begins,
                graph.leaving_begins,
                graph.entering_begins,
                graph.entering,
            ),
            Buffer(np.full(graph.num_states, UNTOUCHED, np.float32), forward, allowed[0]),
            Buffer(np.full(graph.num_states, UNTOUCHED, np.float32), backward, allowed[1]),
            Buffer(graph.params()),
        ],
    )

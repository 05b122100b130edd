"""gather_arcs, state_scores, state_scores_backprop and best_leaving_arcs.

In the tropical semiring the reference adds in float32 what the kernels add,
so results have to be equal.  In the log semiring it is in float64.

Tolerance in the log semiring: a path has one sum and one LogAdd a layer for
each of up to FAN arcs.  Each rounds by eps / 2 of a score, and exp() and log()
are off by 4 eps of a result of at most log(2).  A gradient is a product of one
exp() a layer, off by the error of two scores, and at most WEIGHT.
"""

import numpy as np

from k2_mps_tests.kernels.case import Buffer, Case
from k2_mps_tests.kernels.sources import enumerators

EPS = float(np.finfo(np.float32).eps)
UNTOUCHED = 9.0
MAX_THREADS = enumerators("scores.h")["kScMaxThreads"]
AHEAD = enumerators("scores.h")["kScArcsAhead"]
WEIGHT = 4

# Widths of the layers of states of each FSA, and the most arcs of a state: more
# states than threads, more arcs than are loaded ahead, FSAs of other depths.
SHAPES = [
    ([[1, 1]], 1),
    ([[1, 3, 1], [1, 1]], AHEAD),
    ([[1, 5, 6, 2, 1], [1, 40, 33, 1], [1, 2, 3, 4, 5, 6, 7, 1]], AHEAD + 1),
    ([[1, MAX_THREADS - 1, 1], [1, MAX_THREADS, 1]], 2),
    ([[1, MAX_THREADS + 1, 2 * MAX_THREADS + 3, 1]], 3),
    ([[1, 9, 1]], 40),
]


def _name(layers, fan):
    widest = max(max(widths) for widths in layers)
    return f"{len(layers)} FSAs of up to {widest} states a batch, {fan} arcs"


def cases():
    """Yields case.Case objects."""
    for layers, fan in SHAPES:
        name = _name(layers, fan)
        graph = Graph(layers, fan)
        yield _best(name, graph)
        for forward in (True, False):
            way = "forward" if forward else "backward"
            yield _gather(name + ", " + way, graph, forward)
            for log in (True, False):
                yield from _scores(
                    "{}, {}, {}".format(name, way, "log" if log else "tropical"),
                    graph,
                    forward,
                    log,
                )


class Graph:
    """FSAs whose states are in layers, with arcs from each to the next."""

    def __init__(self, layers, fan):
        random = np.random.default_rng([fan, *map(len, layers)])
        self.fan = fan
        self.depth = max(map(len, layers))
        sizes = [sum(widths) for widths in layers]
        self.state_begins = np.cumsum([0, *sizes])
        self.num_states = int(self.state_begins[-1])
        src, dest, batches = [], [], []
        for fsa, widths in enumerate(layers):
            ends = np.cumsum(widths) + self.state_begins[fsa]
            for n, width in enumerate(widths):
                states = np.arange(ends[n] - width, ends[n])
                batches.append((n, fsa, states))
                if n + 1 == len(widths):
                    continue
                for state in states:
                    # Few states have no arc, so some are not reached.
                    for _ in range(random.integers(0, fan + 1)):
                        src.append(state)
                        dest.append(random.integers(ends[n], ends[n + 1]))
        self.src, self.dest = np.array(src), np.array(dest)
        first = self.state_begins[np.searchsorted(self.state_begins, self.src, "right") - 1]
        self.arcs = np.zeros(
            len(src),
            [("src", np.int32), ("dest", np.int32), ("label", np.int32), ("score", np.float32)],
        )
        self.arcs["src"] = self.src - first
        self.arcs["dest"] = self.dest - first
        # Multiples of 1/4, so that there are ties.
        self.arcs["score"] = random.integers(-8, 9, len(src)) / 4
        self.num_fsas = len(layers)
        parts = {(n, fsa): states for n, fsa, states in batches}
        parts = [
            parts.get((n, fsa), np.zeros(0, int))
            for n in range(self.depth)
            for fsa in range(self.num_fsas)
        ]
        self.batch_begins = np.cumsum([0, *map(len, parts)])
        self.states = np.concatenate(parts)
        self.layers = [
            np.concatenate(parts[n : n + self.num_fsas])
            for n in range(0, len(parts), self.num_fsas)
        ]

    def links(self, to_src):
        """The arcs of the states as they come in batches: where each state's
        begin, their indexes, and what gather_arcs makes of them."""
        ends = self.dest if to_src else self.src
        order = [np.flatnonzero(ends == state) for state in self.states]
        begins = np.cumsum([0, *map(len, order)])
        order = np.concatenate(order)
        links = np.zeros(len(order), [("state", np.int32), ("score", np.float32)])
        links["state"] = (self.src if to_src else self.dest)[order]
        links["score"] = self.arcs["score"][order]
        return begins, order, links.view(np.int32)

    def params(self, to_src, descending, log, has_best):
        return np.array(
            [self.num_fsas, self.depth, len(self.arcs), to_src, descending, log, has_best], np.int32
        )


def _gather(name, graph, to_src):
    _, order, links = graph.links(to_src)
    return Case(
        name,
        "gather_arcs",
        -(-len(order) // 256),
        256,
        [
            Buffer(graph.arcs.view(np.int32)),
            Buffer(graph.src.astype(np.int32)),
            Buffer(order.astype(np.int32)),
            Buffer(np.full(len(links), 7, np.int32), links),
            Buffer(graph.params(to_src, 0, 0, 0)),
        ],
    )


def _best(name, graph):
    scores, best = reference(graph, forward=False, log=False)
    # NaN is never the best, so what leads there is not; -inf is if all are.
    scores[::5] = np.nan
    scores[1::7] = -np.inf
    for state in range(graph.num_states):
        arcs = np.flatnonzero(graph.src == state)
        reached = scores[graph.dest[arcs]] + graph.arcs["score"][arcs]
        arcs, reached = arcs[~np.isnan(reached)], reached[~np.isnan(reached)]
        best[state] = arcs[len(arcs) - 1 - reached[::-1].argmax()] if len(arcs) else -1
    begins = np.searchsorted(graph.src, np.arange(graph.num_states + 1))
    return Case(
        name,
        "best_leaving_arcs",
        -(-graph.num_states // 256),
        256,
        [
            Buffer(graph.arcs.view(np.int32)),
            Buffer(begins.astype(np.int32)),
            Buffer(scores),
            Buffer(np.full(graph.num_states, 7, np.int32), best),
            Buffer(np.array([graph.num_states], np.int32)),
        ],
    )


def _scores(name, graph, forward, log):
    """The two kernels for one direction and one semiring."""
    scores, best = reference(graph, forward, log)
    threads = min(MAX_THREADS, -(-max(map(len, graph.layers)) // 32) * 32)
    size = 1 + np.abs(scores[np.isfinite(scores)]).max()
    allowed = graph.depth * graph.fan * (size / 2 + 4) * EPS if log else 0.0
    begins, order, links = graph.links(forward)

    def inputs():
        return [
            Buffer(x.astype(np.int32)) for x in (graph.batch_begins, graph.states, begins, order)
        ]

    yield Case(
        name,
        "state_scores",
        graph.num_fsas,
        threads,
        [
            Buffer(graph.state_begins.astype(np.int32)),
            *inputs(),
            Buffer(links),
            Buffer(np.full(graph.num_states, UNTOUCHED, np.float32), scores, allowed),
            Buffer(np.full(graph.num_states, 7, np.int32), None if log else best),
            Buffer(graph.params(forward, not forward, log, not log)),
        ],
    )

    begins, order, links = graph.links(not forward)
    random = np.random.default_rng(graph.num_states)
    grad = random.integers(0, WEIGHT, graph.num_states).astype(np.float32)
    scores = scores.astype(np.float32)
    state_grad, arc_grad = gradient(graph, forward, log, scores, best, grad)
    # Of what comes together in a state, all that goes on is at most that.
    allowed = (
        (graph.depth * graph.fan * 2 * size * EPS * max(1.0, np.abs(state_grad).max()))
        if log
        else 0.0
    )
    yield Case(
        name,
        "state_scores_backprop",
        graph.num_fsas,
        threads,
        [
            *inputs(),
            Buffer(links),
            Buffer(scores),
            Buffer(best),
            Buffer(grad, state_grad, allowed),
            Buffer(np.full(len(graph.arcs), UNTOUCHED, np.float32), arc_grad, allowed),
            Buffer(graph.params(not forward, forward, log, not log)),
        ],
    )


def reference(graph, forward, log):
    """Scores of states, and the last of the best arcs of each."""
    kind = np.float64 if log else np.float32
    scores = np.full(graph.num_states, -np.inf, kind)
    best = np.full(graph.num_states, -1, np.int32)
    ends, others = (graph.dest, graph.src) if forward else (graph.src, graph.dest)
    initial = graph.state_begins[:-1] if forward else graph.state_begins[1:] - 1
    layers = graph.layers if forward else graph.layers[::-1]
    for layer in layers:
        for state in layer:
            arcs = np.flatnonzero(ends == state)
            reached = scores[others[arcs]] + graph.arcs["score"][arcs]
            if len(arcs):
                if log:
                    scores[state] = np.logaddexp.reduce(reached)
                else:
                    scores[state] = reached.max()
                    best[state] = arcs[len(arcs) - 1 - reached[::-1].argmax()]
            if state in initial and scores[state] == -np.inf:
                scores[state] = 0
    return scores, best


def gradient(graph, forward, log, scores, best, grad, kind=None):
    """The gradients of states, with what comes through others, and arcs.

    Unless told a kind, these are float32 in the tropical semiring."""
    kind = kind or (np.float64 if log else np.float32)
    state_grad, arc_grad = grad.astype(kind), np.zeros(len(graph.arcs), kind)
    # A state pulls from where its score went.
    mine, others = (graph.src, graph.dest) if forward else (graph.dest, graph.src)
    layers = graph.layers[::-1] if forward else graph.layers
    for layer in layers:
        for state in layer:
            for arc in np.flatnonzero(mine == state):
                other = others[arc]
                if not log:
                    part = 1 if best[other] == arc else 0
                elif scores[other] == -np.inf:
                    part = 0
                else:
                    part = np.exp(
                        float(scores[state])
                        + float(graph.arcs["score"][arc])
                        - float(scores[other])
                    )
                arc_grad[arc] = part * state_grad[other]
                state_grad[state] += arc_grad[arc]
    return state_grad, arc_grad

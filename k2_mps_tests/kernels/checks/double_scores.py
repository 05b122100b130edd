"""The kernels of double_scores.metal.

The reference is in float64.  In the tropical semiring its sums are exact, since
scores are multiples of 1/4: results have to be equal.

Tolerance in the log semiring: a result is rounded to a float, half a unit in
the last place, and before that off by what checks/two_float.py allows for each
of the sums that lead to it.  Gradients of states have a fixed point at 2^-61 of
the sum of all.
"""

import numpy as np

from k2_mps_tests.kernels.case import Buffer, Case
from k2_mps_tests.kernels.checks.scores import SHAPES, Graph, gradient, reference
from k2_mps_tests.kernels.checks.two_float import log_sums_of
from k2_mps_tests.kernels.sources import enumerators

HALF = float(np.finfo(np.float32).eps) / 2
PAIR = 2.0**-44
UNTOUCHED = 9.0
SIMD_WIDTH = enumerators("double_scores.h")["kDsSimdWidth"]
MAX_THREADS = enumerators("double_scores.h")["kDsMaxThreads"]


def _name(layers, fan):
    widest = max(max(widths) for widths in layers)
    return f"{len(layers)} FSAs of up to {widest} states a batch, {fan} arcs"


def cases():
    """Yields case.Case objects."""
    for layers, fan in SHAPES:
        graph = Graph(layers, fan)
        # Ties of arcs only matter in the tropical semiring.
        for log in (True, False):
            name = _name(layers, fan) + (", log" if log else ", tropical")
            for forward in (True, False):
                yield from _scores(
                    name + (", forward" if forward else ", backward"), graph, forward, log
                )
            for parts in (1, 3):
                yield _arc_post(name, graph, log, parts)


def _params(graph, log, of_totals=0, stride=0, parts=0):
    return Buffer(
        np.array(
            [
                graph.num_fsas,
                graph.depth,
                graph.num_states,
                len(graph.arcs),
                log,
                of_totals,
                stride,
                parts,
            ],
            np.int32,
        )
    )


def _int32(*arrays):
    return [Buffer(array.astype(np.int32)) for array in arrays]


def _begins(graph, ends):
    """Where the arcs of each state begin among all, in the order of `ends`."""
    return np.searchsorted(np.sort(ends), np.arange(graph.num_states + 1))


def _inputs(graph):
    return [
        Buffer(graph.arcs.view(np.int32)),
        *_int32(graph.state_begins, graph.batch_begins, graph.states),
    ]


def _new(shape, expected, allowed):
    return Buffer(np.full(shape, UNTOUCHED, np.float32), expected, allowed)


def _scores(name, graph, forward, log):
    scores, best = reference(graph, forward, log)
    scores = scores.astype(float)
    size = 1 + np.abs(scores[np.isfinite(scores)]).max()
    widest = max(map(len, graph.layers))
    threads = min(MAX_THREADS, -(-widest // SIMD_WIDTH) * SIMD_WIDTH)
    ends = graph.state_begins[1:] - 1 if forward else graph.state_begins[:-1]
    lost = graph.depth * graph.fan * size * PAIR
    allowed = (
        np.where(np.isfinite(scores), np.abs(scores), 0) * HALF + lost
        if log
        else np.zeros(graph.num_states)
    )
    states = log_sums_of(scores)
    leaving = _int32(_begins(graph, graph.src))
    arcs = leaving
    if forward:
        arcs = _int32(_begins(graph, graph.dest), np.argsort(graph.dest, kind="stable"))

    yield Case(
        name,
        f"double_{'forward' if forward else 'backward'}_scores",
        graph.num_fsas,
        threads,
        [
            *_inputs(graph),
            *arcs,
            # In the log semiring many pairs of r and m are right.
            _new(states.shape, states, np.inf if log else 0.0),
            _new(len(ends), scores[ends], allowed[ends]),
            Buffer(np.full(graph.num_states, 7, np.int32), None if log else best),
            _params(graph, log),
        ],
    )
    yield Case(
        name,
        "double_rounded",
        -(-graph.num_states // 256),
        256,
        [Buffer(states), _new(graph.num_states, scores, allowed), _params(graph, log)],
    )

    random = np.random.default_rng(graph.num_states)
    some = random.normal(0, 1, graph.num_states).astype(np.float32)
    of_fsas = random.normal(0, 100, 3 * graph.num_fsas).astype(np.float32)
    totals = np.zeros(graph.num_states)
    # As k2.shortest_path: without a path there is no gradient.
    totals[ends] = np.where(scores[ends] == -np.inf, 0, of_fsas[::3])
    for what, grad, of_states, stride in (("", some, some, 0), (" of totals", of_fsas, totals, 3)):
        _, arc_grad = gradient(graph, forward, log, scores, best, of_states.astype(float), float)
        # A share is off by the error of two scores.
        exact = HALF * np.abs(arc_grad) + np.abs(of_states).sum() * (4 * lost + 2.0**-60)
        yield Case(
            name + what,
            f"double_{'forward' if forward else 'backward'}_backprop",
            graph.num_fsas,
            threads,
            [
                *_inputs(graph),
                *leaving,
                Buffer(states),
                Buffer(best),
                Buffer(grad),
                Buffer.scratch(np.zeros(2 * graph.num_states, np.int32)),
                _new(len(graph.arcs), arc_grad, exact),
                _params(graph, log, bool(stride), stride),
            ],
        )


def _arc_post(name, graph, log, parts):
    forward, _ = reference(graph, True, log)
    backward, _ = reference(graph, False, log)
    fsas = np.searchsorted(graph.state_begins, np.arange(graph.num_states), "right") - 1
    total = forward[graph.state_begins[1:] - 1][fsas[graph.src]]
    post = (
        graph.arcs["score"]
        + forward[graph.src].astype(float)
        + backward[graph.dest]
        - np.where(total == -np.inf, np.inf, total)
    )
    both = np.concatenate([forward, backward])
    size = 1 + np.abs(both[np.isfinite(both)]).max()
    return Case(
        f"{name}, {parts} parts",
        "double_arc_post",
        graph.num_fsas * parts,
        2 * SIMD_WIDTH,
        [
            Buffer(graph.arcs.view(np.int32)),
            *_int32(graph.state_begins, _begins(graph, graph.src)),
            Buffer(log_sums_of(forward)),
            Buffer(log_sums_of(backward)),
            _new(
                len(post),
                post,
                np.where(np.isfinite(post), np.abs(post), 0) * HALF + 4 * size * PAIR,
            ),
            _params(graph, log, parts=parts),
        ],
    )

"""Cases of double_scores.metal.

The reference is in float64.  Scores of arcs are multiples of 1/4.  So sums in the tropical semiring
are exact, and results must be equal.

In the log semiring, the tolerance has three parts.  The kernel rounds a result to a float, with an
error of up to half a unit in the last place.  Before this rounding, each sum of the kernel has the
error that checks/two_float.py allows.  A sum of gradients can have an error of 2^-60 times the sum
of all gradients.
"""

from typing import NamedTuple

import numpy as np

from k2_mps_tests.kernels.case import INSTANCES, UNTOUCHED, Buffer, Case, fit_instance, ints
from k2_mps_tests.kernels.checks.two_float import path_sums_of
from k2_mps_tests.kernels.graphs import ARC, Graphs
from k2_mps_tests.kernels.sources import enumeration, enumerators, layout

Number = enumeration("double_scores.h", "DoubleScoresBuffer")
PARAMS = layout("double_scores.h", "DoubleScoresParams")
HALF = float(np.finfo(np.float32).eps) / 2
PAIR = 2.0**-44
SIMD_WIDTH = enumerators("simd_width.h")["kSimdWidth"]
MAX_THREADS = INSTANCES[-1]


class Shape(NamedTuple):
    """The sizes of a batch of FSAs."""

    layers: list  # the number of states in each layer of each FSA
    fan: int  # the largest number of arcs that leave a state


# Some FSAs have more states than a threadgroup has threads, and some states have no arcs.  The FSAs
# of a shape have different numbers of layers.
SHAPES = [
    Shape(layers=[[1, 1]], fan=1),
    Shape(layers=[[1, 3, 1], [1, 1]], fan=2),
    Shape(layers=[[1, 5, 6, 2, 1], [1, 40, 33, 1], [1, 2, 3, 4, 5, 6, 7, 1]], fan=5),
    Shape(layers=[[1, MAX_THREADS - 1, 1], [1, MAX_THREADS, 1]], fan=2),
    Shape(layers=[[1, MAX_THREADS + 1, 2 * MAX_THREADS + 3, 1]], fan=3),
    Shape(layers=[[1, 400, 3, 1]], fan=2),
    Shape(layers=[[1, 9, 1]], fan=40),
    Shape(layers=[[], [1, 3, 1], [], [1]], fan=3),
]


def _name(layers, fan):
    widest = max(max(widths, default=0) for widths in layers)
    return f"{len(layers)} FSAs of up to {widest} states a batch, {fan} arcs"


def cases():
    for layers, fan in SHAPES:
        graph = Graph(layers, fan)
        # Both semirings get the same graphs.  Ties of arcs matter only in the tropical semiring.
        for log in (True, False):
            name = _name(layers, fan) + (", log" if log else ", tropical")
            for directions in ((True,), (False,), (True, False)):
                yield _scores(name, graph, log, directions)
                if graph.depth > 2:
                    yield _in_parts(_scores(name, graph, log, directions))
            for forward in (True, False):
                way = ", forward" if forward else ", backward"
                for case in _gradients(name + way, graph, forward, log):
                    yield case
                    if case.kernel.startswith("double_backprop") and graph.depth > 2:
                        yield _in_parts(case)
            both = [reference(graph, forward, log)[0] for forward in (True, False)]
            for parts in (1, 3):
                yield from _arc_post(name, graph, log, parts, *both)
        for parts in (1, 3):
            yield _arc_post_backprop(_name(layers, fan), graph, parts)
    for value in (-np.inf, np.inf, np.nan):
        yield _arc_post_backprop(f"a gradient of {value!r}", graph, 2, value)


class Graph(Graphs):
    """FSAs whose states are in layers, with arcs from each layer to the next."""

    def __init__(self, layers, fan):
        random = np.random.default_rng([fan, *map(len, layers)])
        self.fan = fan
        self.depth = max(map(len, layers))
        self.num_fsas = len(layers)
        sizes = [sum(widths) for widths in layers]
        self.has_states = np.array(sizes) > 0
        arcs, fsa_of_arc, parts = [], [], {}
        for fsa, widths in enumerate(layers):
            ends = np.cumsum(widths)
            for n, width in enumerate(widths):
                states = np.arange(ends[n] - width, ends[n])
                parts[n, fsa] = states + sum(sizes[:fsa])
                if n + 1 == len(widths):
                    continue
                for state in states:
                    # A state has 0 to `fan` leaving arcs, to random states of the next layer.  So a
                    # state can also have no entering arcs.
                    for _ in range(random.integers(0, fan + 1)):
                        arcs.append((state, random.integers(ends[n], ends[n + 1]), 0, 0))
                        fsa_of_arc.append(fsa)
        arcs = np.array(arcs, ARC)
        # Many paths have equal scores, because scores of arcs are multiples of 1/4.
        arcs["score"] = random.integers(-8, 9, len(arcs)) / 4
        super().__init__(sizes, arcs, fsa_of_arc)
        self.num_states = int(self.state_begins[-1])
        batches = [
            [parts.get((n, fsa), np.zeros(0, int)) for fsa in range(self.num_fsas)]
            for n in range(self.depth)
        ]
        self.layers = [np.concatenate(batch) for batch in batches]
        self.states_by_batch = np.concatenate(self.layers)
        self.batch_begins = np.cumsum([0, *(len(part) for batch in batches for part in batch)])


def _in_parts(case):
    """Returns a copy of the case with two launches: for batch 0, and for all other batches."""
    params = case.buffers[Number.kDsParams].content
    first, second = params.copy(), params.copy()
    first["last_batch"] = second["first_batch"] = 1
    buffers = {**case.buffers, Number.kDsParams: Buffer(first)}
    more = [(case.groups, {Number.kDsParams: Buffer(second)})]
    return Case(case.name + ", in parts", case.kernel, case.groups, case.threads, buffers, more)


def _params(graph, log, forward=0, of_totals=0, stride=0, parts=0):
    return Buffer.struct(
        PARAMS,
        num_fsas=graph.num_fsas,
        num_batches=graph.depth,
        num_states=graph.num_states,
        num_arcs=len(graph.arcs),
        log_semiring=log,
        is_forward=forward,
        of_totals=of_totals,
        grad_stride=stride,
        num_parts=parts,
        first_batch=0,
        last_batch=graph.depth,
    )


def _over_arcs(graph, params):
    """Returns the arguments of kernels whose threads go through arcs."""
    return {
        Number.kDsArcs: Buffer(graph.arcs.view(np.int32)),
        Number.kDsStateBegins: ints(graph.state_begins),
        Number.kDsLeavingBegins: ints(graph.leaving_begins),
        Number.kDsParams: params,
    }


def _over_batches(graph, params):
    """Returns the arguments of kernels that go through batches of states."""
    return {
        **_over_arcs(graph, params),
        Number.kDsBatchBegins: ints(graph.batch_begins),
        Number.kDsStates: ints(graph.states_by_batch),
        Number.kDsIncomingBegins: ints(graph.incoming_begins),
        Number.kDsIncoming: ints(graph.incoming),
    }


def _widest(graph):
    return max(map(len, graph.layers))


def _error_of_scores(graph, scores):
    """Returns the largest error of a state's score.

    A path goes through `depth` layers.  In each layer, the kernel computes about `fan` sums.  A sum
    has an error of PAIR, relative to the size of the scores.
    """
    size = 1 + np.abs(scores[np.isfinite(scores)]).max()
    return graph.depth * graph.fan * size * PAIR


def _ends(graph, forward):
    """For each FSA, returns the state whose score is the FSA's total score.

    This is the last state for forward scores, and the first state for backward scores.
    """
    return graph.state_begins[1:] - 1 if forward else graph.state_begins[:-1]


def _allowed(graph, log, scores):
    if not log:
        return np.zeros(graph.num_states)
    error = np.where(np.isfinite(scores), np.abs(scores), 0) * HALF
    return error + _error_of_scores(graph, scores)


def _states(scores, log):
    """Returns the scores in the format of the kernels."""
    if log:
        return path_sums_of(scores)
    reached = scores != -np.inf
    return np.stack([scores, np.zeros_like(scores), reached], -1).astype(np.float32)


def _instance(kernel, log):
    return kernel + ("_log" if log else "_tropical")


def _by_arc(graph, name, kernel, parts, buffers):
    """Returns a case of a kernel, with `parts` threadgroups for the arcs of each FSA."""
    groups = graph.num_fsas * parts
    return Case(f"{name}, {parts} parts", kernel, groups, 2 * SIMD_WIDTH, buffers)


def _scores(name, graph, log, directions):
    """Returns a case of double_scores.

    Args:
      directions: a tuple of booleans; True is for forward scores, False for backward scores.
    """
    states, totals, best_arcs, allowed, allowed_totals = [], [], [], [], []
    for forward in directions:
        scores, best = reference(graph, forward, log)
        ends = _ends(graph, forward)
        states.append(_states(scores, log))
        totals.append(np.where(graph.has_states, scores[ends], -np.inf))
        best_arcs.append(best)
        allowed.append(_allowed(graph, log, scores))
        allowed_totals.append(allowed[-1][ends])
    states, best_arcs = np.concatenate(states), np.concatenate(best_arcs)
    untouched = np.full(len(best_arcs), UNTOUCHED, np.int32)
    buffers = {
        **_over_batches(graph, _params(graph, log, directions[0])),
        # In the log semiring, different pairs of an exponent and a significand can represent the
        # same sum.  So the case compares only the totals, which the kernel rounds to floats.
        Number.kDsScores: Buffer.output(states, np.inf if log else 0.0),
        Number.kDsTotals: Buffer.output(np.concatenate(totals), np.concatenate(allowed_totals)),
        Number.kDsBestArcs: Buffer(untouched, None if log else best_arcs),
    }
    name += ", " + " and ".join("forward" if forward else "backward" for forward in directions)
    kernel, threads = fit_instance(_instance("double_scores", log), _widest(graph))
    return Case(name, kernel, graph.num_fsas * len(directions), threads, buffers)


def _gradients(name, graph, forward, log):
    """Yields cases of double_rounded, double_shares and double_backprop for one direction."""
    scores, best = reference(graph, forward, log)
    states = _states(scores, log)
    shares = shares_of(graph, forward, log, scores, best)
    high = shares.astype(np.float32)
    pairs = np.stack([high, (shares - high).astype(np.float32)], -1)
    lost = _error_of_scores(graph, scores)
    buffers = {
        Number.kDsScores: Buffer(states),
        Number.kDsRounded: Buffer.output(scores, _allowed(graph, log, scores)),
        Number.kDsParams: _params(graph, log),
    }
    yield Case(name, _instance("double_rounded", log), -(-graph.num_states // 256), 256, buffers)
    error = _error_of_shares(pairs, lost, log)
    for parts in (1, 3):
        buffers = {
            **_over_arcs(graph, _params(graph, log, forward, parts=parts)),
            Number.kDsScores: Buffer(states),
            Number.kDsBestArcs: Buffer(best),
            Number.kDsShares: Buffer.output(pairs, error),
        }
        yield _by_arc(graph, name, "double_shares", parts, buffers)
    for of_totals in (False, True):
        if of_totals and log:
            continue  # In the log semiring, double_totals_backprop computes this gradient.
        grad, of_states = _random_gradient(graph, scores, forward, of_totals)
        arc_grad = gradient(graph, forward, shares, of_states)
        exact = HALF * np.abs(arc_grad) + np.abs(of_states).sum() * (4 * lost + 2.0**-60)
        stride = 3 if of_totals else 0
        buffers = {
            **_over_batches(graph, _params(graph, log, forward, of_totals, stride)),
            Number.kDsScores: Buffer(states),
            Number.kDsShares: Buffer(pairs),
            Number.kDsGrad: Buffer(grad),
            Number.kDsStateGrad: Buffer.scratch(np.zeros(2 * graph.num_states, np.int32)),
            Number.kDsArcGrad: Buffer.output(arc_grad, exact),
        }
        kernel, threads = fit_instance("double_backprop", _widest(graph))
        title = f"{name} of totals" if of_totals else name
        yield Case(title, kernel, graph.num_fsas, threads, buffers)


def _error_of_shares(pairs, lost, log):
    """Returns the error that the kernel may make in each float of the shares.

    Args:
      pairs: the exact shares, as pairs of floats.
      lost: the error of a score.
    """
    high = pairs[:, 0]
    # The kernel computes a share from two scores, so the share has the errors of both.
    share_error = 4 * lost + 2.0**-60 if log else 0.0
    # If a share is about halfway between two floats, the pair may begin with either of them.
    halfway = np.spacing(high) / 2 - np.abs(pairs[:, 1]) <= 2 * share_error
    pair_error = np.stack([np.zeros(len(high)), HALF * np.abs(pairs[:, 1]) + share_error], -1)
    pair_error[halfway & log] = np.inf
    return pair_error


def _random_gradient(graph, scores, forward, of_totals):
    """Returns a random gradient for double_backprop, and the same gradient for each state.

    Args:
      of_totals: whether the gradient is that of the FSAs' total scores, with a stride of 3, instead
        of that of the states' scores.
    """
    random = np.random.default_rng(graph.num_states)
    of_states = random.normal(0, 1, graph.num_states).astype(np.float32)
    if not of_totals:
        return of_states, of_states
    of_fsas = random.normal(0, 100, 3 * graph.num_fsas).astype(np.float32)
    ends = _ends(graph, forward)
    totals = np.zeros(graph.num_states)
    # As in k2.shortest_path(), an FSA without a path has no gradient.
    has_path = graph.has_states & (scores[ends] != -np.inf)
    totals[ends[has_path]] = of_fsas[::3][has_path]
    return of_fsas, totals


def _arc_post(name, graph, log, parts, forward, backward):
    """Yields cases of double_arc_post and, in the log semiring, of double_totals_backprop.

    Args:
      forward, backward: the scores of all states.
    """
    total = forward[graph.state_begins[1:] - 1][graph.fsa_of_arc]
    with np.errstate(invalid="ignore"):
        post = (
            graph.arcs["score"].astype(float)
            + forward[graph.src]
            + backward[graph.dest]
            - np.where(total == -np.inf, np.inf, total)
        )
    both = np.concatenate([forward, backward])
    size = 1 + np.abs(both[np.isfinite(both)]).max()
    lost = 4 * size * PAIR
    scores = {
        Number.kDsForwardScores: Buffer(_states(forward, log)),
        Number.kDsBackwardScores: Buffer(_states(backward, log)),
    }
    buffers = {
        **_over_arcs(graph, _params(graph, log, parts=parts)),
        **scores,
        Number.kDsArcPost: Buffer.output(
            post, np.where(np.isfinite(post), np.abs(post), 0) * HALF + lost
        ),
    }
    yield _by_arc(graph, name, _instance("double_arc_post", log), parts, buffers)
    if not log:
        return
    random = np.random.default_rng(graph.num_states)
    for stride in (0, 1, 3):
        grad = random.normal(0, 100, 3 * graph.num_fsas).astype(np.float32)
        arc_grad = np.exp(post) * grad[stride * graph.fsa_of_arc]
        buffers = {
            **_over_arcs(graph, _params(graph, log, stride=stride, parts=parts)),
            **scores,
            Number.kDsGrad: Buffer(grad),
            # The kernel rounds the posterior, and then its product with the gradient.
            Number.kDsArcGrad: Buffer.output(
                arc_grad,
                # Metal may flush numbers less than 2^-126 to 0.
                np.where(np.isfinite(arc_grad), np.abs(arc_grad), 0) * (2.01 * HALF + lost)
                + 2.0**-126,
            ),
        }
        yield _by_arc(graph, f"{name}, stride {stride}", "double_totals_backprop", parts, buffers)


def _arc_post_backprop(name, graph, parts, value=None):
    random = np.random.default_rng(graph.num_states)
    # Sums of multiples of 1/8 are exact.
    grad = random.integers(-128, 129, len(graph.arcs)).astype(np.float32) / 8
    if value is not None:
        grad[::7] = value
    expected = []
    begins, lasts = graph.state_begins[:-1], graph.state_begins[1:] - 1
    of_fsas = np.bincount(graph.fsa_of_arc, grad, graph.num_fsas)
    for ends, own in ((graph.src, lasts), (graph.dest, begins)):
        expected.append(np.bincount(ends, grad, graph.num_states))
        expected[-1][own[graph.has_states]] = -0.5 * of_fsas[graph.has_states]
    forward_grad, backward_grad = (Buffer.output(states, 0.0) for states in expected)
    buffers = {
        Number.kDsArcGrad: Buffer(grad),
        Number.kDsStateBegins: ints(graph.state_begins),
        Number.kDsLeavingBegins: ints(graph.leaving_begins),
        Number.kDsIncomingBegins: ints(graph.incoming_begins),
        Number.kDsIncoming: ints(graph.incoming),
        Number.kDsForwardGrad: forward_grad,
        Number.kDsBackwardGrad: backward_grad,
        Number.kDsParams: _params(graph, 0, parts=parts),
    }
    return _by_arc(graph, name, "double_arc_post_backprop", parts, buffers)


def reference(graph, forward, log):
    """Returns (scores, best): each state's score, and the last of its arcs with the best score.

    In the log semiring, all elements of `best` are -1.
    """
    scores = np.full(graph.num_states, -np.inf)
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


def shares_of(graph, forward, log, scores, best):
    """Returns the share of each arc in the score of its destination.

    For backward scores, returns the share of each arc in the score of its source.
    """
    ends, others = (graph.dest, graph.src) if forward else (graph.src, graph.dest)
    if not log:
        return (best[ends] == np.arange(len(ends))).astype(float)
    paths, sums = scores[others] + graph.arcs["score"], scores[ends]
    return np.where(sums == -np.inf, 0, np.exp(paths - np.where(sums == -np.inf, 0, sums)))


def gradient(graph, forward, shares, grad):
    """Returns the gradients of the scores of arcs.

    Args:
      grad: the gradients of the states' scores.
    """
    state_grad, arc_grad = grad.astype(float), np.zeros(len(graph.arcs))
    # The gradient flows against the direction of the scores.
    mine, others = (graph.src, graph.dest) if forward else (graph.dest, graph.src)
    for layer in graph.layers[::-1] if forward else graph.layers:
        for state in layer:
            for arc in np.flatnonzero(mine == state):
                arc_grad[arc] = shares[arc] * state_grad[others[arc]]
                state_grad[state] += arc_grad[arc]
    return arc_grad

"""Cases of the kernels of pruned_stream.metal: streams in chunks.

pruned_moves.py has the cases of load_stream, save_stream and emit_stream.  search_stream,
step_stream and describe_stream get the first chunk of each stream.  Functions of decoding.py
compute the expected lattices.  A score is a sum of two floats, or a maximum.  So all results must
be equal.  parity/test_pruned_streams.py tests later chunks.
"""

from typing import NamedTuple

import numpy as np

from k2_mps_tests.kernels import decoding, search
from k2_mps_tests.kernels.case import Buffer, Case
from k2_mps_tests.kernels.checks import pruned_moves
from k2_mps_tests.kernels.checks.pruned_moves import HISTORY, SAVED
from k2_mps_tests.kernels.decoding import Options
from k2_mps_tests.kernels.graphs import with_padding
from k2_mps_tests.kernels.search import COLUMNS, LANES, NUM_INFOS, SIZES

WIDE = SIZES["kPrWideThreads"]


class Shape(NamedTuple):
    """The sizes of a graph and of chunks, and the options of the search."""

    states: int  # the number of states of the graph
    arcs: int  # the number of arcs that leave each state
    frames: list  # the number of frames of each stream's chunk
    options: Options


SHAPES = [
    Shape(states=2, arcs=1, frames=[1], options=Options(8, 4, 0, 10)),
    Shape(states=7, arcs=2, frames=[9, 4, 1], options=Options(8, 4, 2, 10)),
    Shape(states=40, arcs=3, frames=[21, 20, 2], options=Options(6, 3, 2, 9)),
    Shape(states=30, arcs=4, frames=[35, 22], options=Options(5, 2.5, 3, 12)),
]


class Chunk:
    """The inputs of the first chunk of each stream, and the expected lattices.

    Attributes:
      rows: for each stream, the number of rows in its matrix of scores.  There are kPrHistory empty
        rows, a row for each frame, and a row for the end.
      frames: a list of decoding.Frame for each stream, from the first frame of the chunk on.
      lattices: for each stream, three lists: the number of arcs before each state, the arcs
        (src, dest, arc, t), and the t of each state.
    """

    def __init__(self, shape):
        states, num_arcs, lengths, self.options = shape
        random = np.random.default_rng([states, num_arcs, sum(lengths)])
        graphs = search.random_graphs(random, [states], num_arcs)
        self.arcs, self.state_begins = graphs.arcs, graphs.state_begins
        self.leaving_begins = graphs.leaving_begins
        self.rows = [HISTORY + length + 1 for length in lengths]
        self.b_begins = np.cumsum([0, *self.rows])
        scores = random.standard_normal((self.b_begins[-1], COLUMNS)).astype(np.float32)
        scores[:, 0] = -np.inf
        scores[self.b_begins[1:] - 1] = -np.inf
        scores[self.b_begins[1:] - 1, 0] = 0
        for begin in self.b_begins[:-1]:
            scores[begin : begin + HISTORY] = 0
        self.scores = with_padding(scores)
        self.frames = [self._frames(index) for index in range(len(lengths))]
        self.lattices = [decoding.lattice_of(frames) for frames in self.frames]
        self.lattices = [
            (begins, [(*arc, t + HISTORY) for *arc, t in out], [t + HISTORY for t in times])
            for begins, out, times in self.lattices
        ]

    def _frames(self, index):
        begins, options = self.leaving_begins, self.options
        first, end = self.b_begins[index : index + 2]
        rows = self.scores[first + HISTORY : end]
        length = len(rows) - 1
        frames = [decoding.Frame([0], [decoding.FLOAT(0)])]
        beam = decoding.FLOAT(options.search_beam)
        for t in range(length):
            decoding.expand(frames[t], t, self.arcs, begins, rows, options)
            # k2 does not know how many frames a stream will have, so k2 assumes a large number.
            beam = decoding.next_beam(beam, len(frames[t].states), t, 10**9, options)
            frames.append(decoding.next_frame(frames[t], beam))
        decoding.prune(frames, 0, length, len(begins) - 1, options)
        # In the last row, every arc with a finite score goes to the final state.
        last = frames[length]
        decoding.expand(last, length, self.arcs, begins, rows, options)
        for step in last.steps:
            step.dest = 0 if np.isfinite(step.score) else -1
        return [*frames, decoding.Frame([len(begins) - 2], [decoding.FLOAT(0)])]

    def score(self, index, arc, t):
        """Returns the bits of an arc's score in the lattice."""
        acoustic = self.scores[self.b_begins[index] + t, self.arcs["label"][arc] + 1]
        return int(search.bits_of(acoustic + self.arcs["score"][arc]))

    def next(self, index):
        """Returns the first frame that the next chunk can still change.

        Like the kernels, counts the kPrHistory empty rows as frames.
        """
        return max(HISTORY, self.rows[index] - 1 - HISTORY)

    def infos(self, searched=False, described=False):
        """Returns the numbers that a kernel passes to the next kernel, [streams][kPrNumInfos].

        Args:
          searched: whether to include the numbers that the search adds to a new stream's numbers.
          described: whether to include the numbers that describe_stream adds.
        """
        ans = np.zeros((len(self.rows), NUM_INFOS), np.int32)
        for index, info in enumerate(ans):
            info[SIZES["kPrBest"] :][:2] = search.MINUS_INFINITY
            info[SIZES["kPrBeam"] :][:2] = search.bits_of(self.options.search_beam)
            info[SIZES["kPrFirstFrame"]], info[SIZES["kPrIsNew"]] = HISTORY, 1
            if searched:
                begins, out, times = self.lattices[index]
                following = self.next(index)
                info[SIZES["kPrStates"]], info[SIZES["kPrArcs"]] = len(begins), len(out)
                info[SIZES["kPrFrozenStates"]] = sum(t <= following for t in times)
                info[SIZES["kPrFrozenArcs"]] = sum(t < following for *_, t in out)
            if described:
                self._describe(index, info)
        return ans

    def _describe(self, index, info):
        _, out, _ = self.lattices[index]
        final = info[SIZES["kPrStates"]] - 1
        labels = [-1 if dest == final else int(self.arcs["label"][arc]) for _, dest, arc, _ in out]
        frozen = info[SIZES["kPrFrozenArcs"]]
        entered = set()
        for part, live in ((range(frozen), ""), (range(frozen, len(out)), "Live")):
            lacks = left = 0
            before = len(entered)
            for i in part:
                src, dest, _, _ = out[i]
                label = labels[i] & 0xFFFFFFFF
                lacks |= search.EPSILON_FREE if label == 0 else 0
                if i > 0 and out[i - 1][0] == src:
                    earlier = labels[i - 1] & 0xFFFFFFFF
                    lacks |= search.DETERMINISTIC if label <= earlier else 0
                    lacks |= search.SORTED if (label, dest) < (earlier, out[i - 1][1]) else 0
                else:
                    left += 1
                entered.add(dest)
            info[SIZES[f"kPr{live}NotProperties"]] = lacks
            info[SIZES[f"kPr{live}Entered"]] = len(entered) - before
            info[SIZES[f"kPr{live}Left"]] = left
        for i in range(SAVED):
            t = self.rows[index] - 1 - HISTORY + i
            if t >= self.next(index):
                frame = self.frames[index][t - HISTORY]
                info[SIZES["kPrFrameSizes"] + 2 * i :][:2] = len(frame.states), len(frame.steps)

    def entered(self, described):
        """Returns twice the frame of each state except the final one, plus 1 for some states.

        Args:
          described: whether to add this 1, as describe_stream does for each state that arcs enter.
        """
        ans = np.zeros((len(self.rows), search.MAX_OUT_STATES), np.int32)
        for index, (_, out, times) in enumerate(self.lattices):
            ans[index, : len(times) - 1] = [2 * t for t in times[:-1]]
            if described:
                ans[index, sorted({dest for _, dest, _, _ in out})] += 1
        return ans


def cases():
    yield from pruned_moves.cases()
    for shape in SHAPES:
        chunk = Chunk(shape)
        name = f"{shape.states} states, frames {shape.frames}"
        groups = len(chunk.rows)
        for threads in (LANES, 3 * LANES, SIZES["kPrMostThreads"]):
            buffers = _searched(chunk)
            yield Case(f"{name}, {threads} threads", "search_stream", groups, threads, buffers)
        for threads, groups in ((LANES, 2), (2 * LANES, 3)):
            yield _step(f"{name}, {groups} groups of {threads} threads", chunk, threads, groups)
        yield _describe(name, chunk)


class _AsBatch:
    """A chunk in place of a Batch, with the attributes that the functions of search.py read."""

    def __init__(self, chunk):
        self.rows, self.shared, self.options = chunk.rows, True, chunk.options
        self.arcs, self.scores = chunk.arcs, chunk.scores
        self.state_begins, self.leaving_begins = chunk.state_begins, chunk.leaving_begins
        self.b_begins = chunk.b_begins
        # The kernels write no entry of `begins` for the final state.  For a batch, the last number
        # of an arc is the arc's frame.  For streams, the last number is the arc's score.
        self.lattices = [
            (begins[:-1], [(*arc[:3], chunk.score(index, *arc[2:])) for arc in out])
            for index, (begins, out, _) in enumerate(chunk.lattices)
        ]


def _arguments(chunk, infos, lattices):
    """Returns the arguments of a search.  The memory has the contents that load_stream writes."""
    batch = _AsBatch(chunk)
    rings = search.rings_of(batch)
    begin, end = chunk.leaving_begins[:2]
    for ring in rings[: len(chunk.rows)]:
        ring["active"][0] = 0, 0, 0, begin
        ring["frames"][HISTORY] = 0, 1, 0, end - begin
    return {
        **search.inputs_of(batch),
        search.Number.kPrunedTable: search.table_of(batch),
        search.Number.kPrunedRings: search.scratch_of(rings),
        search.Number.kPrunedLattice: lattices,
        search.Number.kPrunedInfos: infos,
        search.Number.kPrunedParams: search.params_of(batch, streaming=1),
    }


def _searched(chunk):
    # The reference computes only the numbers that the loop below names.  All other numbers may have
    # any value.
    allowed = np.full(NUM_INFOS, np.inf)
    for info in ("Error", "States", "Arcs", "FirstFrame", "IsNew", "FrozenStates", "FrozenArcs"):
        allowed[SIZES["kPr" + info]] = 0
    infos = Buffer(chunk.infos(), chunk.infos(searched=True), allowed)
    return _arguments(chunk, infos, search.searched_lattices(_AsBatch(chunk), chunk.entered(False)))


def _step(name, chunk, threads, groups):
    steps = [("kPrStart", 0, 0)]
    last = max(chunk.rows) - 1
    for t in range(HISTORY, last):
        phases = ("kPrExpand", "kPrInsert", "kPrFindFirsts", "kPrMakeStates")
        steps += [(phase, t, 0) for phase in phases]
    steps.append(("kPrExpand", last, 0))
    steps += [("kPrNoPhase", 0, step) for step in range(last + 1 + 8)]
    all_groups = len(chunk.rows) * groups
    first, *more = [
        Buffer.struct(
            search.STEP,
            first_seq=0,
            groups=groups,
            num_teams=1,
            phase=SIZES[phase],
            t=t,
            first_live=0,
            window=0,
            window_step=window_step,
        )
        for phase, t, window_step in steps
    ]
    buffers = {**_searched(chunk), search.Number.kPrunedDispatch: first}
    more = [(all_groups, {search.Number.kPrunedDispatch: step}) for step in more]
    return Case(name, "step_stream", all_groups, threads, buffers, more)


def _describe(name, chunk):
    batch = _AsBatch(chunk)
    before, after = (
        search.lattices_of(batch, chunk.entered(x)).view(np.int32) for x in (False, True)
    )
    infos = Buffer(chunk.infos(searched=True), chunk.infos(searched=True, described=True))
    buffers = _arguments(chunk, infos, Buffer(before, after))
    rings = search.rings_of(batch)
    for ring, frames in zip(rings, chunk.frames):
        for t, frame in enumerate(frames, HISTORY):
            ring["frames"][t] = 0, len(frame.states), 0, len(frame.steps)
    buffers[search.Number.kPrunedRings] = search.scratch_of(rings)
    groups = len(chunk.rows) * SIZES["kPrWideGroups"]
    return Case(name, "describe_stream", groups, WIDE, buffers)

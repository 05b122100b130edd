"""Cases of the kernels of pruned_stream.metal that only move numbers, so that any numbers will do.

load_stream makes the memory of a search from what save_stream keeps of a stream.  emit_stream
makes the arrays of a k2.Fsa from a stream's lattice.
"""

from typing import NamedTuple

import numpy as np

from k2_mps_tests.kernels import search
from k2_mps_tests.kernels.case import UNTOUCHED, Buffer, Case, ints
from k2_mps_tests.kernels.graphs import ARC
from k2_mps_tests.kernels.search import LANES, NUM_INFOS, SIZES
from k2_mps_tests.kernels.sources import enumeration, enumerators, layout

Number = enumeration("pruned_stream.h", "PrunedStreamBuffer")
LOAD = layout("pruned_stream.h", "PrunedLoad")
SAVE = layout("pruned_stream.h", "PrunedSave")
EMIT = layout("pruned_stream.h", "PrunedStreamEmit")
HISTORY, SAVED = (enumerators("pruned_stream.h")[name] for name in ("kPrHistory", "kPrSaved"))


def cases():
    for is_new in (True, False):
        yield _load(is_new)
        yield _save(is_new)
    for num_old in (0, 5, 12):
        yield _emit(num_old)


def _untouched(*shape, dtype=np.int32):
    return np.full(shape, int(UNTOUCHED), dtype)


def _params(rows, num_columns):
    """Returns PrunedParams for load_stream, save_stream and emit_stream.  The fields that these
    kernels do not use are 0."""
    fields = dict.fromkeys(search.PARAMS.names, 0)
    fields.update(num_rows=rows, num_columns=num_columns)
    fields.update(max_states=search.MAX_STATES, max_arcs=search.MAX_ARCS)
    fields.update(max_out_states=search.MAX_OUT_STATES, max_out_arcs=search.MAX_OUT_ARCS)
    return Buffer.struct(search.PARAMS, **fields)


def _untouched_rings(num_seqs, rows):
    layout = search.rings_layout(rows)
    return _untouched(num_seqs * layout.itemsize // 4).view(layout)


class Saved(NamedTuple):
    """What save_stream keeps of a stream, and load_stream restores for the stream's next chunk."""

    active: np.ndarray  # of each state: four numbers
    num_kept: np.ndarray  # of each state
    numbers: np.ndarray  # of each state: its number in the stream's lattice
    next_states: np.ndarray  # of each arc
    history: np.ndarray  # the last kPrHistory rows of scores

    def content(self):
        """Returns the array that the kernels write and read."""
        parts = self._replace(history=self.history.view(np.int32))
        return np.concatenate([part.ravel() for part in parts])


def _load(is_new):
    """Returns a case of load_stream, with a stream that begins, or with one that goes on."""
    random = np.random.default_rng(is_new)
    index = 7  # of the stream
    base = 3  # a state's number in the stream's lattice minus its number in the chunk
    columns, stride = 4, 5  # of the scores of all chunks
    from_row, rows = 2, 6  # where this chunk begins among their rows, and how many rows it has
    to_row = 1  # where the stream's rows begin in memory
    # The numbers of saved states and arcs of each frame.
    states, arcs = np.array([2, 3, 4]), np.array([5, 6, 0])
    saved = _random_saved(random, states.sum(), arcs[:HISTORY].sum(), columns)
    chunk = random.standard_normal((from_row + rows, stride)).astype(np.float32)
    leaving = [2, 9]  # where the arcs of the graph's first and second state begin

    rings = _untouched_rings(index + 1, HISTORY + rows)
    before = rings.copy()
    if is_new:
        _begin_ring(rings[index], leaving)
        states, arcs = np.zeros(SAVED, np.int32), np.zeros(SAVED, np.int32)
    else:
        _restore_ring(rings[index], saved, states, arcs, base)
    history = np.zeros_like(saved.history) if is_new else saved.history
    scores = np.full((to_row + HISTORY + rows, columns), UNTOUCHED, np.float32)
    scores[to_row:] = np.concatenate([history, chunk[from_row:, :columns]])
    begins = _untouched(index + 2)
    begins[index : index + 2] = to_row, to_row + HISTORY + rows
    infos = _untouched(index + 1, NUM_INFOS)
    infos[index] = _loaded_infos(is_new, beam=7.5, num_states=states[0])
    load = Buffer.struct(
        LOAD,
        index=index,
        is_new=is_new,
        num_rows=rows,
        from_row=from_row,
        to_row=to_row,
        stride=stride,
        beam=search.bits_of(7.5),
        base=base,
        first_frame=HISTORY if is_new else 0,
        num_states=states,
        num_arcs=arcs,
    )
    buffers = {
        Number.kStreamSaved: ints(saved.content()),
        Number.kStreamChunk: Buffer(chunk),
        Number.kStreamLeavingBegins: ints(leaving),
        Number.kStreamRings: Buffer(before.view(np.int32), rings.view(np.int32)),
        Number.kStreamScores: Buffer.output(scores),
        Number.kStreamBBegins: Buffer.output(begins, dtype=np.int32),
        Number.kStreamInfos: Buffer.output(infos, dtype=np.int32),
        Number.kStreamParams: _params(HISTORY + rows, columns),
        Number.kStreamLoad: load,
    }
    return Case(f"a new stream {is_new}", "load_stream", 1, LANES, buffers)


def _random_saved(random, num_states, num_arcs, columns):
    """Returns random Saved for a stream that goes on."""
    of_states = random.integers(100, size=(num_states, 6))
    return Saved(
        active=of_states[:, :4],
        num_kept=of_states[:, 4],
        numbers=of_states[:, 5],
        next_states=random.integers(100, size=num_arcs),
        history=random.standard_normal((HISTORY, columns)).astype(np.float32),
    )


def _begin_ring(ring, leaving):
    """Fills a ring as load_stream does for a new stream: with the graph's first state alone.

    Args:
      leaving: where the arcs of the graph's first and second state begin.
    """
    ring["active"][0], ring["num_kept"][0] = (0, 0, 0, leaving[0]), 0
    ring["frames"][:SAVED] = 0
    ring["frames"][HISTORY] = 0, 1, 0, leaving[1] - leaving[0]


def _restore_ring(ring, saved, states, arcs, base):
    """Fills a ring as load_stream does for a stream that goes on.

    Args:
      states, arcs: the numbers of saved states and arcs of each frame.
      base: a state's number in the stream's lattice minus its number in the chunk.
    """
    n, m = len(saved.active), len(saved.next_states)
    ring["active"][:n], ring["num_kept"][:n] = saved.active, saved.num_kept
    ring["numbers"][:n], ring["next_states"][:m] = saved.numbers - base, saved.next_states
    ring["frames"][:SAVED] = [
        [states[:t].sum(), states[t], arcs[:t].sum(), arcs[t]] for t in range(SAVED)
    ]


def _loaded_infos(is_new, beam, num_states):
    """Returns the infos that load_stream makes for a stream.

    Args:
      num_states: the number of saved states of the first frame.
    """
    infos = np.zeros(NUM_INFOS, np.int32)
    infos[SIZES["kPrBest"] :][:2] = search.MINUS_INFINITY
    infos[SIZES["kPrBeam"] :][:2] = search.bits_of(beam)
    infos[SIZES["kPrFirstFrame"]], infos[SIZES["kPrIsNew"]] = HISTORY if is_new else 0, is_new
    infos[SIZES["kPrStates"]] = num_states
    return infos


def _save(is_new):
    """Returns a case of save_stream, with the first chunk of a stream, or with a later chunk."""
    random = np.random.default_rng([is_new, 2])
    index = 2  # of the stream
    base = 4  # as in _load
    time = 11  # the frame of the stream that is frame 0 of the chunk
    first_row, columns = 5, 3  # of the stream's rows in memory
    num_frozen = 8  # the number of arcs that later chunks do not change
    begin, end = HISTORY if is_new else 0, 9
    following = end - HISTORY  # the first frame that the next chunk can still change
    sizes = random.integers(1, 4, size=(end + 1, 2))  # of each frame: states, arcs
    frames = _wrapped_frames(sizes, following)
    rings = _untouched_rings(index + 1, end + 1)
    ring = rings[index]
    _fill_ring(random, ring)
    ring["frames"][: end + 1] = frames
    scores = random.standard_normal((first_row + end + 1, columns)).astype(np.float32)
    out = random.integers(50, size=(11, 4))
    lattices = np.zeros(index + 1, search.lattice_layout())
    lattices[index]["out"][: len(out)] = out
    n, m = sizes[following:, 0].sum(), sizes[following:end, 1].sum()
    history = scores[first_row + end - HISTORY : first_row + end]
    saved = _expected_saved(ring, frames[following], n, m, base, history)
    old = _untouched(len(out), 4)
    old[:num_frozen] = out[:num_frozen] + [base, base, 0, 0]
    # An earlier chunk has written the times of a later chunk's first frame.
    frozen = range(begin + (0 if is_new else 1), following + 1)
    times = _expected_times(ring, frames, frozen, base, time)
    save = Buffer.struct(
        SAVE,
        index=index,
        first_row=first_row,
        begin=begin,
        next=following,
        end=end,
        is_new=is_new,
        num_states=n,
        num_arcs=m,
        base=base,
        time=time,
        num_out_arcs=num_frozen,
    )
    buffers = {
        Number.kStreamRings: Buffer(rings.view(np.int32)),
        Number.kStreamLattice: Buffer(lattices.view(np.int32)),
        Number.kStreamScores: Buffer(scores),
        Number.kStreamParams: _params(end + 1, columns),
        Number.kStreamSaved: Buffer.output(saved.content(), dtype=np.int32),
        Number.kStreamOldArcs: Buffer.output(old, dtype=np.int32),
        Number.kStreamOldTimes: Buffer.output(times, dtype=np.int32),
        Number.kStreamSave: save,
    }
    return Case(f"a new stream {is_new}", "save_stream", 1, LANES, buffers)


def _fill_ring(random, ring):
    """Fills the states and arcs of a ring with random numbers."""
    max_states, max_arcs = search.MAX_STATES, search.MAX_ARCS
    ring["active"] = random.integers(100, size=(max_states, 4))
    ring["num_kept"] = random.integers(-1, 3, size=max_states)
    ring["next_states"] = random.integers(9, size=max_arcs)
    ring["numbers"] = random.permutation(max_states)


def _elements(begin, count, capacity):
    """Returns the indexes of a frame's states or arcs in their ring."""
    return (begin + np.arange(count)) % capacity


def _expected_saved(ring, frame, num_states, num_arcs, base, history):
    """Returns what save_stream keeps of a ring.

    Args:
      frame: where the states and arcs begin that the next chunk can still change; a row of
        _wrapped_frames().
      num_states, num_arcs: how many they are.
      base: a state's number in the stream's lattice minus its number in the chunk.
    """
    of_states = _elements(frame[0], num_states, search.MAX_STATES)
    of_arcs = _elements(frame[2], num_arcs, search.MAX_ARCS)
    return Saved(
        active=ring["active"][of_states],
        num_kept=ring["num_kept"][of_states],
        numbers=ring["numbers"][of_states] + base,
        next_states=ring["next_states"][of_arcs],
        history=history,
    )


def _expected_times(ring, frames, frozen, base, time):
    """Returns the frames of the states that save_stream adds to a stream's lattice.

    Args:
      frozen: the frames of the chunk whose states are added.
      time: the frame of the stream that is frame 0 of the chunk.
    """
    times = _untouched(search.MAX_STATES + base)
    for t in frozen:
        for state in _elements(frames[t, 0], frames[t, 1], search.MAX_STATES):
            if ring["num_kept"][state] >= 0:
                times[ring["numbers"][state] + base] = time + t
    return times


def _wrapped_frames(sizes, frame):
    """Returns, for each frame, where its states and its arcs begin in their rings, and how many.

    The states and the arcs of one frame begin at the last elements of the rings, so that they go on
    at the first elements.

    Args:
      sizes: the numbers of states and of arcs of each frame.
      frame: the number of this one frame.
    """
    capacity = np.array([search.MAX_STATES, search.MAX_ARCS])
    before = np.cumsum(sizes, 0) - sizes
    begins = (capacity - 1 + before - before[frame]) % capacity
    return np.stack([begins[:, 0], sizes[:, 0], begins[:, 1], sizes[:, 1]], 1)


def _emit(num_old):
    """Returns a case of emit_stream.

    Args:
      num_old: how many of the lattice's arcs earlier chunks have made.
    """
    random = np.random.default_rng([num_old, 3])
    index = 5  # of the stream
    num_states, num_arcs = 9, 12  # of the stream's lattice
    base = 2  # as in _load
    first_state, first_arc = 3, 4  # where the lattice begins among all lattices
    src = np.sort(random.integers(base, num_states - 1, size=num_arcs))
    dest = random.integers(base, num_states, size=num_arcs)
    graph = np.zeros(6, ARC)
    graph["label"] = [3, 0, -1, 2, 5, 1]
    of_graph = random.integers(len(graph), size=num_arcs)
    scores = random.standard_normal(num_arcs).astype(np.float32)
    arcs = np.stack([src, dest, of_graph, scores.view(np.int32)], 1)
    lattices = np.zeros(index + 1, search.lattice_layout())
    lattices[index]["out"][: num_arcs - num_old] = arcs[num_old:] - [base, base, 0, 0]
    emit = Buffer.struct(
        EMIT,
        index=index,
        num_states=num_states,
        num_arcs=num_arcs,
        num_old_arcs=num_old,
        base=base,
        first_state=first_state,
        first_arc=first_arc,
    )
    buffers = {
        Number.kStreamOldArcs: ints(arcs[:num_old]),
        Number.kStreamLattice: Buffer(lattices.view(np.int32)),
        Number.kStreamParams: _params(1, 1),
        Number.kStreamArcs: Buffer(graph.view(np.int32)),
        **_expected_fsa(index, arcs, graph["label"][of_graph], num_states, first_state, first_arc),
        Number.kStreamEmit: emit,
    }
    return Case(f"{num_old} arcs of earlier chunks", "emit_stream", 1, LANES, buffers)


def _expected_fsa(index, arcs, labels, num_states, first_state, first_arc):
    """Returns the buffers that emit_stream writes.

    Args:
      index: the index of the stream.
      arcs: the arcs of the stream's lattice: (src, dest, arc of the graph, bits of the score).
      labels: the labels of these arcs in the graph.
      first_state, first_arc: where the lattice begins among all lattices.
    """
    src, dest, of_graph, bits = arcs.T
    is_final = dest == num_states - 1
    row_splits = first_arc + np.searchsorted(src, np.arange(num_states + 1))
    out_arcs = np.stack([src, dest, np.where(is_final, -1, labels), bits], 1)
    # An arc to the final state that has another label than -1 is no arc of the graph.
    arc_map = np.where(is_final & (labels != -1), -1, of_graph)
    written = {
        Number.kStreamRowSplits2: (first_state, row_splits),
        Number.kStreamRowIds1: (first_state, np.full(num_states, index)),
        Number.kStreamRowIds2: (first_arc, first_state + src),
        Number.kStreamOutArcs: (first_arc, out_arcs),
        Number.kStreamArcMap: (first_arc, arc_map),
    }
    return {
        number: Buffer.output(
            np.concatenate([_untouched(begin, *values.shape[1:]), values]), dtype=np.int32
        )
        for number, (begin, values) in written.items()
    }

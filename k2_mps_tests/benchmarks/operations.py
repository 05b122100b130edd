"""The operations of k2 that bench.py times.

k2_mps_tests/cuda/prepare copies this file to a machine without k2_mps_tests.
"""

import functools

import _k2
import k2
import torch

VOCABULARY = 500
TOPOLOGY = 30  # symbols of the graph for decoding
CHUNK = 32  # frames of a chunk of streaming
CONTEXTS = 8  # most contexts of a stream of RNN-T decoding
SEARCHED = 20  # frames of RNN-T decoding
BEAM = 8.0
# The names of operations whose times do not depend on B, T and S.
COPY, DISPATCH, GATE = (
    "copy of 64 MiB",
    "a dispatch and its wait",
    "1000 gates without pending work",
)
COPIED_BYTES = 64 << 20
GATES = 1000


def basics(device):
    """Yields (name, function) for operations that show what the machine itself can do."""

    def copied():
        from_, to = (torch.zeros(COPIED_BYTES // 4, device=device) for _ in range(2))
        return lambda: to.copy_(from_)

    yield COPY, _lazily(copied)
    if device != "mps":
        return

    def dispatched():
        x = torch.zeros(1, device=device)

        def dispatch():
            x.add_(1)
            torch.mps.synchronize()

        return dispatch

    yield DISPATCH, _lazily(dispatched)

    def gates():
        for _ in range(GATES):
            _k2.mps_synchronize()

    yield GATE, gates


def _lazily(make):
    """Returns a function that calls `make` in its first call, and what `make` returned in each.

    So if the inputs of an operation cannot be made, only this operation fails.
    """
    made = functools.cache(make)
    return lambda: made()()


def operations(size, device):
    """Yields (name of the operation, function that runs it) for a size on a device.

    The first call of a function makes the inputs of its operation.
    """
    num_seqs, num_frames, num_symbols = size

    @functools.cache
    def graph():
        torch.manual_seed(0)
        targets = torch.randint(1, VOCABULARY, (num_seqs, num_symbols)).tolist()
        return k2.ctc_graph(targets, device=device)

    @functools.cache
    def leaf():
        torch.manual_seed(1)
        logits = torch.randn(num_seqs, num_frames, VOCABULARY) * 2
        return logits.log_softmax(-1).to(device).requires_grad_(True)

    segments = torch.tensor([[i, 0, num_frames] for i in range(num_seqs)], dtype=torch.int32)

    def dense():
        leaf().grad = None
        return k2.DenseFsaVec(leaf(), segments)

    def lattice():
        return k2.intersect_dense(graph(), dense(), BEAM)

    def scores(double):
        lattice().get_tot_scores(use_double_scores=double, log_semiring=True).sum().backward()

    def ctc_loss(double):
        k2.ctc_loss(graph(), dense(), BEAM, use_double_scores=double).backward()

    yield "intersect_dense", lattice
    for double in (True, False):
        kind = "double" if double else "float"
        yield (
            "intersect_dense, total scores, gradient, " + kind,
            lambda double=double: scores(double),
        )
        yield ("ctc_loss with gradient, " + kind, lambda double=double: ctc_loss(double))
    yield "mutual_information_recursion with gradient", _lazily(lambda: _recursion(size, device))
    yield from _transducer(size, device)
    yield from _decoding(size, device)
    for name in ("swoosh_l", "swoosh_r"):
        yield f"{name} with gradient", _lazily(lambda name=name: _swoosh(name, size, device))


def _leaf(device, *shape):
    return torch.randn(*shape).to(device).requires_grad_(True)


def _recursion(size, device):
    num_seqs, num_frames, num_symbols = size
    torch.manual_seed(0)
    px = _leaf(device, num_seqs, num_symbols, num_frames + 1)
    py = _leaf(device, num_seqs, num_symbols + 1, num_frames)
    return lambda: k2.mutual_information_recursion(px, py).sum().backward()


def _transducer(size, device):
    """Yields the losses of RNN-T, each with its gradient."""
    num_seqs, num_frames, num_symbols = size
    pruned_range = min(5, num_symbols)

    @functools.cache
    def inputs():
        torch.manual_seed(0)
        am = _leaf(device, num_seqs, num_frames, VOCABULARY)
        lm = _leaf(device, num_seqs, num_symbols + 1, VOCABULARY)
        symbols = torch.randint(1, VOCABULARY, (num_seqs, num_symbols)).to(device)
        return am, lm, symbols

    def smoothed():
        am, lm, symbols = inputs()
        k2.rnnt_loss_smoothed(lm, am, symbols, 0).backward()

    @functools.cache
    def ranges():
        am, lm, symbols = inputs()
        _, grads = k2.rnnt_loss_smoothed(lm, am, symbols, 0, return_grad=True)
        boundary = torch.tensor([0, 0, num_symbols, num_frames], device=device)
        return k2.get_rnnt_prune_ranges(*grads, boundary.repeat(num_seqs, 1), pruned_range)

    def pruned():
        am, lm, symbols = inputs()
        joined = torch.add(*k2.do_rnnt_pruning(am, lm, ranges()))
        k2.rnnt_loss_pruned(joined, symbols, ranges(), 0).backward()

    yield "rnnt_loss_smoothed with gradient", smoothed
    yield "do_rnnt_pruning, rnnt_loss_pruned, gradient", pruned


def _decoding(size, device):
    """Yields the pruned search of whole utterances, and of the same utterances in chunks."""
    num_seqs, num_frames, _ = size
    beams = {"search_beam": 20, "output_beam": BEAM, "min_active_states": 30}

    @functools.cache
    def inputs():
        torch.manual_seed(0)
        scores = (torch.randn(num_seqs, num_frames, TOPOLOGY) * 2).log_softmax(-1)
        return k2.create_fsa_vec([k2.ctc_topo(TOPOLOGY - 1)]).to(device), scores.to(device)

    def dense(scores):
        rows = [[i, 0, scores.shape[1]] for i in range(num_seqs)]
        return k2.DenseFsaVec(scores, torch.tensor(rows, dtype=torch.int32))

    def whole():
        topology, scores = inputs()
        k2.intersect_dense_pruned(topology, dense(scores), max_active_states=500, **beams)

    def streaming():
        topology, scores = inputs()
        search = k2.OnlineDenseIntersecter(topology, num_seqs, max_active_states=500, **beams)
        states = [k2.DecodeStateInfo() for _ in range(num_seqs)]
        for chunk in scores.split(CHUNK, dim=1):
            _, states = search.decode(dense(chunk.contiguous()), states)

    yield "intersect_dense_pruned", whole
    yield f"OnlineDenseIntersecter, chunks of {CHUNK}", streaming
    yield f"RnntDecodingStreams, {SEARCHED} frames", _lazily(lambda: _search(size, device))


def _search(size, device):
    """Returns the search of a transducer's decoder, with a graph that allows all symbols."""
    num_seqs, _, _ = size
    torch.manual_seed(0)
    scores = torch.randn(SEARCHED, num_seqs * CONTEXTS, VOCABULARY) * 2
    scores = scores.log_softmax(-1).to(device)
    graph = k2.trivial_graph(VOCABULARY - 1).to(device)
    config = k2.RnntDecodingConfig(
        vocab_size=VOCABULARY,
        decoder_history_len=2,
        beam=20.0,
        max_contexts=CONTEXTS,
        max_states=64,
    )

    def search():
        streams = k2.RnntDecodingStreams(
            [k2.RnntDecodingStream(graph) for _ in range(num_seqs)], config
        )
        for frame in scores:
            shape, _ = streams.get_contexts()
            streams.advance(frame[: shape.tot_size(1)])
        streams.terminate_and_flush_to_streams()

    return search


def _swoosh(name, size, device):
    num_seqs, num_frames, _ = size
    torch.manual_seed(0)
    x = _leaf(device, num_seqs, num_frames, VOCABULARY)
    function = getattr(k2, name)
    return lambda: function(x).sum().backward()

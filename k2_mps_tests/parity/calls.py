"""Evaluates the calls in operations.toml and budgets.toml."""

from pathlib import Path

import k2
import torch
from k2mps.core.pins import tomllib

from k2_mps_tests.parity.helpers import random_fsa_vec


def table(name):
    """Returns the content of a TOML file of this folder, as a dict."""
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def variables(along=None):
    """Returns the variables of the calls, by name: k2, torch, and small inputs on mps.

    Args:
      along: a tensor without axes.  To each input with a gradient, the function adds `along` times
        a random direction, which is the same whenever the function is called.  Default: nothing
        is added, and these inputs require a gradient.
    """
    torch.manual_seed(5)
    directions = torch.Generator().manual_seed(6)

    def moved(tensor):
        if along is None:
            return tensor.requires_grad_(True)
        return tensor + along * torch.randn(tensor.shape, generator=directions).to("mps")

    def moved_scores(fsas):
        fsas.scores = moved(fsas.scores)
        return fsas

    def leaf(*shape):
        return moved(torch.randn(*shape, device="mps"))

    def indexes(values, dtype=torch.int32):
        return torch.tensor(values, dtype=dtype, device="mps")

    B, S, T, C = 3, 4, 9, 6
    segments = torch.tensor([[0, 0, 20], [1, 0, 18], [2, 0, 15]], dtype=torch.int32)
    log_probs = torch.randn(3, 20, C, device="mps").log_softmax(-1)
    if along is None:
        dense = k2.DenseFsaVec(log_probs, segments)
        dense.scores.requires_grad_(True)  # The scores are the leaf; log_probs gets no gradient.
    else:
        dense = k2.DenseFsaVec(moved(log_probs), segments)
    topo = k2.ctc_topo(C - 1, device="mps")
    am, lm = leaf(B, T, C), leaf(B, S + 1, C)
    symbols = torch.randint(1, C, (B, S), device="mps")
    boundary = indexes([[0, 0, S, T]] * B, torch.int64)
    _, grads = k2.rnnt_loss_simple(lm.detach(), am.detach(), symbols, 0, boundary, return_grad=True)
    fsas = moved_scores(random_fsa_vec(4).to("mps"))
    with_ragged = fsas.clone()
    with_ragged.tag = k2.RaggedTensor(
        [[i % 3] * (i % 3) for i in range(fsas.num_arcs)], device="mps"
    )
    # An FSA that is neither connected nor sorted.
    loose = k2.Fsa.from_str("0 1 3 0.1\n0 2 1 0.2\n1 3 -1 0.3\n3").to("mps")
    ragged = k2.RaggedTensor([[1.0, 2.0, 5.0], [3.0]], device="mps")
    streams = k2.RnntDecodingStreams(
        [k2.RnntDecodingStream(k2.trivial_graph(C - 1, device="mps"))],
        k2.RnntDecodingConfig(C, 2, 3.0, 3, 3),
    )
    return {
        "k2": k2,
        "torch": torch,
        "px": leaf(B, S, T + 1),
        "py": leaf(B, S + 1, T),
        "am": am,
        "lm": lm,
        "symbols": symbols,
        "boundary": boundary,
        "grads": grads,
        "ranges": k2.get_rnnt_prune_ranges(*grads, boundary, 3),
        "pruned_logits": leaf(B, T, 3, C),
        "x": leaf(50, 20),
        "speech": leaf(16, 40, C),
        "lengths": torch.arange(40, 24, -1),
        "fsas": fsas,
        "topo": topo,
        "dense": dense,
        "chunk": k2.DenseFsaVec(log_probs[:1], segments[:1]),
        "graph": k2.ctc_graph([[1, 2], [3], [4, 4]], device="mps"),
        "graph_on_cpu": k2.ctc_graph([[1, 2], [3], [4, 4]]),
        "lattice": k2.intersect_dense_pruned(topo, dense, 20, 8, 30, 1000),
        "with_ragged": with_ragged,
        "ragged": k2.RaggedTensor(ragged.shape, moved(ragged.values)),
        "weights": leaf(100),
        "indexes": indexes([3, 1, 4, 1, 5]),
        "values": torch.randn(5, device="mps"),
        "streams": streams,
        "loose": moved_scores(loose),
        "tokens": k2.RaggedTensor(
            [[[4, 6, 7, 1, 8], [4, 3, 7, 1, 8], [4, 3, 2, 1, 8], [5, 6, 7, 1, 8]]],
            dtype=torch.int32,
            device="mps",
        ),
        "token_scores": torch.arange(20.0, device="mps"),
        "counts": indexes([1] * 10 + [0] * 10),
        "row_splits": indexes([0, 2, 3]),
    }


def result(call, variables):
    """Evaluates a call; returns its tensor, or the values of its ragged tensor."""
    found = eval(call, variables)
    return found.values if isinstance(found, k2.RaggedTensor) else found

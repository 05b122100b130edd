"""The inputs of the calls of hostile.py, which fit together: two sequences with the labels LABELS.

The inputs are small, because hostile.py makes them for each wrong argument of a call.
"""

import k2
import torch

LABELS = [[1, 2], [3]]
# The numbers of sequences, symbols of a sequence, frames and classes.
B, S, T, C = 2, 3, 6, 5


def inputs(device):
    """Returns {name: a function that makes an input on `device`}."""
    return {
        "k2": lambda: k2,
        "torch": lambda: torch,
        "device": lambda: device,
        "symbols_table": lambda: k2.SymbolTable.from_str("a 1\nb 2"),
        **_fsas(device),
        **_lattices(device),
        **_streams(device),
        **_ragged(device),
        **_transducer(device),
    }


def _ints(device, *values, dtype=torch.int32):
    return torch.tensor(values, dtype=dtype, device=device)


def _random(device, *shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(3)).to(device)


def _fsa_vec(device):
    """Returns an FsaVec of 5 arcs with an attribute."""
    ans = k2.linear_fsa(LABELS, device)
    ans.count = torch.arange(ans.num_arcs, dtype=torch.int32, device=device)
    return ans


def _dense(device):
    return k2.DenseFsaVec(_random(device, B, T, C), _segments())


def _segments():
    return torch.tensor([[0, 0, T], [1, 0, T - 1]], dtype=torch.int32)


def _lattice(device):
    return k2.intersect_dense(k2.ctc_graph(LABELS, device=device), _dense(device), 10)


def _topo(device):
    return k2.ctc_topo(C - 1, device=device)


def _fsas(device):
    def fsts():
        return k2.linear_fst(LABELS, [[4, 5], [6]]).to(device)

    def with_ragged():
        ans = _fsa_vec(device)
        ans.tag = k2.RaggedTensor([[1, 2]] * ans.num_arcs, device=device)
        return ans

    def alignment():
        return k2.arc_sort(k2.levenshtein_graph(LABELS, device=device))

    return {
        "fsas": lambda: _fsa_vec(device),
        "plain": lambda: k2.linear_fsa(LABELS, device),
        "sorted_fsas": lambda: k2.arc_sort(k2.linear_fsa(LABELS, device)),
        "fsa": lambda: _fsa_vec(device)[0],
        "sorted_fsa": lambda: k2.arc_sort(k2.linear_fsa(LABELS[0], device)),
        "sorted_fst": lambda: k2.arc_sort(k2.linear_fst(LABELS[0], [4, 5]).to(device)),
        "fsts": fsts,
        "best": lambda: k2.shortest_path(fsts(), True),
        "with_ragged": with_ragged,
        "as_dict": lambda: _fsa_vec(device).as_dict(),
        "levenshtein": alignment,
        "hypotheses": alignment,
        # The parts of `fsa`, then those of `fsas`.
        "arcs": lambda: _fsa_vec(device)[0].arcs.values(),
        "labels": lambda: _fsa_vec(device).labels,
        "scores": lambda: _random(device, 5),
        "tags": lambda: k2.RaggedTensor([[1]] * 5, device=device),
    }


def _lattices(device):
    return {
        "topo": lambda: _topo(device),
        "topos": lambda: k2.create_fsa_vec([_topo(device)]),
        "graph": lambda: k2.ctc_graph(LABELS, device=device),
        "log_probs": lambda: _random(device, B, T, C),
        "frames": lambda: _ints("cpu", T, T - 1),
        "segments": _segments,
        "lengths": lambda: _ints(device, *map(len, LABELS)),
        "dense": lambda: _dense(device),
        "lattice": lambda: _lattice(device),
        "nbest": lambda: k2.Nbest.from_lattice(_lattice(device), 5),
    }


def _streams(device):
    def stream():
        return k2.RnntDecodingStream(k2.trivial_graph(C - 1, device))

    def config():
        return k2.RnntDecodingConfig(C, 2, 3.0, 3, 3)

    def streams():
        return k2.RnntDecodingStreams([stream(), stream()], config())

    def ended_streams():
        ans = streams()
        shape, _ = ans.get_contexts()
        ans.advance(_random(device, shape.tot_size(1), C))
        ans.terminate_and_flush_to_streams()
        return ans

    return {
        "online": lambda: k2.OnlineDenseIntersecter(
            k2.create_fsa_vec([_topo(device)]), B, 20, 8, 30, 1000
        ),
        "stream": stream,
        "config": config,
        "streams": streams,
        "ended_streams": ended_streams,
        "context_scores": lambda: _random(device, 2, C),
    }


def _ragged(device):
    """Returns the functions of ragged tensors, of shapes, and of tensors that go with them."""
    return {
        "ragged": lambda: k2.RaggedTensor([[1.0, 2.0], [3.0]], device=device),
        "ragged_indexes": lambda: k2.RaggedTensor([[1], [0]], torch.int32, device),
        "deep": lambda: k2.RaggedTensor([[[1, 2], []], [[3]]], device=device),
        "shape": lambda: k2.RaggedShape("[[[x x] [x]] [[x]]]").to(device),
        "splits": lambda: _ints(device, 0, 2, 3),
        "row_ids": lambda: _ints(device, 0, 0, 1),
        "square": lambda: _random(device, 5, 4),
        "weights": lambda: _random(device, 5),
        "values": lambda: _random(device, 3),
        "two": lambda: _random(device, 2),
        "indexes": lambda: _ints(device, 0, 1, 0),
        "two_indexes": lambda: _ints(device, 0, 1),
        "tokens": lambda: k2.RaggedTensor(
            [[[4, 6, 7, 1, 8], [5, 6, 7, 1, 8]]], torch.int32, device
        ),
        "token_scores": lambda: _random(device, 10),
        "counts": lambda: torch.ones(10, dtype=torch.int32, device=device),
    }


def _transducer(device):
    row = [0, 0, S, T]
    return {
        "am": lambda: _random(device, B, T, C),
        "lm": lambda: _random(device, B, S + 1, C),
        "logits": lambda: _random(device, B, T, S + 1, C),
        "pruned_logits": lambda: _random(device, B, T, 2, C),
        "px": lambda: _random(device, B, S, T + 1),
        "py": lambda: _random(device, B, S + 1, T),
        "px_grad": lambda: _random(device, B, S, T + 1),
        "py_grad": lambda: _random(device, B, S + 1, T),
        "symbols": lambda: torch.ones(B, S, dtype=torch.int64, device=device),
        "boundary": lambda: _ints(device, row, row, dtype=torch.int64),
        "ranges": lambda: torch.arange(2, device=device).expand(B, T, 2).contiguous(),
    }


def other_device(device):
    """Returns a device that differs from `device`."""
    return "cpu" if torch.device(device).type != "cpu" else "mps" if k2.with_mps else "meta"

"""The inputs of the calls of hostile.py."""

import k2
import torch


def inputs(device):
    """Returns {name: a function that makes an input on `device`}."""
    B, S, T, C = 2, 3, 6, 5

    def ints(*values, dtype=torch.int32):
        return torch.tensor(values, dtype=dtype, device=device)

    def random(*shape):
        return torch.rand(*shape, generator=torch.Generator().manual_seed(3)).to(device)

    def fsas():
        ans = k2.linear_fsa([[1, 2], [3]], device)
        ans.count = torch.arange(ans.num_arcs, dtype=torch.int32, device=device)
        return ans

    def fsts():
        return k2.linear_fst([[1, 2], [3]], [[4, 5], [6]]).to(device)

    def with_ragged():
        ans = fsas()
        ans.tag = k2.RaggedTensor([[1, 2]] * ans.num_arcs, device=device)
        return ans

    def dense():
        return k2.DenseFsaVec(random(B, T, C), segments())

    def segments():
        return torch.tensor([[0, 0, T], [1, 0, T - 1]], dtype=torch.int32)

    def stream():
        return k2.RnntDecodingStream(k2.trivial_graph(C - 1, device))

    def config():
        return k2.RnntDecodingConfig(C, 2, 3.0, 3, 3)

    def ended_streams():
        ans = k2.RnntDecodingStreams([stream(), stream()], config())
        shape, _ = ans.get_contexts()
        ans.advance(random(shape.tot_size(1), C))
        ans.terminate_and_flush_to_streams()
        return ans

    def symbols():
        return torch.ones(B, S, dtype=torch.int64, device=device)

    def boundary():
        return ints([0, 0, S, T], [0, 0, S, T], dtype=torch.int64)

    def ranges():
        return torch.arange(2, device=device).expand(B, T, 2).contiguous()

    def alignment():
        return k2.arc_sort(k2.levenshtein_graph([[1, 2], [3]], device=device))

    return {
        "k2": lambda: k2,
        "torch": lambda: torch,
        "device": lambda: device,
        "fsas": fsas,
        "plain": lambda: k2.linear_fsa([[1, 2], [3]], device),
        "sorted_fsas": lambda: k2.arc_sort(k2.linear_fsa([[1, 2], [3]], device)),
        "fsa": lambda: fsas()[0],
        "sorted_fsa": lambda: k2.arc_sort(k2.linear_fsa([1, 2], device)),
        "sorted_fst": lambda: k2.arc_sort(k2.linear_fst([1, 2], [4, 5]).to(device)),
        "fsts": fsts,
        "best": lambda: k2.shortest_path(fsts(), True),
        "with_ragged": with_ragged,
        "as_dict": lambda: fsas().as_dict(),
        "arcs": lambda: fsas()[0].arcs.values(),
        "labels": lambda: fsas().labels,
        "scores": lambda: random(5),
        "tags": lambda: k2.RaggedTensor([[1]] * 5, device=device),
        "topo": lambda: k2.ctc_topo(C - 1, device=device),
        "topos": lambda: k2.create_fsa_vec([k2.ctc_topo(C - 1, device=device)]),
        "graph": lambda: k2.ctc_graph([[1, 2], [3]], device=device),
        "lattice": lambda: k2.intersect_dense(
            k2.ctc_graph([[1, 2], [3]], device=device), dense(), 10
        ),
        "levenshtein": alignment,
        "hypotheses": alignment,
        "log_probs": lambda: random(B, T, C),
        "frames": lambda: ints(T, T - 1).cpu(),
        "segments": segments,
        "lengths": lambda: ints(2, 1),
        "dense": dense,
        "online": lambda: k2.OnlineDenseIntersecter(
            k2.create_fsa_vec([k2.ctc_topo(C - 1, device=device)]), B, 20, 8, 30, 1000
        ),
        "nbest": lambda: k2.Nbest.from_lattice(
            k2.intersect_dense(k2.ctc_graph([[1, 2], [3]], device=device), dense(), 10), 5
        ),
        "ragged": lambda: k2.RaggedTensor([[1.0, 2.0], [3.0]], device=device),
        "ragged_indexes": lambda: k2.RaggedTensor([[1], [0]], torch.int32, device),
        "deep": lambda: k2.RaggedTensor([[[1, 2], []], [[3]]], device=device),
        "shape": lambda: k2.RaggedShape("[[[x x] [x]] [[x]]]").to(device),
        "splits": lambda: ints(0, 2, 3),
        "row_ids": lambda: ints(0, 0, 1),
        "square": lambda: random(5, 4),
        "weights": lambda: random(5),
        "values": lambda: random(3),
        "two": lambda: random(2),
        "indexes": lambda: ints(0, 1, 0),
        "two_indexes": lambda: ints(0, 1),
        "tokens": lambda: k2.RaggedTensor(
            [[[4, 6, 7, 1, 8], [5, 6, 7, 1, 8]]], torch.int32, device
        ),
        "token_scores": lambda: random(10),
        "counts": lambda: torch.ones(10, dtype=torch.int32, device=device),
        "stream": stream,
        "config": config,
        "streams": lambda: k2.RnntDecodingStreams([stream(), stream()], config()),
        "ended_streams": ended_streams,
        "context_scores": lambda: random(2, C),
        "symbols_table": lambda: k2.SymbolTable.from_str("a 1\nb 2"),
        "am": lambda: random(B, T, C),
        "lm": lambda: random(B, S + 1, C),
        "logits": lambda: random(B, T, S + 1, C),
        "pruned_logits": lambda: random(B, T, 2, C),
        "px": lambda: random(B, S, T + 1),
        "py": lambda: random(B, S + 1, T),
        "px_grad": lambda: random(B, S, T + 1),
        "py_grad": lambda: random(B, S + 1, T),
        "symbols": symbols,
        "boundary": boundary,
        "ranges": ranges,
    }


def other_device(device):
    """Returns a device that differs from `device`."""
    return "cpu" if torch.device(device).type != "cpu" else "mps" if k2.with_mps else "meta"

"""Draws random inputs of intersect_dense and of CTC on the CPU, with torch's generator."""

import k2
import torch


def pick(*values):
    """Returns one of the values, drawn with torch's generator."""
    return values[int(torch.randint(len(values), ()))]


def random_graph(num_symbols: int) -> k2.Fsa:
    """Returns a graph of two or more states, with loops, parallel arcs and dead ends."""
    num_states = pick(2, 3, 5, 8, 40)
    lines = []
    for state in range(num_states - 1):
        for label in sorted(torch.randint(0, num_symbols, (pick(0, 1, 3, 5),)).tolist()):
            dest = int(torch.randint(0, num_states - 1, ()))
            lines.append(f"{state} {dest} {label} {float(torch.randn(())):.4f}")
        if pick(True, False) or state == num_states - 2:
            lines.append(f"{state} {num_states - 1} -1 {float(torch.randn(())):.4f}")
    return k2.Fsa.from_str("\n".join(lines + [str(num_states - 1)]))


KINDS = ("ctc", "modified", "topo", "random", "mixed")


def random_graphs(kind: str, num_symbols: int, num_fsas: int) -> k2.Fsa:
    """Returns an FsaVec of decoding graphs; `kind` is one of KINDS."""
    if kind in ("ctc", "modified"):
        lengths = [pick(0, 1, 4, 20) for _ in range(num_fsas)]
        targets = [torch.randint(1, num_symbols, (length,)).tolist() for length in lengths]
        return k2.ctc_graph(targets, modified=kind == "modified")
    topo = k2.ctc_topo(num_symbols - 1, modified=kind == "topo" and pick(True, False))
    if kind == "topo":
        return k2.create_fsa_vec([topo] * num_fsas)
    topo = k2.Fsa(topo.arcs)  # no aux_labels
    return k2.create_fsa_vec(
        [
            topo if kind == "mixed" and i % 2 == 0 else random_graph(num_symbols)
            for i in range(num_fsas)
        ]
    )


def random_scores(
    num_seqs: int, num_frames: int, num_symbols: int, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns log-probs of shape (num_seqs, num_frames, num_symbols), and segments.

    Each row of the log-probs has one segment.  The longest segment is the first, and the rows of
    the segments are in random order.  Some segments begin after frame 0, and some are empty.
    """
    lengths = torch.randint(0, num_frames + 1, (num_seqs,)).sort(descending=True).values
    starts = [
        min(int(torch.randint(0, num_frames - int(n) + 1, ())), num_frames - 1) for n in lengths
    ]
    segments = torch.stack([torch.randperm(num_seqs), torch.tensor(starts), lengths], dim=1)
    logits = torch.randn(num_seqs, num_frames, num_symbols) * scale
    return logits.log_softmax(-1), segments.int()


def bush(num_states: int) -> k2.Fsa:
    """Returns an FsaVec of one graph: a first state, many inner states, and a last state.

    Arcs lead from the first state to each inner state.  Arcs lead from each inner state to three
    inner states and to the last state.
    """
    last = num_states - 1
    lines = [f"0 {i} {1 + i % 5} 0" for i in range(1, last)]
    lines += [f"{i} {j} {1 + j % 5} 0" for i in range(1, last) for j in (1, i, last - 1)]
    lines += [f"{i} {last} -1 0" for i in range(1, last)]
    lines = sorted(lines, key=lambda line: int(line.split()[0]))
    return k2.create_fsa_vec([k2.arc_sort(k2.Fsa.from_str("\n".join([*lines, str(last)])))])


def loops(num_states: int) -> k2.Fsa:
    """Returns an FsaVec of one graph, whose lattices have one arc for each state and frame.

    Arcs lead from the first state to each inner state, and from each inner state to itself and to
    the last state.
    """
    last = num_states - 1
    lines = [f"0 {i} 1 0" for i in range(1, last)]
    for i in range(1, last):
        lines += [f"{i} {i} 1 0", f"{i} {last} -1 0"]
    return k2.create_fsa_vec([k2.Fsa.from_str("\n".join([*lines, str(last)]))])

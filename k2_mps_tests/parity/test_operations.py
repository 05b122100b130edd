"""operations.toml: each operation runs in the place that the table gives."""

from pathlib import Path

import k2
import pytest
import torch
from k2.mps import bridge
from k2mps.core.pins import tomllib

from k2_mps_tests.parity.helpers import random_fsa_vec

TABLE = Path(__file__).with_name("operations.toml")
OPERATIONS = [
    (names.split(", "), call, group["on"], group.get("gradient"))
    for group in tomllib.loads(TABLE.read_text(encoding="utf-8"))["operations"]
    for names, call in group["calls"].items()
]
# Where both can do it, the host does these small problems, and Metal does what it is forced to.
CASES = [
    pytest.param(
        names,
        call,
        who if on == "either" else on,
        who if gradient == "either" else gradient,
        who,
        id=names[0] + (f"-{who}" if "either" in (on, gradient) else ""),
    )
    for names, call, on, gradient in OPERATIONS
    for who in (("host", "metal") if "either" in (on, gradient) else ("host",))
]


def _variables():
    """The variables in the table's calls, all on mps."""
    torch.manual_seed(5)

    def leaf(*shape):
        return torch.randn(*shape, device="mps", requires_grad=True)

    def indexes(values, dtype=torch.int32):
        return torch.tensor(values, dtype=dtype, device="mps")

    B, S, T, C = 3, 4, 9, 6
    segments = torch.tensor([[0, 0, 20], [1, 0, 18], [2, 0, 15]], dtype=torch.int32)
    log_probs = torch.randn(3, 20, C, device="mps").log_softmax(-1)
    dense = k2.DenseFsaVec(log_probs, segments)
    dense.scores.requires_grad_(True)  # keeps gradients from reaching the leaf
    topo = k2.ctc_topo(C - 1, device="mps")
    am, lm = leaf(B, T, C), leaf(B, S + 1, C)
    symbols = torch.randint(1, C, (B, S), device="mps")
    boundary = indexes([[0, 0, S, T]] * B, torch.int64)
    _, grads = k2.rnnt_loss_simple(lm.detach(), am.detach(), symbols, 0, boundary, return_grad=True)
    fsas = random_fsa_vec(4).to("mps").requires_grad_(True)
    with_ragged = fsas.clone()
    with_ragged.tag = k2.RaggedTensor(
        [[i % 3] * (i % 3) for i in range(fsas.num_arcs)], device="mps"
    )
    # An FSA that is neither connected nor sorted.
    loose = k2.Fsa.from_str("0 1 3 0.1\n0 2 1 0.2\n1 3 -1 0.3\n3")
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
        "logits": leaf(B, T, 3, C),
        "x": leaf(50, 20),
        "speech": leaf(16, 40, C),
        "lengths": torch.arange(40, 24, -1),
        "fsas": fsas,
        "topo": topo,
        "dense": dense,
        "chunk": k2.DenseFsaVec(log_probs[:1], segments[:1]),
        "graph": k2.ctc_graph([[1, 2], [3], [4, 4]], device="mps"),
        "lattice": k2.intersect_dense_pruned(topo, dense, 20, 8, 30, 1000),
        "with_ragged": with_ragged,
        "ragged": k2.RaggedTensor([[1.0, 2.0, 5.0], [3.0]], device="mps").requires_grad_(True),
        "weights": leaf(100),
        "indexes": indexes([3, 1, 4, 1, 5]),
        "values": torch.randn(5, device="mps"),
        "streams": streams,
        "loose": loose.to("mps").requires_grad_(True),
        "tokens": k2.RaggedTensor(
            [[[4, 6, 7, 1, 8], [4, 3, 7, 1, 8], [4, 3, 2, 1, 8], [5, 6, 7, 1, 8]]],
            dtype=torch.int32,
            device="mps",
        ),
        "scores": torch.arange(20.0, device="mps"),
        "counts": indexes([1] * 10 + [0] * 10),
    }


def _where(counted, moved=()):
    """The place of an operation, by its counts.

    Args:
      moved: the tensors that k2.mps.bridge took to the CPU.  k2 counts only copies
        that torch does not make.
    """
    if counted.dispatches:
        return "metal"
    if moved:
        return "cpu"
    # Both directions: a size that k2 reads back goes only to the CPU.
    if counted.bytes_to_cpu > SMALL and counted.bytes_to_mps > SMALL:
        return "cpu"
    return "host" if counted.gates else "aten"


# In bytes.  Host code makes small arrays on the CPU, like the pointers to the FSAs of
# a batch, and moves them.  The FSAs and ragged tensors here are larger.
SMALL = 600


def _named(name):
    found = k2
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("names, call, on, gradient, who", CASES)
def test_an_operation_runs_where_the_table_says(names, call, on, gradient, who, monkeypatch):
    for name in names:
        assert callable(_named(name))
    if who == "metal":
        monkeypatch.setenv("K2_MPS_FORCE", who)
    else:
        monkeypatch.delenv("K2_MPS_FORCE", raising=False)
    variables = _variables()
    moved, move = [], bridge._move
    monkeypatch.setattr(
        bridge, "_move", lambda value, device: moved.append(value) or move(value, device)
    )
    torch.mps.synchronize()
    with k2.mps.counters() as forward:
        result = eval(call, variables)
    assert _where(forward, moved) == on, forward
    if not gradient:
        return
    if gradient == "metal" and forward.dispatches == 2:
        return  # k2 computed this gradient in the forward pass and only scales it later.
    if isinstance(result, k2.RaggedTensor):
        result = result.values
    assert result.requires_grad
    total = result.sum()
    torch.mps.synchronize()
    with k2.mps.counters() as backward:
        total.backward()
    assert _where(backward) == gradient, backward


def test_no_operation_is_named_twice():
    names = [name for some, *_ in OPERATIONS for name in some]
    assert len(set(names)) == len(names)

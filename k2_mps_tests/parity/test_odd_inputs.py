"""Edge cases of FSAs and losses, and inputs that k2 must refuse."""

import k2
import pytest
import torch

from k2_mps_tests.parity import accuracy
from k2_mps_tests.parity.helpers import MPS, assert_same, random_fsa_vec

SEMIRINGS = pytest.mark.parametrize("log_semiring", [True, False])


def _fsa(text):
    """An FSA in k2's text format, in which a score of 999 stands for -infinity."""
    fsa = k2.Fsa.from_str(text.replace("-inf", "999"))
    scores = fsa.scores.clone()
    scores[scores == 999] = float("-inf")
    fsa.scores = scores
    return fsa


def _scores(text_or_fsas, device, log_semiring):
    """Returns total scores in double, and their gradient."""
    fsas = [_fsa(f) if isinstance(f, str) else f for f in text_or_fsas]
    vec = k2.create_fsa_vec(fsas).to(device).requires_grad_(True)
    tot = vec.get_tot_scores(use_double_scores=True, log_semiring=log_semiring)
    tot.sum().backward()
    return tot.detach(), vec.grad


ODD_FSAS = {
    "empty": [""],
    "empty_among_others": ["", "0 1 -1 0.5\n1", ""],
    "two_states": ["0 1 -1 0.25\n1"],
    "not_connected": ["0 1 1 0.1\n2 3 -1 0.2\n3"],
    "no_way_to_the_final_state": ["0 1 1 0.1\n0 2 1 0.3\n3"],
    "parallel_arcs": ["0 1 1 0.5\n0 1 1 0.5\n0 1 2 0.5\n1 2 -1 0\n2"],
    "ties": ["0 1 1 1\n0 2 2 1\n1 3 3 1\n2 3 4 1\n3 4 -1 0\n4"],
    "minus_infinity": ["0 1 1 -inf\n0 1 2 1\n1 2 -1 0\n2"],
    "only_minus_infinity": ["0 1 1 -inf\n1 2 -1 0\n2"],
    "large": ["0 1 1 1e30\n0 1 2 -1e30\n1 2 -1 3e30\n2"],
}


@SEMIRINGS
@pytest.mark.parametrize("name", ODD_FSAS)
def test_odd_fsas(name, log_semiring):
    cpu, cpu_grad = _scores(ODD_FSAS[name], "cpu", log_semiring)
    mps, mps_grad = _scores(ODD_FSAS[name], "mps", log_semiring)
    assert_same(mps, cpu.float())
    assert_same(mps_grad, cpu_grad)


@pytest.mark.parametrize("batch", [1, 500])
def test_batches(batch):
    torch.manual_seed(53)
    pool = [random_fsa_vec(1)[0] for _ in range(5)]
    fsas = [pool[i % 5] for i in range(batch)]
    cpu, cpu_grad = _scores(fsas, "cpu", True)
    mps, mps_grad = _scores(fsas, "mps", True)
    assert_same(mps, cpu.float())
    assert_same(mps_grad, cpu_grad)


def test_a_million_arcs(placement):
    states, width = 1000, 1000
    src = torch.arange(states).repeat_interleave(width)
    arcs = torch.stack(
        [src, src + 1, torch.arange(width).repeat(states) + 1, torch.zeros_like(src)], dim=1
    ).to(torch.int32)
    torch.manual_seed(59)
    arcs[:, 3] = torch.randn(len(arcs)).view(torch.int32)
    final = torch.tensor([[states, states + 1, -1, 0]], dtype=torch.int32)
    fsa = k2.Fsa(torch.cat([arcs, final]))
    cpu, cpu_grad = _scores([fsa], "cpu", True)
    mps, mps_grad = _scores([fsa], "mps", True)
    assert_same(mps, cpu.float())
    # The tolerance of Metal's double precision, see accuracy.py.
    assert_same(
        mps_grad,
        cpu_grad,
        rtol=0,
        atol=0 if placement == "host" else accuracy.MAX_GRADIENT * cpu_grad.abs().max().item(),
    )


def _ctc(device, segments, targets, num_frames=8, beam=10.0):
    torch.manual_seed(61)
    leaf = torch.randn(3, num_frames, 5).to(device).requires_grad_(True)
    dense = k2.DenseFsaVec(leaf.log_softmax(-1), torch.tensor(segments, dtype=torch.int32))
    loss = k2.ctc_loss(
        k2.ctc_graph(targets, device=device), dense, output_beam=beam, reduction="none"
    )
    loss.sum().backward()
    return loss.detach(), leaf.grad


CTC = {
    "a_target_longer_than_the_frames": ([[0, 0, 8], [1, 0, 1], [2, 0, 8]], [[1], [1, 2, 3], [4]]),
    "an_empty_target": ([[0, 0, 8], [1, 0, 8], [2, 0, 8]], [[1], [], [4]]),
    "one_frame": ([[0, 0, 1], [1, 0, 1], [2, 0, 1]], [[1], [2], [4]]),
    "an_offset": ([[0, 3, 5], [1, 1, 4], [2, 7, 1]], [[1], [2, 2], [4]]),
    "one_sequence_twice": ([[2, 0, 8], [2, 0, 8], [2, 0, 3]], [[1], [2], [3]]),
}


@pytest.mark.parametrize("name", CTC)
def test_ctc(name):
    # k2 requires the longest sequence first.
    segments, targets = CTC[name]
    order = sorted(range(3), key=lambda i: -segments[i][2])
    segments = [segments[i] for i in order]
    targets = [targets[i] for i in order]
    cpu, cpu_grad = _ctc("cpu", segments, targets)
    mps, mps_grad = _ctc("mps", segments, targets)
    assert_same(mps, cpu.float())
    # torch runs the backward pass of log_softmax.
    assert_same(mps_grad, cpu_grad, atol=5e-7, rtol=0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinity_in_log_probs(value):
    results = []
    for device in ("cpu", "mps"):
        torch.manual_seed(67)
        scores = torch.randn(2, 6, 4).log_softmax(-1)
        scores[0, 2, 1] = value
        leaf = scores.to(device).requires_grad_(True)
        dense = k2.DenseFsaVec(leaf, torch.tensor([[0, 0, 6], [1, 0, 6]], dtype=torch.int32))
        try:
            lattice = k2.intersect_dense(k2.ctc_graph([[1], [2]], device=device), dense, 10)
            tot = lattice.get_tot_scores(use_double_scores=True, log_semiring=True)
            tot.sum().backward()
            results.append((tot.detach(), leaf.grad))
        except RuntimeError:
            results.append(None)
    cpu, mps = results
    assert (cpu is None) == (mps is None)
    if cpu is not None:
        assert_same(mps[0], cpu[0].float())
        assert_same(mps[1], cpu[1])


def _dense(device, dtype=torch.float32):
    scores = torch.randn(1, 4, 4, device=device).log_softmax(-1).to(dtype)
    return k2.DenseFsaVec(scores, torch.tensor([[0, 0, 4]], dtype=torch.int32))


def _i32(values, device):
    return torch.tensor(values, dtype=torch.int32, device=device)


REFUSED = {
    "graph_on_the_cpu": lambda: k2.intersect_dense(k2.ctc_graph([[1]]), _dense("mps"), 10),
    "graph_on_mps": lambda: k2.intersect_dense(
        k2.ctc_graph([[1]], device="mps"), _dense("cpu"), 10
    ),
    "pruned": lambda: k2.intersect_dense_pruned(k2.ctc_topo(3), _dense("mps"), 8, 5, 5, 50),
    "index_on_the_cpu": lambda: k2.index_select(torch.randn(4, device="mps"), _i32([0], "cpu")),
    "index_of_int64": lambda: k2.index_select(
        torch.randn(4, device="mps"), torch.tensor([0], device="mps")
    ),
    "index_add_on_the_cpu": lambda: k2.index_add(
        _i32([0], "cpu"), torch.ones(1, device="mps"), torch.ones(3, device="mps")
    ),
    "attribute_on_the_cpu": lambda: setattr(random_fsa_vec(1).to("mps"), "scores", torch.zeros(3)),
    "dense_of_float16": lambda: _dense("mps", torch.float16),
    "row_splits_of_int64": lambda: k2.ragged.create_ragged_shape2(
        row_splits=torch.tensor([0, 2], device="mps")
    ),
    "swoosh_of_an_unknown_device": lambda: k2.swoosh_l(torch.randn(3, device="meta")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_an_exception(name):
    with pytest.raises((RuntimeError, AssertionError, ValueError)):
        REFUSED[name]()
    # k2 still works.
    fsas = random_fsa_vec(1).to("mps")
    scores = fsas.get_tot_scores(use_double_scores=True, log_semiring=True)
    assert scores.device == MPS


def _segments(device="cpu", dtype=torch.int32):
    return torch.tensor([[0, 0, 4]], dtype=dtype, device=device)


# The error names the tensor with the wrong device or dtype, and the call that corrects it.
MIXED = {
    "graph_on_the_cpu": (REFUSED["graph_on_the_cpu"], "cpu", "mps:0", "graph.to('mps:0')"),
    "graph_on_mps": (REFUSED["graph_on_mps"], "mps:0", "cpu", "log_probs.to('mps:0')"),
    "pruned": (REFUSED["pruned"], "cpu", "mps:0", "graph.to('mps:0')"),
    "ctc_loss": (
        lambda: k2.ctc_loss(k2.ctc_graph([[1]]), _dense("mps")),
        "cpu",
        "mps:0",
        "graph.to('mps:0')",
    ),
    "segments_on_mps": (
        lambda: k2.DenseFsaVec(torch.zeros(1, 4, 4, device="mps"), _segments("mps")),
        "mps:0",
        "cpu",
        "supervision_segments.cpu()",
    ),
    "segments_of_int64": (
        lambda: k2.DenseFsaVec(torch.zeros(1, 4, 4, device="mps"), _segments(dtype=torch.int64)),
        "torch.int64",
        "torch.int32",
        "supervision_segments.int()",
    ),
    "float64": (
        lambda: _dense("cpu", torch.float64),
        "torch.float64",
        "torch.float32",
        "log_probs.float()",
    ),
    "float16": (REFUSED["dense_of_float16"], "torch.float16", "torch.float32", "log_probs.float()"),
}


@pytest.mark.parametrize("name", MIXED)
def test_a_mix_is_refused_in_one_line(name, capfd):
    call, *words = MIXED[name]
    with pytest.raises((RuntimeError, AssertionError)) as refused:
        call()
    told = str(refused.value)
    assert "\n" not in told
    assert [word for word in words if word not in told] == []
    # k2's own checks print a stack trace.
    assert capfd.readouterr().err == ""

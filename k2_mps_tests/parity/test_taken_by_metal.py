"""k2's kernels take the arguments that k2 documents, and other code gets all other arguments.

Each case differs from a good call in one argument.
"""

import functools
import inspect
import re
import types

import k2
import pytest
import torch
from k2.mps import (
    ctc,
    lattice,
    pruned,
    rnnt_boundary,
    rnnt_pruned,
    rnnt_pruning,
    rnnt_smoothed,
    streams,
)

from k2_mps_tests.parity.helpers import MPS


def _zeros(*shape, dtype=torch.float32, device=MPS):
    return torch.zeros(shape, dtype=dtype, device=device)


def _i64(*shape, **how):
    return _zeros(*shape, **{"dtype": torch.int64, **how})


def _large(*shape, dtype=torch.float32):
    """Returns a tensor whose elements all have the same memory."""
    return torch.zeros(1, dtype=dtype, device=MPS).expand(shape)


CPU, I32 = {"device": "cpu"}, {"dtype": torch.int32}

# ---- the pruned loss: two sequences of 5 frames and 4 symbols, ranges of 3, and 6 classes

PRUNED = {
    "logits": _zeros(2, 5, 3, 6),
    "symbols": _i64(2, 4),
    "ranges": _i64(2, 5, 3),
    "termination_symbol": 0,
    "boundary": _i64(2, 4),
    "use_hat_loss": False,
}
WITHOUT_RANGES = {"logits": _zeros(2, 5, 5, 6), "ranges": None}
# The kernels count up to 8 * B * T * (S + 1) in int32.
LONG = 26843545
PRUNED_CASES = [
    ({}, True),
    ({"boundary": None}, True),
    (WITHOUT_RANGES, True),
    ({"logits": _zeros(2, 5, 5, 6), "ranges": _i64(2, 5, 5)}, True),
    ({"termination_symbol": 5}, True),
    ({"use_hat_loss": True}, True),
    ({"logits": _zeros(2, 5, 3, 6, dtype=torch.float16)}, True),
    ({"logits": _large(2, LONG, 5, 1), "ranges": None}, True),
    ({"logits": _large(2, LONG + 1, 5, 1), "ranges": None}, False),
    ({"logits": _zeros(2, 5, 3, 6, **CPU)}, False),
    ({"logits": _zeros(2, 5, 3, 6, **I32)}, False),
    ({"logits": _zeros(2, 5, 3)}, False),
    ({"logits": _zeros(2, 5, 5, 6), "ranges": None, "symbols": _i64(8)}, False),
    (
        {
            "logits": _zeros(0, 5, 3, 6),
            "symbols": _i64(0, 4),
            "ranges": _i64(0, 5, 3),
            "boundary": _i64(0, 4),
        },
        False,
    ),
    ({"symbols": _i64(2, 4, **I32)}, False),
    ({"symbols": _i64(2, 4, **CPU)}, False),
    ({"symbols": _i64(3, 4)}, False),
    ({"ranges": _i64(2, 5, 3, **I32)}, False),
    ({"ranges": _i64(2, 5, 3, **CPU)}, False),
    ({"ranges": _i64(2, 5, 2)}, False),
    ({"boundary": _i64(2, 4, **I32)}, False),
    ({"boundary": _i64(2, 4, **CPU)}, False),
    ({"boundary": _i64(2, 3)}, False),
    ({"termination_symbol": -1}, False),
    ({"termination_symbol": 6}, False),
    ({"use_hat_loss": True, "termination_symbol": 1}, False),
    ({"ranges": None}, False),
    ({"logits": _zeros(2, 5, 6, 6), "ranges": _i64(2, 5, 6)}, False),
]

# ---- the ranges

RANGES = {"px_grad": _zeros(2, 4, 6), "py_grad": _zeros(2, 5, 5), "boundary": _i64(2, 4)}
# The kernel counts (S + 1) * (T + 1) twice in int32.
MANY = 2**29 - 2
RANGES_CASES = [
    ({}, True),
    ({"px_grad": _zeros(2, 4, 6, **CPU)}, False),
    ({"py_grad": _zeros(2, 5, 5, **CPU)}, False),
    ({"boundary": _i64(2, 4, **CPU)}, False),
    ({"px_grad": _zeros(2, 4, 6, dtype=torch.float16)}, False),
    ({"py_grad": _zeros(2, 5, 5, dtype=torch.float16)}, False),
    ({"boundary": _i64(2, 4, **I32)}, False),
    ({"px_grad": _zeros(2, 4, 1), "py_grad": _zeros(2, 5, 0)}, False),
    ({"px_grad": _large(2, 1, MANY + 1), "py_grad": _large(2, 2, MANY)}, True),
    ({"px_grad": _large(2, 1, MANY + 2), "py_grad": _large(2, 2, MANY + 1)}, False),
]

# ---- the pruning

PRUNING = {"am": _zeros(2, 5, 7), "lm": _zeros(2, 4, 7), "ranges": _i64(2, 5, 3)}
# The kernels have 256 threads for each row of lm and 32 for each frame, and number threads and
# elements in int32.
ROWS, FRAMES, POSITIONS = 8388606, 67108847, 2147483
PRUNING_CASES = [
    ({}, True),
    ({"lm": _zeros(2, 4, 7, **CPU)}, False),
    ({"lm": _zeros(2, 4, 7, **I32)}, False),
    ({"am": _zeros(2, 5, 7, **CPU)}, False),
    ({"ranges": _i64(2, 5, 3, **CPU)}, False),
    ({"ranges": _i64(2, 5, 3, **I32)}, False),
    ({"ranges": _i64(2, 5, 0)}, False),
    ({"am": _zeros(2, 5, 0)}, False),
    ({"lm": _zeros(2, 4, 0)}, False),
]
for rows, frames, positions, taken in (
    *((ROWS, 1, 1, True), (ROWS + 1, 1, 1, False)),
    *((1, FRAMES, 1, True), (1, FRAMES + 1, 1, False)),
    *((1, 1000, POSITIONS, True), (1, 1000, POSITIONS + 1, False)),
):
    large = {"am": _large(1, frames, 1), "lm": _large(1, rows, 1)}
    large["ranges"] = _large(1, frames, positions, dtype=torch.int64)
    PRUNING_CASES.append((large, taken))

# ---- the smoothed and the simple loss

SMOOTHED = {
    "lm": _zeros(2, 4, 6),
    "am": _zeros(2, 5, 6),
    "symbols": _i64(2, 3),
    "termination_symbol": 0,
    "boundary": _i64(2, 4),
    "rnnt_type": "regular",
    "reduction": "sum",
}
SMOOTHED_CASES = [
    ({}, True),
    ({"boundary": None}, True),
    ({"lm": _zeros(2, 4, 6, dtype=torch.float16)}, True),
    ({"termination_symbol": 5}, True),
    ({"symbols": _i64(2, 0), "lm": _zeros(2, 1, 6)}, True),
    ({"am": _zeros(2, 5, 6, **CPU)}, False),
    ({"lm": _zeros(2, 4, 6, **CPU)}, False),
    ({"symbols": _i64(2, 3, **CPU)}, False),
    ({"boundary": _i64(2, 4, **CPU)}, False),
    ({"am": _zeros(2, 5, 6, **I32)}, False),
    ({"lm": _zeros(2, 4, 6, **I32)}, False),
    ({"symbols": _i64(2, 3, **I32)}, False),
    ({"boundary": _i64(2, 4, **I32)}, False),
    ({"am": _zeros(10, 6)}, False),
    ({"lm": _zeros(8)}, False),
    ({"am": _zeros(2, 0, 6)}, False),
    ({"lm": _zeros(2, 4, 5)}, False),
    ({"symbols": _i64(2, 2)}, False),
    ({"boundary": _i64(2, 3)}, False),
    ({"termination_symbol": -1}, False),
    ({"termination_symbol": 6}, False),
    ({"rnnt_type": "other"}, False),
    ({"reduction": "max"}, False),
]


@pytest.mark.parametrize(
    "in_metal, good, cases",
    [
        (rnnt_pruned.in_metal, PRUNED, PRUNED_CASES),
        (rnnt_pruning.ranges_in_metal, RANGES, RANGES_CASES),
        (rnnt_pruning.in_metal, PRUNING, PRUNING_CASES),
        (rnnt_smoothed.in_metal, SMOOTHED, SMOOTHED_CASES),
    ],
    ids=["pruned loss", "ranges", "pruning", "smoothed loss"],
)
def test_the_kernels_take_documented_arguments(in_metal, good, cases):
    wrong = [
        (number, changed.keys(), taken)
        for number, (changed, taken) in enumerate(cases)
        if in_metal(**{**good, **changed}) != taken
    ]
    assert not wrong


# ---- the boundary


@pytest.mark.parametrize(
    "rows, right",
    [
        ([[0, 0, 3, 5]], True),
        ([[3, 5, 3, 5]], True),
        ([[0, 0, 2, 2]], True),
        ([[0, 0, 3, 2]], False),
        ([[-1, 0, 3, 5]], False),
        ([[3, 0, 2, 5]], False),
        ([[0, 0, 4, 5]], False),
        ([[0, -1, 3, 5]], False),
        ([[0, 5, 3, 4]], False),
        ([[0, 0, 3, 6]], False),
        ([[0, 0, 3, 5]] * 2, False),
    ],
)
def test_a_wrong_boundary_is_an_error(rows, right):
    """There are three symbols and five frames, and no fewer frames than symbols are allowed."""
    boundary = torch.tensor(rows, device=MPS)
    check = functools.partial(rnnt_boundary.check_boundary, B=1, S=3, T=5, may_lack_paths=False)
    if right:
        check(boundary)
        with pytest.raises(AssertionError, match="int32"):
            check(boundary.int())
    else:
        with pytest.raises(AssertionError):
            check(boundary)


def test_a_sequence_may_lack_paths():
    for boundary, S, T in ((torch.tensor([[0, 0, 3, 2]], device=MPS), 3, 5), (None, 3, 2)):
        rnnt_boundary.check_boundary(boundary, 1, S, T, may_lack_paths=True)
        with pytest.raises(AssertionError, match="requires T >= S, but got T=2 and S=3"):
            rnnt_boundary.check_boundary(boundary, 1, S, T, may_lack_paths=False)


def test_a_boundary_of_inference_mode_has_no_version():
    values = torch.tensor([[0, 0, 2, 5]])
    with torch.inference_mode():
        boundary = values.to(MPS, copy=True)
        k2.mps.know_boundary(boundary, values.clone())
        assert rnnt_boundary.boundary_rows(boundary) == values.tolist()
        boundary[0, 3] = 1
        assert rnnt_boundary.boundary_rows(boundary) == [[0, 0, 2, 1]]


def test_the_values_of_a_boundary_must_be_on_the_cpu():
    boundary = torch.zeros(1, 4, dtype=torch.int64, device=MPS)
    with pytest.raises(ValueError, match="values must be a tensor on the CPU"):
        k2.mps.know_boundary(boundary, boundary)


# ---- graphs and scores: two sequences of 4 frames and 3 classes

LABELS = [[1, 2], [2, 1]]
GRAPHS = k2.ctc_graph(LABELS, device=MPS)
SEGMENTS = torch.tensor([[0, 0, 4], [1, 0, 4]], dtype=torch.int32)
DENSE = k2.DenseFsaVec(torch.zeros(2, 4, 3, device=MPS), SEGMENTS)
NO_GRAPHS = k2.index_fsa(GRAPHS, torch.zeros(0, dtype=torch.int32, device=MPS))
# {what differs: (graphs, scores)}
OTHER = {
    "graphs on the CPU": (GRAPHS.to("cpu"), DENSE),
    "scores on the CPU": (GRAPHS, DENSE.to("cpu")),
    # The first axis has as many states as there are sequences.
    "one graph without an axis for it": (k2.Fsa.from_str("0 1 -1 0\n1").to(MPS), DENSE),
    "three graphs": (k2.ctc_graph([*LABELS, [1]], device=MPS), DENSE),
    "no graphs": (NO_GRAPHS, DENSE),
}


def _without_aux_labels():
    graphs = GRAPHS.clone()
    del graphs.aux_labels
    return graphs


def _with_ragged_aux_labels():
    graphs = GRAPHS.clone()
    graphs.convert_attr_to_ragged_("aux_labels")
    return graphs


@pytest.mark.parametrize("name", OTHER)
def test_a_lattice_is_made_for_other_arguments_of_the_ctc_loss(name, metal):
    assert ctc._rows_for_metal(*OTHER[name], 10.0, 0.0) is None


def test_the_ctc_loss_without_a_lattice(metal):
    rows = ctc._rows_for_metal
    assert rows(GRAPHS, DENSE, 10.0, 0.0) == rows(GRAPHS, DENSE, 10.0, 0.5) == 5
    for beam in (0.0, -1.0, float("nan")):
        assert rows(GRAPHS, DENSE, beam, 0.0) is None
    for graphs in (_without_aux_labels(), _with_ragged_aux_labels()):
        assert rows(graphs, DENSE, 10.0, 0.0) == 5
        assert rows(graphs, DENSE, 10.0, 0.5) is None
        assert "delay_penalty needs a lattice" in k2.mps.explain()
    assert rows(GRAPHS, DENSE, 10.0, 0.0) == 5
    assert "delay_penalty needs a lattice" not in k2.mps.explain()


@pytest.mark.parametrize("limit, axis", [("_MAX_STATES", 1), ("_MAX_ARCS", 2)])
def test_a_lattice_is_made_if_it_may_exceed_a_limit(limit, axis, metal, monkeypatch):
    most = 6 * GRAPHS.arcs.shape().tot_size(axis)
    monkeypatch.setattr(f"k2.mps.ctc.{limit}", most)
    assert ctc._rows_for_metal(GRAPHS, DENSE, 10.0, 0.0) == 5
    monkeypatch.setattr(f"k2.mps.ctc.{limit}", most - 1)
    assert ctc._rows_for_metal(GRAPHS, DENSE, 10.0, 0.0) is None


@pytest.mark.parametrize(
    "labels, right", [((-1, 2), True), (None, True), ((-2, 2), False), ((-1, 3), False)]
)
def test_each_label_has_a_column_of_scores(labels, right):
    """There are four columns, and the first is that of the label -1."""
    index = types.SimpleNamespace(labels=lambda: labels)
    check = functools.partial(ctc._Labels(index, num_columns=4).check, "The graph")
    if right:
        check()
    else:
        with pytest.raises(RuntimeError, match=r"^The graph has label (-2|3), .* within \[-1, 2\]"):
            check()


def _intersected(graphs, dense, order=None, beam=10.0):
    return lattice._make(graphs, dense, order, beam, 1000, 1000)


@pytest.mark.parametrize("name", OTHER)
def test_the_host_makes_a_lattice_of_other_arguments(name, metal):
    assert _intersected(*OTHER[name]) is None


@pytest.mark.parametrize(
    "order, taken",
    [
        (torch.tensor([0, 1]), True),
        (torch.tensor([1, 1]), True),
        (torch.tensor([1, 0]), False),
        (torch.tensor([-1, 0]), False),
        (torch.tensor([0, 2]), False),
        (torch.tensor([0]), False),
    ],
)
def test_the_host_makes_a_lattice_of_sequences_in_another_order(order, taken, metal):
    order = order.to(MPS, torch.int32)
    assert (_intersected(GRAPHS, DENSE, order) is not None) == taken
    assert _intersected(GRAPHS, DENSE, order.long()) is None
    assert _intersected(GRAPHS, DENSE, order.cpu()) is None


def test_the_host_makes_a_lattice_without_a_beam(metal):
    assert _intersected(GRAPHS, DENSE) is not None
    for beam in (0.0, -1.0, float("nan")):
        assert _intersected(GRAPHS, DENSE, beam=beam) is None


def test_the_host_searches_graphs_or_scores_on_the_cpu(metal):
    options = (20.0, 8.0, 30, 10000, False)
    assert pruned._make(GRAPHS, DENSE, *options) is not None
    assert pruned._make(*OTHER["graphs on the CPU"], *options) is None
    assert pruned._make(*OTHER["scores on the CPU"], *options) is None


def test_the_host_decodes_streams_on_the_cpu(metal):
    options = (2, 20.0, 8.0, 30, 10000, False)
    assert streams.gpu_decoder(GRAPHS, *options) is not None
    assert streams.gpu_decoder(GRAPHS.to("cpu"), *options) is None
    assert streams.gpu_decoder(GRAPHS[0], *options) is None


# ---- functions that call the kernels


def test_the_loss_in_place_has_the_arguments_of_the_other_loss():
    arguments = [
        [(each.name, each.default) for each in inspect.signature(loss).parameters.values()]
        for loss in (k2.mps.rnnt_loss_pruned_in_place, k2.rnnt_loss_pruned)
    ]
    assert arguments[0] == arguments[1]


@pytest.mark.parametrize("device", ["cpu", "mps"])
@pytest.mark.parametrize(
    "symbol, options",
    [(5, ("constrained", 0.5, "sum", False)), (0, ("modified", 0.0, "none", True))],
)
def test_the_loss_in_place_is_the_other_loss(symbol, options, device):
    names = ("logits", "symbols", "ranges", "boundary")
    *inputs, boundary = (_inputs()[name].to(device) for name in names)
    arguments = (*inputs, symbol, boundary, *options)
    found = k2.mps.rnnt_loss_pruned_in_place(*arguments)
    assert torch.equal(found, k2.rnnt_loss_pruned(*arguments))


@pytest.mark.parametrize("dtype, columns", [(torch.float16, 7), (torch.float32, 1)])
def test_a_joiner_may_have_inputs_of_two_types_or_sizes(dtype, columns):
    am, lm = torch.randn(2, 5, 7), torch.randn(2, 4, columns).to(dtype)
    ranges = torch.arange(3).expand(2, 5, 3).contiguous()
    cpu = k2.mps.joiner_input(am, lm, ranges)
    mps = k2.mps.joiner_input(am.to(MPS), lm.to(MPS), ranges.to(MPS))
    assert mps.dtype == cpu.dtype and mps.shape == cpu.shape == (2, 5, 3, 7)
    torch.testing.assert_close(mps.cpu(), cpu)


# ---- strided arguments


def _strided(x):
    return torch.stack([x, x], dim=-1)[..., 0]


def _inputs():
    torch.manual_seed(3)
    return {
        "am": torch.randn(2, 5, 6),
        "lm": torch.randn(2, 5, 6),
        "logits": torch.randn(2, 5, 3, 6),
        "symbols": torch.tensor([[1, 2, 3, 4], [5, 4, 3, 0]]),
        "ranges": torch.tensor([0, 0, 1, 2, 2]).reshape(1, 5, 1) + torch.arange(3).expand(2, 5, 3),
        "boundary": torch.tensor([[0, 0, 4, 5], [0, 0, 3, 4]]),
        "px_grad": torch.rand(2, 4, 6),
        "py_grad": torch.rand(2, 5, 5),
    }


# {function: its arguments, and how it is called}
STRIDED = {
    "rnnt_loss_pruned": (
        ("logits", "symbols", "ranges", "boundary"),
        lambda *x: k2.rnnt_loss_pruned(*x[:3], 0, x[3]),
    ),
    "rnnt_loss_smoothed": (
        ("lm", "am", "symbols", "boundary"),
        lambda *x: k2.rnnt_loss_smoothed(*x[:3], 0, 0.1, 0.2, x[3]),
    ),
    "get_rnnt_prune_ranges": (
        ("px_grad", "py_grad", "boundary"),
        lambda *x: k2.get_rnnt_prune_ranges(*x, 3),
    ),
    "do_rnnt_pruning": (("am", "lm", "ranges"), k2.do_rnnt_pruning),
    "joiner_input": (("am", "lm", "ranges"), k2.mps.joiner_input),
}


def _results(name, change, strided_gradient=False):
    """Returns what a function returns, and the gradients of its inputs."""
    names, function = STRIDED[name]
    inputs = {each: x.to(MPS) for each, x in _inputs().items() if each in names}
    leaves = [x.requires_grad_(True) for x in inputs.values() if x.is_floating_point()]
    arguments = [_strided(inputs[each]) if each == change else inputs[each] for each in names]
    found = function(*arguments)
    found = found if isinstance(found, tuple) else (found,)
    if not found[0].requires_grad:
        return found
    weights = [torch.linspace(-1, 1, x.numel(), device=MPS).reshape(x.shape) for x in found]
    weights = [_strided(weight) if strided_gradient else weight for weight in weights]
    return (*found, *torch.autograd.grad(found, leaves, weights))


@pytest.mark.parametrize(
    "name, change", [(name, each) for name, (names, _) in STRIDED.items() for each in names]
)
def test_an_argument_may_be_strided(name, change):
    for found, expected in zip(_results(name, change), _results(name, None), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("name", ["do_rnnt_pruning", "joiner_input"])
def test_a_gradient_may_be_strided(name):
    expected = _results(name, None)
    for found, other in zip(_results(name, None, strided_gradient=True), expected, strict=True):
        assert torch.equal(found, other)


@pytest.mark.parametrize("number", [0, 1])
def test_only_one_result_of_the_pruning_has_a_gradient(number):
    names, gradients = ("am", "lm", "ranges"), []
    for device in ("cpu", MPS):
        am, lm, ranges = (_inputs()[name].to(device) for name in names)
        leaves = am.requires_grad_(True), lm.requires_grad_(True)
        found = k2.do_rnnt_pruning(am, lm, ranges)[number].sum()
        gradients.append(torch.autograd.grad(found, leaves, allow_unused=True))
    for cpu, mps in zip(*gradients):
        assert (cpu is None) == (mps is None)
        assert cpu is None or torch.allclose(mps.cpu(), cpu)


@pytest.mark.parametrize("columns", [5, 6], ids=["modified", "regular"])
@pytest.mark.parametrize("s_range", range(1, 8))
def test_ranges_and_their_warnings_are_those_of_the_cpu(s_range, columns, capsys):
    inputs = _inputs()
    # One sequence has as many symbols as frames.
    boundary = torch.tensor([[0, 0, 4, 4], [0, 0, 3, 5]])
    found = []
    for device in ("cpu", MPS):
        grads = inputs["px_grad"][:, :, :columns], inputs["py_grad"]
        grads = (grad.contiguous().to(device) for grad in grads)
        ranges = k2.get_rnnt_prune_ranges(*grads, boundary.to(device), s_range)
        found.append((ranges.tolist(), re.findall(r"Adjusting to \d+", capsys.readouterr().out)))
    assert found[0] == found[1]


def test_a_sequence_without_frames_needs_a_position_for_each_symbol():
    boundary = torch.tensor([[0, 0, 3, 0], [0, 0, 4, 5]], device=MPS)
    grads = (_inputs()[name].to(MPS) for name in ("px_grad", "py_grad"))
    assert k2.get_rnnt_prune_ranges(*grads, boundary, 2).shape == (2, 5, 4)


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_ranges_of_one_position_are_refused_for_one_frame_without_symbols(device):
    px, py = _zeros(1, 4, 2, device=device), _zeros(1, 5, 1, device=device)
    boundary = torch.tensor([[0, 0, 0, 1]], device=device)
    with pytest.raises(AssertionError, match="no valid paths could survive"):
        k2.get_rnnt_prune_ranges(px, py, boundary, 1)


# ---- the pruned loss, with arguments that only some losses take


def _pruned_loss(device, **changed):
    inputs = {each: x.to(device) for each, x in _inputs().items()}
    arguments = {each: inputs[each] for each in ("logits", "symbols", "ranges", "boundary")}
    return k2.rnnt_loss_pruned(**{**arguments, "termination_symbol": 0, **changed})


@pytest.mark.parametrize(
    "changed, error",
    [
        ({"rnnt_type": "other"}, AssertionError),
        ({"reduction": "max"}, ValueError),
        # There are more symbols than frames.
        ({"boundary": torch.tensor([[0, 0, 4, 3]] * 2), "rnnt_type": "modified"}, AssertionError),
    ],
)
def test_the_pruned_loss_refuses_what_it_refuses_on_the_cpu(changed, error):
    for device in ("cpu", MPS):
        moved = {name: x.to(device) if name == "boundary" else x for name, x in changed.items()}
        with pytest.raises(error):
            _pruned_loss(device, **moved)


def test_a_hat_loss_may_lack_paths():
    boundary = torch.tensor([[0, 0, 4, 3]] * 2, device=MPS)
    _pruned_loss(MPS, boundary=boundary, use_hat_loss=True, rnnt_type="constrained")
    with pytest.raises(AssertionError):
        _pruned_loss(MPS, boundary=boundary, rnnt_type="constrained")


def test_a_modified_hat_loss_needs_as_many_frames_as_symbols():
    logits, ranges = torch.randn(2, 3, 3, 6), torch.arange(3).expand(2, 3, 3)
    for device in ("cpu", MPS):
        with pytest.raises(AssertionError):
            k2.rnnt_loss_pruned(
                logits.to(device),
                torch.tensor([[1, 2, 3, 4]] * 2, device=device),
                ranges.to(device),
                0,
                rnnt_type="modified",
                use_hat_loss=True,
            )


def test_a_negative_delay_penalty_is_none():
    assert torch.equal(_pruned_loss(MPS, delay_penalty=-1.0), _pruned_loss(MPS))
    am, lm, symbols = (_inputs()[name].to(MPS) for name in ("am", "lm", "symbols"))
    losses = [k2.rnnt_loss_simple(lm, am, symbols, 0, delay_penalty=x) for x in (-1.0, 0.0)]
    assert torch.equal(*losses)


def _in_place(logits):
    inputs = {each: x.to(MPS) for each, x in _inputs().items()}
    arguments = (inputs["symbols"], inputs["ranges"], 0, inputs["boundary"])
    return k2.mps.rnnt_loss_pruned_in_place(logits, *arguments)


@pytest.mark.parametrize("is_view", [False, True])
def test_the_loss_in_place_does_not_overwrite_a_leaf(is_view):
    leaf = _inputs()["logits"].to(MPS).requires_grad_(True)
    before = leaf.detach().clone()
    _in_place(leaf.view(2, 5, 3, 6) if is_view else leaf).backward()
    assert torch.equal(leaf, before) and leaf.grad.abs().max() > 0


def test_nobody_gets_logits_that_are_overwritten():
    leaf = _inputs()["logits"].to(MPS).requires_grad_(True)
    logits = leaf.exp()  # needs its result in the backward pass
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        _in_place(logits).backward()

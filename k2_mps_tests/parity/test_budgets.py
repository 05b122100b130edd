"""Budgets of operations on mps: dispatches, waits, copies.

The emulated device counts.  A wait counts if it finds work in flight, a copy if torch
copies between host and device.  The budgets are measured, so a test fails if an
operation begins to copy or wait more.
"""

import sys
from pathlib import Path

import k2
import pytest
import torch

from k2_mps_tests.parity import test_losses as losses
from k2_mps_tests.parity.helpers import random_fsa_vec
from k2_mps_tests.parity.test_operations import _variables, tomllib

if sys.platform == "darwin":
    pytest.skip("counting needs the emulated device", allow_module_level=True)
import mps_emulator  # noqa: E402

TABLE = Path(__file__).resolve().parents[2] / "docs" / "budgets.toml"
BUDGETS = tomllib.loads(TABLE.read_text(encoding="utf-8"))["budget"]

SEGMENTS = torch.tensor([[0, 0, 40], [1, 0, 33], [2, 0, 25]], dtype=torch.int32)
TARGETS = [[1, 2, 2, 3], [4, 4, 4], [5, 6, 7, 8, 9, 10]]


def cost(function):
    """Returns the counters of a second call of `function`."""
    function()  # The first call compiles kernels and fills caches.
    torch.mps.synchronize()
    with mps_emulator.counters() as counted:
        function()
    return counted


def check(counted, waits=0, dispatches=0, to_device=0, to_host=0):
    """Asserts that costs are within a budget.

    Args:
      to_device, to_host: bytes.
    """
    assert counted.host_to_device_bytes <= to_device, counted
    assert counted.device_to_host_bytes <= to_host, counted
    assert counted.waits_with_work <= waits, counted
    assert counted.dispatches <= dispatches, counted


def _counted(function):
    """Returns [dispatches, waits] of a call, and its result."""
    torch.mps.synchronize()
    # k2's counters count dispatches when k2 encodes them.  The device counts
    # them when it runs them, at a later wait.
    with mps_emulator.counters() as seen, k2.mps.counters() as counted:
        result = function()
    return [counted.dispatches, seen.waits_with_work], result


def _forward_and_backward(call):
    """Returns dispatches and waits of a call, then of its backward pass."""
    variables = _variables()
    forward, result = _counted(lambda: eval(call, variables))
    assert result.requires_grad
    total = result.sum()
    backward, _ = _counted(total.backward)
    return forward + backward


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda b: b["name"])
def test_an_operation_costs_what_the_table_says(budget, placement):
    _forward_and_backward(budget["call"])  # compiles kernels, fills caches
    assert _forward_and_backward(budget["call"]) == budget[placement]


def test_ctc_loss_is_within_its_budget(placement):
    graph, dense = _graph(), _dense()

    def loss():
        k2.ctc_loss(graph, dense, output_beam=100).backward(retain_graph=True)

    cost(loss)
    (dispatches, waits), _ = _counted(loss)
    if placement == "metal":
        assert dispatches <= 6 and waits == 0
    else:
        assert dispatches == 0 and waits <= 2


def _dense():
    log_probs = torch.randn(3, 40, 12).log_softmax(-1).to("mps")
    dense = k2.DenseFsaVec(log_probs, SEGMENTS)
    dense.scores.requires_grad_(True)  # keeps gradients from reaching the leaf
    return dense


def _graph():
    return k2.ctc_graph(TARGETS, device="mps").requires_grad_(True)


def test_dense_fsa_vec():
    log_probs = torch.randn(3, 40, 12, device="mps").log_softmax(-1)
    check(cost(lambda: k2.DenseFsaVec(log_probs, SEGMENTS)), dispatches=1)


def test_ctc_loss_forward():
    graph, dense = _graph(), _dense()
    check(cost(lambda: k2.ctc_loss(graph, dense, output_beam=100, reduction="none")))


def test_ctc_loss_forward_and_backward():
    graph, dense = _graph(), _dense()

    def loss():
        k2.ctc_loss(graph, dense, output_beam=100, reduction="none").sum().backward(
            retain_graph=True
        )

    check(cost(loss), waits=1)


def test_intersect_dense():
    graph, dense = _graph(), _dense()
    check(cost(lambda: k2.intersect_dense(graph, dense, output_beam=10)))


def test_intersect_dense_pruned():
    topo, dense = k2.ctc_topo(11, device="mps"), _dense()
    check(cost(lambda: k2.intersect_dense_pruned(topo, dense, 8, 5, 5, 50)))


@pytest.mark.parametrize("double", [True, False])
def test_get_tot_scores_forward_and_backward(double):
    fsas = random_fsa_vec().to("mps").requires_grad_(True)

    def scores():
        fsas._invalidate_cache_()
        fsas.get_tot_scores(use_double_scores=double, log_semiring=True).sum().backward()

    # torch runs sum() and makes its gradient.
    check(cost(scores), waits=2)


@pytest.mark.parametrize("double", [True, False])
def test_shortest_path(double):
    fsas = random_fsa_vec().to("mps")
    check(cost(lambda: k2.shortest_path(fsas, use_double_scores=double)))


@pytest.mark.parametrize("name", losses.LOSSES)
def test_rnnt(name):
    am, lm, symbols, boundary = losses._rnnt_inputs("mps", torch.float32)

    def loss():
        losses.LOSSES[name](am, lm, symbols, boundary, "regular").backward()

    # k2 reads the boundary, 3 * 4 * 8 bytes, on the host, as on the CPU.  For
    # pruning it also reads the largest number of symbols.
    if name == "pruned":
        check(cost(loss), waits=4, dispatches=4, to_host=200, to_device=24)
    else:
        check(cost(loss), waits=1, dispatches=2, to_host=96)


def test_mutual_information():
    px = torch.randn(3, 5, 9, device="mps", requires_grad=True)
    py = torch.randn(3, 6, 8, device="mps", requires_grad=True)
    boundary = torch.tensor([[0, 0, 5, 8]] * 3, device="mps")

    def loss(boundary):
        k2.mutual_information_recursion(px, py, boundary).sum().backward()

    check(cost(lambda: loss(None)), dispatches=2)
    # k2 checks the boundary on the host.
    check(cost(lambda: loss(boundary)), waits=1, dispatches=2, to_host=96)


RAGGED = {
    "sum": lambda r, index: r.sum(),
    "logsumexp": lambda r, index: r.logsumexp(),
    "max": lambda r, index: r.max(),
    "argmax": lambda r, index: r.argmax(),
    "normalize": lambda r, index: r.normalize(use_log=True),
    "sort": lambda r, index: r.clone().sort_(descending=True),
    "index": lambda r, index: r.index(index, axis=0),
    "cat": lambda r, index: k2.ragged.cat([r, r], axis=0),
    "remove_axis": lambda r, index: k2.ragged.cat([r, r], axis=1),
    "pad": lambda r, index: r.pad(mode="constant", padding_value=0),
    "add": lambda r, index: r.add(index[:2].float(), 1.0),
}


@pytest.mark.parametrize("name", RAGGED)
def test_ragged(name):
    ragged = k2.RaggedTensor([[1.0, 2.0, 5.0], [3.0]], device="mps")
    index = torch.tensor([1, 0, 1], dtype=torch.int32, device="mps")
    # torch slices and converts `index`.
    check(cost(lambda: RAGGED[name](ragged, index)), waits=1 if name == "add" else 0)


@pytest.mark.parametrize("shape", [(5,), (2, 7), (3, 0), (1 << 19,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_sums_whose_zeros_the_host_writes(shape, dtype):
    index = torch.tensor([1, -1, 0, 1], dtype=torch.int32)
    values = torch.arange(4 * torch.Size(shape[1:]).numel(), dtype=dtype)
    values = values.view(4, *shape[1:])
    on_mps = index.to("mps"), values.to("mps")
    torch.full(shape, 7, dtype=dtype, device="mps")  # frees its memory, for the next tensor
    torch.mps.synchronize()
    with mps_emulator.counters() as counted:
        found = k2.mps.sums.index_sums(*on_mps, shape)
        torch.mps.synchronize()
    # The GPU fills more than 1 MiB, and other types than float32.
    filled = found.numel() >= 1 << 19 or dtype == torch.int32
    assert counted.waits_with_work == filled
    expected = torch.zeros(shape, dtype=dtype)
    k2.index_add(index, values, expected)
    assert torch.equal(found.cpu(), expected)
    assert (found.dtype, found.device.type) == (dtype, "mps")


def test_index_select_and_index_add():
    src = torch.randn(100, device="mps")
    index = torch.randint(0, 100, (50,), device="mps").to(torch.int32)
    values = torch.randn(50, device="mps")
    check(cost(lambda: k2.index_select(src, index)))
    check(cost(lambda: k2.index_add(index, values, src)))

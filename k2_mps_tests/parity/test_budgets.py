"""Operations on mps cost what budgets.toml says: dispatches, torch's operators, drains, copies.

k2 counts dispatches, operators and drains.  The emulated device counts the bytes that torch copies
between host and device.  The numbers in budgets.toml are measured costs,
not limits.  So a test also fails if an operation costs less.
"""

import contextlib
import sys
from typing import NamedTuple

import k2
import pytest
import torch

from k2_mps_tests.benchmarks.beside_cuda import Step, StepSize
from k2_mps_tests.parity import calls

if sys.platform == "darwin":
    pytest.skip("counting needs the emulated device", allow_module_level=True)
import mps_emulator  # noqa: E402

BUDGETS = calls.table("budgets.toml")
NO_COPIES = {"to_mps": 0, "to_cpu": 0}


def cost(function):
    """Returns the counters of a second call of `function`."""
    function()  # The first call compiles kernels and fills caches.
    torch.mps.synchronize()
    with mps_emulator.counters() as counted:
        function()
    return counted


def check(counted, waits=0):
    """Asserts that nothing was copied or dispatched, and that at most `waits` waits found work."""
    assert counted.host_to_device_bytes == counted.device_to_host_bytes == 0, counted
    assert counted.waits_with_work <= waits, counted
    assert counted.dispatches == 0, counted


class Cost(NamedTuple):
    """What a call costs."""

    dispatches: int  # dispatches of k2's kernels
    operators: int  # torch's operators that give work to the GPU
    drains: int  # gates of k2 with work queued for the GPU, and waits of torch
    to_mps: int  # bytes that torch copies from the CPU to mps
    to_cpu: int  # bytes that torch copies from mps to the CPU

    def counts(self):
        """The numbers that budgets.toml gives for a forward pass or a backward pass."""
        return {name: getattr(self, name) for name in ("dispatches", "operators", "drains")}


def _counted(function):
    """Returns the Cost of a call that finds an operator in the queue, and the call's result."""
    # k2's counters give the dispatches, because k2 counts a dispatch when k2 encodes the dispatch.
    # The device counts a dispatch only when the dispatch runs, at a later wait.
    with k2.mps.counters():
        torch.ones(1, device="mps")
        with mps_emulator.counters() as seen, k2.mps.counters() as counted:
            result = function()
    cost = Cost(
        counted.dispatches,
        counted.operators,
        counted.drains + counted.torch_waits,
        seen.host_to_device_bytes,
        seen.device_to_host_bytes,
    )
    # The device has another way to find out which waits have work.
    assert cost.drains == seen.waits_with_work
    return cost, result


def _passes(call):
    """Returns the Costs of a call and of its backward pass, if it has one."""
    variables = calls.variables()
    forward, result = _counted(lambda: calls.result(call, variables))
    if not getattr(result, "requires_grad", False):
        return {"forward": forward}
    total = result.sum()
    backward, _ = _counted(total.backward)
    return {"forward": forward, "backward": backward}


@pytest.mark.parametrize("name", BUDGETS)
def test_an_operation_costs_what_the_table_says(name, placement):
    budget = BUDGETS[name]
    _passes(budget["call"])  # compiles kernels, fills caches
    passes = _passes(budget["call"])
    counts = {name: cost.counts() for name, cost in passes.items()}
    assert counts == budget.get(placement, budget["host"])
    copies = {
        "to_mps": sum(cost.to_mps for cost in passes.values()),
        "to_cpu": sum(cost.to_cpu for cost in passes.values()),
    }
    assert copies == budget.get("copies", NO_COPIES)


STEPS = {
    "ctc_loss": k2.ctc_loss,
    "intersect_dense": lambda graph, dense: (
        k2.intersect_dense(graph, dense, 8)
        .get_tot_scores(log_semiring=True, use_double_scores=True)
        .sum()
    ),
}


def _new_graph():
    return k2.ctc_graph([[1, 2], [4, 4, 3]], device="mps")


def _graph_with_labels_of_the_gpu():
    graph = _new_graph()
    graph.labels[0] = graph.labels[0]
    return graph


def _step(name, graph):
    segments = torch.tensor([[0, 0, 20], [1, 0, 18]], dtype=torch.int32)
    leaf = torch.randn(2, 20, 6).log_softmax(-1).to("mps").requires_grad_(True)

    def step():
        leaf.grad = None
        STEPS[name](graph, k2.DenseFsaVec(leaf, segments)).backward()

    return step


# `commands` is the largest number of k2's dispatches and torch's operators, taken together, that a
# step may need with a graph that is new to k2.  `drains` is the exact number of drains.
@pytest.mark.parametrize(
    "name, commands, drains", [("ctc_loss", 14, 0), ("intersect_dense", 20, 1)]
)
@pytest.mark.parametrize("graph", [_new_graph, _graph_with_labels_of_the_gpu])
def test_gpu_commands_of_a_step_with_a_new_graph(name, commands, drains, graph, metal):
    _step(name, graph())()  # compiles kernels
    cost, _ = _counted(_step(name, graph()))
    assert cost.dispatches + cost.operators <= commands, cost
    assert cost.drains == drains


@pytest.mark.parametrize(
    "name, commands, drains", [("ctc_loss", 11, 0), ("intersect_dense", 16, 1)]
)
def test_gpu_commands_of_a_further_step_with_a_graph(name, commands, drains, metal):
    step = _step(name, _new_graph())
    step()  # compiles kernels, and makes the index that k2 keeps with the graph
    cost, _ = _counted(step)
    assert cost.dispatches + cost.operators <= commands, cost
    assert cost.drains == drains


@pytest.mark.parametrize(
    "intersect",
    [
        lambda graph, dense: k2.intersect_dense(graph, dense, 10),
        lambda graph, dense: k2.intersect_dense_pruned(graph, dense, 20, 8, 30, 1000),
    ],
)
def test_the_host_computes_no_gradient_that_nobody_needs(intersect, monkeypatch):
    monkeypatch.setenv("K2_MPS_FORCE", "host")
    variables = calls.variables()
    graph, dense = variables["graph"], variables["dense"]

    def gates():
        total = intersect(graph, dense).scores.sum()
        with k2.mps.counters() as counted:
            total.backward()
        return counted.gates

    gates_of_dense = gates()
    graph.requires_grad_(True)
    assert (gates_of_dense, gates()) == (2, 4)


def test_the_losses_of_a_step_read_their_boundary_once():
    variables = calls.variables()
    am, lm, symbols, grads = (variables[name] for name in ("am", "lm", "symbols", "grads"))

    def step(boundary):
        ranges = k2.get_rnnt_prune_ranges(*grads, boundary, 3)
        logits = torch.add(*k2.do_rnnt_pruning(am, lm, ranges))
        k2.rnnt_loss_pruned(logits, symbols, ranges, 0, boundary).backward()

    step(variables["boundary"])  # compiles kernels
    boundary = variables["boundary"].clone()
    for drains in (1, 0):
        cost, _ = _counted(lambda: step(boundary))
        assert (cost.drains, cost.to_mps, cost.to_cpu) == (drains, 0, drains * boundary.nbytes)


def test_a_transducer_step_keeps_its_budget():
    size = StepSize(utterances=2, frames=12, symbols=5, vocabulary=20, s_range=3)
    step = Step(size, "mps")
    totals = []

    @contextlib.contextmanager
    def part(name):
        torch.mps.synchronize()
        with k2.mps.counters() as counted:
            yield
        totals.append((counted.dispatches + counted.operators, counted.torch_waits))

    def run():
        totals.clear()
        step.run(part)
        return [sum(column) for column in zip(*totals)]

    run()  # compiles kernels
    step.boundary = step.boundary.clone()
    assert run() == [19, 1]
    values = step.boundary.cpu()
    step.boundary = values.to("mps")
    k2.mps.know_boundary(step.boundary, values)
    assert run() == [18, 0]


def test_a_boundary_that_changed_is_read_again():
    values = torch.tensor([[0, 0, 2, 5]])
    boundary = values.to("mps")
    k2.mps.know_boundary(boundary, values)
    boundary[0, 3] = 1
    px, py = torch.randn(1, 2, 6, device="mps"), torch.randn(1, 3, 5, device="mps")
    ranges = k2.get_rnnt_prune_ranges(px, py, boundary, 2)
    # Two symbols in one frame need ranges of 3 positions; in five frames, 2 would be enough.
    assert ranges.shape == (1, 5, 3)
    expected = k2.get_rnnt_prune_ranges(px.cpu(), py.cpu(), boundary.cpu(), 2)
    assert torch.equal(ranges.cpu(), expected)


def test_ranges_of_sequences_without_symbols():
    """The fewest positions of a range are computed from (s - 1) / t, which is negative here."""
    boundary = torch.tensor([[0, 0, 0, 5]])
    px, py = torch.randn(1, 2, 6), torch.randn(1, 3, 5)
    expected = k2.get_rnnt_prune_ranges(px, py, boundary, 1)
    ranges = k2.get_rnnt_prune_ranges(px.to("mps"), py.to("mps"), boundary.to("mps"), 1)
    assert torch.equal(ranges.cpu(), expected)


@pytest.mark.parametrize("shape, dtype", [((2, 4), torch.int64), ((1, 4), torch.int32)])
def test_know_boundary_refuses_values_of_another_shape_or_type(shape, dtype):
    boundary = torch.zeros(1, 4, dtype=torch.int64, device="mps")
    with pytest.raises(ValueError, match=r"on the CPU, of shape \(1, 4\) and torch.int64"):
        k2.mps.know_boundary(boundary, torch.zeros(shape, dtype=dtype))


AFTER_A_LATTICE = {
    "words": lambda lattice: k2.get_aux_labels(k2.one_best_decoding(lattice)),
    "n-best": lambda lattice: k2.Nbest.from_lattice(lattice, num_paths=10),
    "total scores": lambda lattice: lattice.get_tot_scores(True, True).tolist(),
}


@pytest.mark.parametrize("name", AFTER_A_LATTICE)
def test_a_step_after_a_lattice_takes_one_more_wait(name, metal):
    variables = calls.variables()

    def decode():
        lattice = k2.get_lattice(*(variables[x] for x in ("speech", "lengths", "topo")))
        return AFTER_A_LATTICE[name](lattice)

    decode()  # compiles kernels
    cost, _ = _counted(decode)
    assert cost.drains == 2


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
def test_ragged_operations_copy_and_dispatch_nothing(name):
    ragged = k2.RaggedTensor([[1.0, 2.0, 5.0], [3.0]], device="mps")
    index = torch.tensor([1, 0, 1], dtype=torch.int32, device="mps")
    # For "add", torch slices and converts `index`, and k2 waits for the result.
    check(cost(lambda: RAGGED[name](ragged, index)), waits=1 if name == "add" else 0)


@pytest.mark.parametrize("shape", [(5,), (2, 7), (3, 0), (1 << 18,), (1 << 19,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_the_host_writes_the_zeros_of_small_sums(shape, dtype):
    index = torch.tensor([1, -1, 0, 1], dtype=torch.int32)
    values = torch.arange(4 * torch.Size(shape[1:]).numel(), dtype=dtype)
    values = values.view(4, *shape[1:])
    on_mps = index.to("mps"), values.to("mps")
    torch.full(shape, 7, dtype=dtype, device="mps")  # The next tensor reuses this memory.
    torch.mps.synchronize()
    with mps_emulator.counters() as counted:
        found = k2.mps.sums.index_sums(*on_mps, shape)
        torch.mps.synchronize()
    # The GPU fills tensors of more than 1 MiB, and tensors whose type is not float32.
    filled = found.numel() >= 1 << 19 or dtype == torch.int32
    assert counted.waits_with_work == filled
    expected = torch.zeros(shape, dtype=dtype)
    k2.index_add(index, values, expected)
    assert torch.equal(found.cpu(), expected)
    assert (found.dtype, found.device.type) == (dtype, "mps")


def test_index_select_costs_nothing():
    src = torch.randn(100, device="mps")
    index = torch.randint(0, 100, (50,), device="mps").to(torch.int32)
    check(cost(lambda: k2.index_select(src, index)))


def test_index_add_costs_nothing():
    src = torch.randn(100, device="mps")
    index = torch.randint(0, 100, (50,), device="mps").to(torch.int32)
    values = torch.randn(50, device="mps")
    check(cost(lambda: k2.index_add(index, values, src)))

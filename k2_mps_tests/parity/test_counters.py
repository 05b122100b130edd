"""k2.mps.counters() counts dispatches, operators, gates, drains, waits and copied bytes on mps."""

import sys
import threading

import _k2
import k2
import pytest
import torch

from k2_mps_tests.parity.helpers import random_fsa_vec


def _loss():
    px = torch.randn(3, 5, 9, device="mps", requires_grad=True)
    py = torch.randn(3, 6, 8, device="mps", requires_grad=True)
    k2.mutual_information_recursion(px, py).sum().backward()


OPERATORS = [
    (0, lambda x: x.view(-1).detach()[:2].unsqueeze(0).expand(3, 2)),
    (0, lambda x: torch.empty_like(x).contiguous()),
    (0, lambda x: x.to("mps")),
    (1, lambda x: x + 1),
    (1, lambda x: x.t().contiguous()),
    (1, lambda x: x.half()),
    (1, lambda x: x.zero_()),
    (1, lambda x: torch.zeros(3, device="mps")),
    (1, lambda x: torch.arange(3, device="mps")),
    (1, lambda x: torch.ones_like(x)),
    (1, lambda x: x.sum()),
    (1, lambda x: torch.cat([x, x])),
    (1, lambda x: x.cpu()),
    (1, lambda x: x[0, 0].item()),
    (1, lambda x: torch.ones(4).to("mps")),
    (2, lambda x: (x * 2).exp_()),
]


WAITS = {
    "item": (1, lambda x: x[0, 0].item()),
    "tolist": (1, lambda x: x.tolist()),
    "bool of a tensor": (1, lambda x: bool(x[0, 0] > 0)),
    "copy to the CPU": (1, lambda x: x.cpu()),
    "copy into a tensor of the CPU": (1, lambda x: torch.empty(3, 4).copy_(x)),
    "copy to mps": (1, lambda x: torch.ones(4).to("mps")),
    "fill from the CPU": (1, lambda x: x.copy_(torch.ones(3, 4))),
    "tensor made of numbers": (1, lambda x: torch.tensor([1.0, 2.0], device="mps")),
    "copy that the caller waits for": (0, lambda x: x.copy_(torch.ones(3, 4), non_blocking=True)),
    "copy within mps": (0, lambda x: x.clone().copy_(x.half())),
    "nonzero": (1, lambda x: x.nonzero()),
    "equal": (1, lambda x: torch.equal(x, x.clone())),
    "arithmetic with a number": (0, lambda x: x * 2 + torch.tensor(3.0)),
    "zeros": (0, lambda x: torch.zeros(3, device="mps")),
    "the CPU alone": (0, lambda x: torch.ones(3).nonzero().tolist()),
}


@pytest.mark.parametrize("name", WAITS)
def test_waits_of_torch(name):
    expected, function = WAITS[name]
    values = torch.randn(3, 4, device="mps")
    with k2.mps.counters() as counted:
        function(values)
    assert counted.torch_waits == expected


@pytest.mark.parametrize("expected, function", OPERATORS)
def test_operators_are_counted(expected, function):
    values = torch.randn(3, 4, device="mps")
    with k2.mps.counters() as counted:
        function(values)
    assert counted.operators == expected
    assert counted.dispatches == 0


def _four_operators():
    leaf = torch.ones(3).to("mps").requires_grad_(True)
    torch.mps.synchronize()

    def step():
        leaf.grad = None
        # The forward pass calls mul and sum.  The backward pass calls ones_like and mul.
        (leaf * leaf.detach()).sum().backward()

    return step


def test_operators_of_the_backward_pass_are_counted():
    step = _four_operators()
    with k2.mps.counters() as counted:
        step()
    assert counted.operators == 4


def test_operators_of_another_thread_are_counted():
    thread = threading.Thread(target=_four_operators())
    with k2.mps.counters() as counted:
        thread.start()
        thread.join()
    assert counted.operators == 4


def test_a_long_gate_counts_as_a_wait():
    matrix = torch.randn(500, 500, device="mps")
    index = torch.zeros(3, dtype=torch.int32, device="mps")
    torch.mps.synchronize()
    # The host reads a result that is in flight.
    values = (matrix @ matrix).flatten()
    with k2.mps.counters() as counted:
        k2.index_select(values, index)
    assert 1 <= counted.waits <= counted.gates
    # csrc/mps/counters.h documents this bound.
    assert counted.wait_nanoseconds >= 10_000 * counted.waits


def _drains(*functions):
    """Returns the number of drains of functions that are called one after another."""
    torch.mps.synchronize()
    with k2.mps.counters() as counted:
        for function in functions:
            function()
    return counted.drains


def _work():
    torch.ones(1, device="mps")


def _gate():
    k2.mps.synchronize()


DRAINS = {
    "nothing queued": (0, [_gate]),
    "an operator": (1, [_work, _gate]),
    "two operators": (1, [_work, _work, _gate]),
    "a kernel of k2": (1, [_loss, _gate]),
    "two gates": (1, [_work, _gate, _gate]),
    "work between two gates": (2, [_work, _gate, _work, _gate]),
    "torch waited": (0, [_work, lambda: torch.ones(1, device="mps").item(), _gate]),
    "work after torch waited": (1, [lambda: torch.ones(1, device="mps").item(), _work, _gate]),
    # torch waits for the shape, and then fills the tensor.
    "a shape that depends on values": (1, [lambda: torch.ones(3, device="mps").nonzero(), _gate]),
}


@pytest.mark.parametrize("name", DRAINS)
def test_drains(name):
    expected, functions = DRAINS[name]
    assert _drains(*functions) == expected


def test_an_inner_block_knows_the_work_of_the_outer_block():
    with k2.mps.counters():
        _work()
        with k2.mps.counters() as counted:
            _gate()
    assert counted.drains == 1


def test_work_from_before_a_block_does_not_count():
    with k2.mps.counters():
        _work()
    assert _drains(_gate) == 0


def test_gates_with_nothing_to_wait_for_are_no_waits():
    values = torch.randn(100, device="mps")
    index = torch.zeros(3, dtype=torch.int32, device="mps")
    torch.mps.synchronize()
    found = []
    for _ in range(10):
        with k2.mps.counters() as counted:
            k2.index_select(values, index)
        assert counted.gates > 0
        found.append(counted.waits)
    # The operating system can suspend the thread during a gate, but is unlikely to do so in all ten
    # calls.
    assert min(found) == 0


def test_bytes_copied():
    fsas = random_fsa_vec()
    arcs = 16 * fsas.num_arcs
    # k2 copies the arcs, and the row splits and row ids of both axes.
    shape = 4 * (2 * (fsas.shape[0] + 1) + 3 * fsas.num_arcs)
    with k2.mps.counters() as there:
        moved = fsas.to("mps")
    assert arcs <= there.bytes_to_mps <= arcs + shape
    assert there.bytes_to_cpu == 0
    with k2.mps.counters() as within:
        clone = moved.arcs.clone()
    assert arcs <= within.bytes_within_mps <= arcs + shape
    assert within.bytes_to_mps == within.bytes_to_cpu == 0
    with k2.mps.counters() as back:
        clone.to(torch.device("cpu"))
    assert arcs <= back.bytes_to_cpu <= arcs + shape
    assert back.bytes_to_mps == 0


def test_blocks_may_be_nested():
    with k2.mps.counters() as outer:
        _loss()
        with k2.mps.counters() as inner:
            _loss()
    assert (inner.dispatches, outer.dispatches) == (2, 4)


def test_other_threads_are_counted():
    with k2.mps.counters() as counted:
        thread = threading.Thread(target=_loss)
        thread.start()
        thread.join()
    assert counted.dispatches == 2


def test_nothing_is_counted_outside_of_a_block():
    before = _k2.mps_counters()
    _loss()
    assert _k2.mps_counters() == before


def test_what_a_block_did_before_it_failed_is_counted():
    with pytest.raises(ZeroDivisionError):
        with k2.mps.counters() as counted:
            _loss()
            1 / 0
    assert counted.dispatches == 2


def test_nothing_is_counted_after_a_block_that_failed():
    with pytest.raises(ZeroDivisionError):
        with k2.mps.counters():
            1 / 0
    before = _k2.mps_counters()
    _loss()
    assert _k2.mps_counters() == before


def test_the_cpu_has_nothing_to_count():
    with k2.mps.counters() as counted:
        torch.ones(3).exp()
        k2.connect(random_fsa_vec())
    assert counted == k2.mps.Counters()


@pytest.mark.skipif(sys.platform == "darwin", reason="a real device does not count dispatches")
def test_dispatches_are_those_that_the_device_sees():
    import mps_emulator

    with mps_emulator.counters() as seen, k2.mps.counters() as counted:
        _loss()
    assert counted.dispatches == seen.dispatches

"""Each operation runs in the place that operations.toml gives."""

import k2
import pytest
import torch

from k2_mps_tests.parity import calls

OPERATIONS = calls.table("operations.toml")["operations"]


def _cases():
    """Yields the parameters of test_an_operation_runs_where_the_table_says().

    Some operations can run on the host or in Metal.  The test's inputs are small.  So k2 chooses
    the host for these operations, and Metal only if K2_MPS_FORCE is "metal".
    """
    for operation in OPERATIONS:
        places = operation["on"], operation.get("gradient")
        for call in operation["calls"]:
            name = call["names"][0]
            if "either" not in places:
                yield pytest.param(call, *places, False, id=name)
                continue
            for who in ("host", "metal"):
                on, gradient = (who if place == "either" else place for place in places)
                yield pytest.param(call, on, gradient, who == "metal", id=f"{name}-{who}")


def _where(counted, moved=()):
    """Returns the place in which an operation ran, judged by its counts; None if nothing shows it.

    Args:
      moved: the tensors of which k2's Python made copies on the CPU.  torch makes these copies, so
        k2's counters do not count them.
    """
    if counted.dispatches:
        return "metal"
    if moved:
        return "cpu"
    # An operation that runs on the CPU copies in both directions.  To read a size, k2 copies in one
    # direction, to the CPU.
    if counted.bytes_to_cpu > SMALL and counted.bytes_to_mps > SMALL:
        return "cpu"
    if counted.gates:
        return "host"
    return "aten" if counted.operators else None


# Functions of the host that read nothing on mps, and so pass no gate.
WITHOUT_GATE = {"ctc_graph", "ctc_topo", "levenshtein_graph"}


# Metal computes the gradients of these functions in the forward pass.  In the backward pass, torch
# only scales the gradients.
SCALED = {"mutual_information_recursion"}


# A copy of more bytes than SMALL copies an FSA or a ragged tensor.  Smaller copies do not show that
# an operation runs on the CPU, because code on the host also makes small arrays on the CPU and
# moves them.  One such array has pointers to the FSAs of a batch.
SMALL = 600


def _named(name):
    found = k2
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("call, on, gradient, is_forced", list(_cases()))
def test_an_operation_runs_where_the_table_says(call, on, gradient, is_forced, monkeypatch):
    if is_forced:
        monkeypatch.setenv("K2_MPS_FORCE", "metal")
    else:
        monkeypatch.delenv("K2_MPS_FORCE", raising=False)
    variables = calls.variables()
    moved, copy = [], torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: moved.append(tensor) or copy(tensor))
    torch.mps.synchronize()
    with k2.mps.counters() as forward:
        result = calls.result(call["call"], variables)
    if call["names"][0] in WITHOUT_GATE:
        assert _where(forward, moved) is None, forward
        assert result.device.type == "mps"
    else:
        assert _where(forward, moved) == on, forward
    if not gradient:
        return
    assert result.requires_grad
    total = result.sum()
    torch.mps.synchronize()
    with k2.mps.counters() as backward:
        total.backward()
    if call["names"][0] in SCALED:
        gradient = "aten"
    assert _where(backward) == gradient, backward


NAMES = [name for row in OPERATIONS for call in row["calls"] for name in call["names"]]


@pytest.mark.parametrize("name", NAMES)
def test_an_operation_of_the_table_is_in_k2(name):
    assert callable(_named(name))


def test_no_operation_is_named_twice():
    assert len(set(NAMES)) == len(NAMES)

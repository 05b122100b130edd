"""Copies between the CPU and mps."""

import io

import k2
import k2.ragged as k2r
import pytest
import torch

from k2_mps_tests.parity.helpers import random_fsa_vec


@pytest.mark.parametrize("src", ["cpu", "mps"])
@pytest.mark.parametrize("dst", ["cpu", "mps"])
def test_dense_fsa_vec(src, dst):
    log_probs = torch.randn(2, 5, 4).log_softmax(-1)
    segments = torch.tensor([[0, 0, 5], [1, 1, 3]], dtype=torch.int32)
    cpu = k2.DenseFsaVec(log_probs, segments)
    moved = cpu.to(src).to(dst)
    assert moved.device.type == dst
    assert torch.equal(moved.scores.cpu(), cpu.scores)
    assert torch.equal(moved.duration.cpu(), cpu.duration)


def test_a_copy_shares_nothing():
    cpu = random_fsa_vec(1)
    mps = cpu.to("mps")
    back = mps.to("cpu")
    before = cpu.scores.clone()
    with torch.no_grad():
        mps.scores[:] = 5
    assert torch.equal(cpu.scores, before)
    assert torch.equal(back.scores, before)


def test_clone_shares_nothing():
    a = k2.RaggedTensor([[1, 2], [3]], device="mps")
    b = a.clone()
    b.values[0] = 9
    assert a.tolist() == [[1, 2], [3]]
    assert b.tolist() == [[9, 2], [3]]


# Attributes of five arcs.  The host copies some of them, and torch copies the others.
ATTRIBUTES = {
    "int32": lambda device: torch.arange(5, dtype=torch.int32, device=device),
    "int64": lambda device: torch.arange(5, device=device),
    "strided": lambda device: torch.arange(10, dtype=torch.int32, device=device)[::2],
    "two axes": lambda device: torch.arange(10.0, device=device).view(5, 2),
    "gradient": lambda device: torch.arange(5.0, device=device, requires_grad=True),
}


@pytest.mark.parametrize("device", ["cpu", "mps"])
@pytest.mark.parametrize("name", ATTRIBUTES)
def test_copies_of_an_attribute_are_equal(name, device):
    fsa = k2.linear_fsa([1, 2, 3, 4], device=device)
    value = fsa.tag = ATTRIBUTES[name](device)
    twice = k2.create_fsa_vec([fsa, fsa])
    copies = (fsa.to("mps"), fsa.to("cpu"), fsa.clone(), twice[0], twice[1])
    for found in (copy.tag for copy in copies):
        assert (found.dtype, found.requires_grad) == (value.dtype, value.requires_grad)
        assert torch.equal(found.cpu(), value.cpu())
    assert copies[2].tag.data_ptr() != value.data_ptr()


def test_a_copy_waits_for_the_result_of_torch():
    # The device still computes the values when the copy begins.
    for i in range(20):
        values = torch.full((1000,), i, dtype=torch.int32, device="mps")
        for _ in range(10):
            values += 1
        shape = k2r.regular_ragged_shape(10, 100).to("mps")
        ragged = k2.RaggedTensor(shape, values).to("cpu")
        assert (ragged.values == i + 10).all()


def test_a_copy_waits_for_pending_reads_of_its_target():
    for i in range(20):
        old = torch.full((4096,), i, dtype=torch.int32, device="mps")
        doubled = old * 2
        del old  # The allocator may now give the freed memory to another tensor.
        ragged = k2.RaggedTensor([[7] * 4096]).to("mps")
        assert (doubled == 2 * i).all()
        assert (ragged.values == 7).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: k2.RaggedTensor([[1, 2], [], [3]], device="mps"),
        lambda: k2.RaggedTensor([[[1.5], []], [[2.5]]], device="mps"),
    ],
)
@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("map_location", [None, "cpu", "mps"])
def test_a_ragged_tensor_loads_as_it_was_saved(make, weights_only, map_location):
    ragged = make()
    file = io.BytesIO()
    torch.save(ragged, file)
    file.seek(0)
    loaded = torch.load(file, map_location=map_location, weights_only=weights_only)
    assert loaded.device.type == ("cpu" if map_location == "cpu" else "mps")
    assert loaded.tolist() == ragged.tolist()

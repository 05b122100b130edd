"""Tests copies, files, storages and conversions of mps tensors, and sparse COO tensors."""

import copy
import io
import pickle

import pytest
import torch

MPS = "mps"
X = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_duplicate_has_separate_memory(duplicate):
    x = X.to(MPS)
    made = duplicate(x)
    assert made.device.type == MPS
    assert made.data_ptr() != x.data_ptr()
    assert torch.equal(made.cpu(), X)


def loaded(saved, where, weights_only):
    """Saves an object with torch.save(); returns what torch.load() reads from the file."""
    file = io.BytesIO()
    torch.save(saved, file)
    file.seek(0)
    return torch.load(file, map_location=where, weights_only=weights_only)


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize(
    "saved, where, device", [(MPS, None, MPS), (MPS, "cpu", "cpu"), ("cpu", MPS, MPS)]
)
def test_a_saved_tensor_loads_on_the_chosen_device(saved, where, device, weights_only):
    found = loaded(X.to(saved), where, weights_only)
    assert found.device.type == device
    assert torch.equal(found.cpu(), X)


@pytest.mark.parametrize("weights_only", [True, False])
def test_saved_views_stay_views(weights_only):
    x = X.to(MPS)
    whole, view = loaded([x, x.view(-1)[3:]], None, weights_only)
    view.fill_(0)
    assert whole.view(-1)[3:].abs().sum() == 0


def test_storages():
    storage = torch.UntypedStorage(8, device=MPS)
    assert storage.device.type == MPS and len(storage) == 8
    storage.fill_(3)
    assert torch.tensor([], dtype=torch.uint8, device=MPS).set_(storage).tolist() == [3] * 8
    assert torch.arange(4).untyped_storage().mps().device.type == MPS
    assert storage.cpu().tolist() == [3] * 8


def test_printing():
    x = torch.tensor([1.5, 2.0], device=MPS)
    assert repr(x) == "tensor([1.5000, 2.0000], device='mps:0')"


def test_conversions():
    x = torch.tensor([1.5, 2.0], device=MPS)
    assert x.tolist() == [1.5, 2.0]
    assert float(x[0]) == 1.5 and int(x[1]) == 2 and bool(x[0])
    assert list(x.shape) == [2]


def test_dlpack():
    x = torch.tensor([1.5, 2.0], device=MPS)
    assert torch.from_dlpack(x).device.type == MPS


# ---- sparse COO


def _sparse(device):
    return torch.sparse_coo_tensor(
        torch.tensor([[0, 1, 1], [2, 0, 2]], device=device),
        torch.tensor([3.0, 4.0, 5.0], device=device),
        (2, 3),
        check_invariants=False,
    )


def test_sparse_parts():
    x = _sparse(MPS)
    assert x.device.type == MPS and x.is_sparse
    assert x._nnz() == 3 and x.sparse_dim() == 2
    coalesced = x.coalesce()
    assert coalesced.indices().device.type == MPS
    assert coalesced.values().tolist() == [3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.to_dense(),
        lambda x: (x + x).to_dense(),
        lambda x: (x * 2).to_dense(),
        lambda x: torch.sparse.mm(x, torch.ones(3, 2, device=x.device)),
        lambda x: torch.sparse.sum(x, 1).to_dense(),
        lambda x: x.coalesce().values().abs(),
        lambda x: x.abs().to_dense(),
        lambda x: x.clone().mul_(3).to_dense(),
        lambda x: torch.cat([x, x]).to_dense(),
        lambda x: x.index_select(1, torch.tensor([2], device=x.device)).to_dense(),
        lambda x: x.to_dense().to_sparse().to_dense(),
    ],
)
def test_sparse_operators(function):
    got = function(_sparse(MPS))
    assert got.device.type == MPS
    torch.testing.assert_close(got.cpu(), function(_sparse("cpu")))


def test_sparse_moves_between_devices():
    x = _sparse("cpu").to(MPS)
    assert x.is_sparse and x.device.type == MPS
    assert torch.equal(x.cpu().to_dense(), _sparse("cpu").to_dense())


def test_sparse_gradients():
    def gradient(device):
        values = torch.tensor([3.0, 4.0], device=device, requires_grad=True)
        indices = torch.tensor([[0, 1], [2, 0]], device=device)
        x = torch.sparse_coo_tensor(indices, values, (2, 3), check_invariants=False)
        dense = torch.arange(6.0, device=device).view(3, 2)
        torch.sparse.mm(x, dense).sum().backward()
        return values.grad

    torch.testing.assert_close(gradient(MPS).cpu(), gradient("cpu"))

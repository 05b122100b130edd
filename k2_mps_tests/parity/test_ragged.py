"""Every operation of RaggedTensor and RaggedShape, on mps and on the CPU."""

import k2
import k2.ragged as k2r
import pytest
import torch

from k2_mps_tests.parity.helpers import assert_equal_on_both

DTYPES = pytest.mark.parametrize("dtype", [torch.int32, torch.float32])
REAL = torch.float32


def random_ragged(num_axes=2, dtype=torch.float32, device="cpu", seed=0):
    """Returns a ragged tensor with empty sublists, values of -9..9."""
    generator = torch.Generator().manual_seed(seed + 100 * num_axes)

    def sublist(axis):
        n = int(torch.randint(0, 6, (), generator=generator))
        if axis == num_axes - 1:
            return torch.randint(-9, 10, (n,), generator=generator).tolist()
        return [sublist(axis + 1) for _ in range(n + 1)]

    return k2.RaggedTensor(sublist(0), dtype=dtype).to(device)


def _index(x, *values):
    return torch.tensor(values, dtype=torch.int32, device=x.device)


def _sort(x, **kwargs):
    y = x.clone()
    order = y.sort_(need_new2old_indexes=True, **kwargs)
    return y, order


ANY = {
    "clone": lambda x: x.clone(),
    "to_int": lambda x: k2.RaggedTensor(x.shape, x.values.to(torch.int32)),
    "numel": lambda x: x.numel(),
    "tot_size": lambda x: [x.tot_size(i) for i in range(x.num_axes)],
    "dim0": lambda x: x.dim0,
    "tolist": lambda x: x.tolist(),
    "str": lambda x: str(x).replace(", device='mps:0'", ""),
    "str_simple": lambda x: x.to_str_simple().replace(", device='mps:0'", ""),
    "sum": lambda x: x.sum(initial_value=3),
    "min": lambda x: x.min(initial_value=100),
    "max": lambda x: x.max(initial_value=-100),
    "argmax": lambda x: x.argmax(initial_value=-100),
    "sort": lambda x: _sort(x),
    "sort_descending": lambda x: _sort(x, descending=True),
    "index": lambda x: x.index(_index(x, 1, 0, 1), axis=0, need_value_indexes=True),
    "index_minus_one": lambda x: x.index(_index(x, 0, -1, 1), axis=0, need_value_indexes=True),
    "index_axis1": lambda x: x.index(_index(x, 0), axis=0),
    "arange": lambda x: x.arange(axis=0, begin=0, end=2),
    "remove_values_eq": lambda x: x.remove_values_eq(3),
    "remove_values_leq": lambda x: x.remove_values_leq(0),
    "cat0": lambda x: k2r.cat([x, x, x], axis=0),
    "cat1": lambda x: k2r.cat([x, x], axis=1),
    "add": lambda x: x.add(
        torch.arange(x.tot_size(x.num_axes - 2), device=x.device).to(x.dtype), 2
    ),
    "equal": lambda x: x == x.clone(),
    "not_equal": lambda x: x != x.clone(),
}


@DTYPES
@pytest.mark.parametrize("num_axes", [2, 3, 4])
@pytest.mark.parametrize("name", ANY)
def test_any_dtype(name, num_axes, dtype):
    assert_equal_on_both(lambda device: ANY[name](random_ragged(num_axes, dtype, device)))


INT = {
    "unique": lambda x: x.unique(need_num_repeats=True, need_new2old_indexes=True),
    "as_index_of_a_tensor": lambda x: k2r.index(
        torch.arange(20, device=x.device, dtype=torch.int32),
        k2.RaggedTensor(x.shape, x.values.abs()),
        default_value=-5,
    ),
    "index_and_sum": lambda x: k2r.index_and_sum(
        torch.arange(20, device=x.device, dtype=torch.float32),
        k2.RaggedTensor(x.shape, x.values.abs()),
    ),
}


@pytest.mark.parametrize("name", INT)
def test_int(name):
    assert_equal_on_both(lambda device: INT[name](random_ragged(2, torch.int32, device)))


@pytest.mark.parametrize("mode", ["constant", "replicate"])
def test_pad(mode):
    assert_equal_on_both(lambda d: random_ragged(2, REAL, d).pad(mode=mode, padding_value=7))


DIFFERENTIABLE = {
    "sum": lambda x: x.sum(),
    "logsumexp": lambda x: x.logsumexp(),
    "normalize": lambda x: x.normalize(use_log=True).values,
}


@pytest.mark.parametrize("expanded", [True, False])
@pytest.mark.parametrize("num_axes", [2, 3])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient(name, num_axes, expanded):
    def results(device):
        x = random_ragged(num_axes, REAL, device).requires_grad_(True)
        y = DIFFERENTIABLE[name](x)
        assert y.requires_grad
        if expanded:
            # An empty sublist gives -inf, which must not enter the sum.
            y.clamp(min=-1000).sum().backward()
        else:
            y.backward(torch.linspace(1, 2, y.numel()).to(device))
        return y, x.grad

    # The same host computes exp() and log() in float32, in the same order of sums.
    assert_equal_on_both(results)


SHAPE = {
    "compose": lambda s: s.compose(k2r.RaggedShape("[" + "[x x]" * s.numel() + "]").to(s.device)),
    "remove_axis": lambda s: s.compose(
        k2r.RaggedShape("[" + "[x x]" * s.numel() + "]").to(s.device)
    ).remove_axis(1),
    "get_layer": lambda s: s.get_layer(0),
    "max_size": lambda s: s.max_size(1),
    "tot_sizes": lambda s: s.tot_sizes(),
    "index": lambda s: s.index(0, torch.tensor([2, 0], dtype=torch.int32, device=s.device)),
    "equal": lambda s: s == s.to(s.device),
    "str": lambda s: str(s),
    "regular": lambda s: k2r.regular_ragged_shape(3, 2).to(s.device),
}


@pytest.mark.parametrize("name", SHAPE)
def test_shape(name):
    assert_equal_on_both(lambda d: SHAPE[name](k2r.RaggedShape("[[x x] [] [x x x]]").to(d)))


def test_row_ids_make_row_splits():
    row_ids = torch.tensor([0, 0, 2, 2, 2, 5], dtype=torch.int32)
    assert_equal_on_both(lambda d: k2r.create_ragged_shape2(row_ids=row_ids.to(d)))


def test_a_million_elements():
    """A tensor so large that a wrong element count or a 16-bit index shows."""
    n = 1_000_000
    torch.manual_seed(5)
    sizes = torch.randint(0, 5, (n // 2,), dtype=torch.int32)
    row_splits = torch.zeros(len(sizes) + 1, dtype=torch.int32)
    row_splits[1:] = sizes.cumsum(0)
    values = torch.randint(0, 1000, (int(row_splits[-1]),), dtype=torch.int32)

    def results(device):
        shape = k2r.create_ragged_shape2(row_splits=row_splits.to(device))
        ragged = k2.RaggedTensor(shape, values.to(device))
        return ragged.sum(), _sort(ragged)[0]

    assert_equal_on_both(results)


def test_tensors_of_two_devices_are_refused():
    shape = k2r.RaggedShape("[[x x] [x]]").to("mps")
    with pytest.raises(RuntimeError):
        k2.RaggedTensor(shape, torch.tensor([1.0, 2.0, 3.0]))
    ragged = k2.RaggedTensor([[1], [2]], device="mps")
    with pytest.raises(RuntimeError):
        ragged.index(torch.tensor([0], dtype=torch.int32), axis=0)
    with pytest.raises(RuntimeError):
        k2r.cat([ragged, ragged.to("cpu")], axis=0)

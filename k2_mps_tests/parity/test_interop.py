"""k2's objects on mps share memory with their inputs, and with the tensors that they return."""

import k2
import k2.ragged as k2r
import pytest
import torch

from k2_mps_tests.parity.helpers import (
    MPS,
    assert_equal_on_both,
    assert_same,
    python,
    random_fsa_vec,
)

# data_ptr() of an mps tensor need not be an address of the host.  But two tensors have the same
# data_ptr() if, and only if, they begin at the same byte.


@pytest.mark.parametrize("name, column", [("labels", 2), ("scores", 3)])
def test_a_column_shares_the_memory_of_the_arcs(name, column):
    fsa = random_fsa_vec().to("mps")
    arcs, values = fsa.arcs.values(), getattr(fsa, name)
    assert arcs.device == values.device == MPS
    assert arcs.data_ptr() == fsa.arcs.values().data_ptr()
    assert values.data_ptr() == arcs.data_ptr() + 4 * column
    assert values.stride() == (4,)
    # The last arc of an FSA has label -1, which must stay.
    values[0] = 17
    assert getattr(k2.Fsa(fsa.arcs), name)[0].item() == 17
    arcs[0, column:].view(values.dtype)[0] = 3
    assert getattr(fsa, name)[0].item() == values[0].item() == 3


def test_values_of_a_ragged_tensor_are_the_tensor_it_was_made_of():
    shape = k2r.RaggedShape("[[x x] [] [x]]").to("mps")
    values = torch.tensor([1.0, 2.0, 3.0], device="mps")
    ragged = k2.RaggedTensor(shape, values)
    assert ragged.values.data_ptr() == values.data_ptr()
    values += 1
    assert ragged.tolist() == [[2.0, 3.0], [], [4.0]]


def test_row_splits_are_copied():
    row_splits = torch.tensor([0, 2, 2, 5], dtype=torch.int32, device="mps")
    shape = k2r.create_ragged_shape2(row_splits=row_splits)
    assert shape.device == MPS
    row_splits.zero_()
    assert shape.row_splits(1).tolist() == [0, 2, 2, 5]
    assert shape.row_ids(1).tolist() == [0, 0, 2, 2, 2]


@pytest.mark.parametrize("offset", [1, 3, 7, 100])
def test_a_tensor_with_an_offset(offset):
    base = torch.arange(200, dtype=torch.int32, device="mps")
    part = base[offset : offset + 4]
    shape = k2r.RaggedShape("[[x x] [x x]]").to("mps")
    ragged = k2.RaggedTensor(shape, part)
    assert ragged.values.data_ptr() == base.data_ptr() + 4 * offset
    expected = list(range(offset, offset + 4))
    assert ragged.tolist() == [expected[:2], expected[2:]]
    # The copy to the CPU has only the elements of the slice.
    assert ragged.to("cpu").values.tolist() == expected


def test_a_result_that_begins_inside_of_its_region():
    ragged = k2.RaggedTensor([[1, 2], [3], [4, 5, 6]], device="mps")
    part = ragged.arange(axis=0, begin=1, end=3)
    assert part.values.data_ptr() == ragged.values.data_ptr() + 8
    assert part.tolist() == [[3], [4, 5, 6]]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32, torch.bool])
def test_index_select_of_strided_tensors(dtype):
    src = torch.randint(0, 2, (6, 8), device="mps").to(dtype)
    index = torch.tensor([5, 0, -1, 3], dtype=torch.int32, device="mps")
    column = src[:, 3]
    assert not column.is_contiguous()
    if dtype == torch.bool:
        # k2 has no strided index_select for this type on any device.
        column = column.contiguous()
    for x in (column, src[2]):
        index_of_x = index.clamp(max=x.numel() - 1)
        assert_same(k2.index_select(x, index_of_x), k2.index_select(x.cpu(), index_of_x.cpu()))


@pytest.mark.parametrize("size", [(), (2,)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_gradient_of_index_select_in_half_types(dtype, size):
    """torch adds up this gradient, because k2's own sum takes no half types."""
    grads = []
    for device in ("cpu", MPS):
        leaf = torch.zeros(3, *size, dtype=dtype, device=device, requires_grad=True)
        index = torch.tensor([1, -1, 0, 1], dtype=torch.int32, device=device)
        found = k2.index_select(leaf, index)
        found.backward(torch.arange(found.numel(), dtype=dtype, device=device).view(found.shape))
        grads.append(leaf.grad)
    assert_same(grads[1], grads[0])


@pytest.mark.parametrize("text", ["[]", "[[]]", "[[] [] []]", "[[[]] []]"])
def test_empty_ragged_tensors(text):
    cpu = k2.RaggedTensor(text, dtype=torch.float32)
    mps = cpu.to("mps")
    assert mps.device == MPS
    assert mps.values.shape == (0,)
    assert mps.values.device == MPS
    assert mps.tolist() == cpu.tolist()
    assert mps.sum().tolist() == cpu.sum().tolist()


def test_the_memory_outlives_the_object_it_came_from():
    ragged = k2.RaggedTensor([[1, 2], [3]], device="mps")
    values = ragged.values
    del ragged
    filler = [torch.full((1024,), 7, device="mps") for _ in range(64)]
    assert values.tolist() == [1, 2, 3]
    del filler

    values = torch.tensor([4, 5, 6], dtype=torch.int32, device="mps")
    shape = k2r.RaggedShape("[[x x] [x]]").to("mps")
    ragged = k2.RaggedTensor(shape, values)
    del values
    filler = [torch.full((1024,), 7, device="mps") for _ in range(64)]
    assert ragged.tolist() == [[4, 5], [6]]
    del filler


def test_writes_are_seen_at_once_in_both_directions():
    values = torch.zeros(4, dtype=torch.int32, device="mps")
    index = torch.tensor([0, 2, 2, 3], dtype=torch.int32, device="mps")
    ones = torch.ones(4, dtype=torch.int32, device="mps")
    for i in range(1, 20):
        k2.index_add(index, ones, values)  # by k2, on the host
        values *= 2  # by torch, on the device
        expected = sum(2**j for j in range(1, i + 1))
        assert values.tolist() == [expected, 0, 2 * expected, expected]


def test_dense_fsa_vec_aliases_its_scores():
    log_probs = torch.randn(2, 5, 4, device="mps").log_softmax(-1)
    segments = torch.tensor([[0, 0, 5], [1, 0, 3]], dtype=torch.int32)
    dense = k2.DenseFsaVec(log_probs, segments)
    assert dense.device == MPS
    assert dense.dense_fsa_vec.shape().row_splits(1).tolist() == [0, 6, 10]
    with torch.no_grad():
        dense.scores[:] = -1
    assert "inf" not in dense.dense_fsa_vec.to_str()


def test_mps_without_an_index_is_the_same_device():
    fsa = random_fsa_vec(1).to("mps")
    assert fsa.to("mps") is fsa
    assert fsa.to(torch.device("mps")) is fsa
    assert fsa.to("mps:0") is fsa
    assert fsa.device == torch.device("mps", 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: k2.RaggedTensor([[1.5]], dtype=torch.float64).to("mps"),
        lambda: k2.RaggedTensor([[1.5]], dtype=torch.float64, device="mps"),
        lambda: k2.RaggedTensor("[[1.5]]", dtype=torch.float64, device="mps"),
        lambda: k2r.create_ragged_tensor([[1.5]], dtype=torch.float64, device="mps"),
        lambda: k2.RaggedTensor([[1.5]], device="mps").to(torch.float64),
    ],
)
def test_a_ragged_tensor_of_float64_is_refused_as_torch_refuses(make):
    with pytest.raises(TypeError) as by_torch:
        torch.zeros(3, dtype=torch.float64, device="mps")
    with pytest.raises(TypeError) as by_k2:
        make()
    assert str(by_k2.value) in str(by_torch.value)


def test_leaving_python_with_objects_alive():
    """An interpreter that ends while k2 holds mps memory does not crash."""
    code = (
        "import k2, torch\n"
        'f = k2.linear_fsa([[1, 2], [3]], device="mps")\n'
        "f.requires_grad_(True)\n"
        "t = f.get_tot_scores(True, True)\n"
        'r = k2.RaggedTensor([[1, 2]], device="mps")\n'
        'x = torch.ones(5, device="mps") + 1\n'
        'print("done")\n'
    )
    result = python("-c", code)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "done\n"


def test_a_million_elements():
    """A wrong number of elements, or an index of 16 bits, would show in a tensor of this size."""
    torch.manual_seed(5)
    sizes = torch.randint(0, 5, (500_000,), dtype=torch.int32)
    row_splits = torch.nn.functional.pad(sizes.cumsum(0), (1, 0)).int()
    values = torch.randint(0, 1000, (int(row_splits[-1]),), dtype=torch.int32)

    def results(device):
        shape = k2r.create_ragged_shape2(row_splits=row_splits.to(device))
        ragged = k2.RaggedTensor(shape, values.to(device))
        return ragged.sum(), ragged.clone().sort_(), ragged

    assert_equal_on_both(results)

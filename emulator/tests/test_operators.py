"""Compares aten operators on the emulated device with the CPU."""

import mps_emulator
import pytest
import torch
import torch.nn.functional as F

MPS = "mps"


def both(function, *tensors, tolerance=0, **kwargs):
    """Runs a function with CPU tensors and with mps tensors, and compares the results.

    Args:
      tolerance: the relative and the absolute difference that is allowed.
    """
    expected = function(*[t.clone() for t in tensors], **kwargs)
    got = function(*[t.to(MPS) for t in tensors], **kwargs)
    assert got.device.type == MPS
    torch.testing.assert_close(got.cpu(), expected, rtol=tolerance, atol=tolerance)


X = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[torch.tensor([0, 2])],
        lambda x: x.expand(3, 4, 5).sum(0),
        lambda x: torch.fft.fft(x).conj().imag,
        lambda x: torch.add(x, 1, out=torch.empty(0, device=x.device)),
        lambda x: torch.vmap(lambda row: row.sum())(x),
        lambda x: torch._foreach_add([x, x], 1)[1],
    ],
)
def test_same_as_on_the_cpu(function):
    """The test has one function for each kind of operator.  oracle.py tests all operators."""
    both(function, X)


# ---- views and in-place


def _in_place(x):
    y = x.clone()
    y[1] = 3.0
    y[:, 2] += 1
    y.view(-1)[3:6].mul_(2)
    y.t()[0].zero_()
    y[y > 2] = -1
    y.index_put_((torch.tensor([0, 1]),), torch.tensor(9.0))
    return y


def test_in_place_on_views():
    both(_in_place, X)


def test_resize():
    x = torch.arange(6.0, device=MPS)
    x.resize_(2, 4)
    assert x.shape == (2, 4) and x.view(-1)[:6].tolist() == [*range(6)]


def test_set():
    x = torch.arange(8.0, device=MPS)
    y = torch.empty(0, device=MPS).set_(x)
    assert y.data_ptr() == x.data_ptr()
    y.set_(x.untyped_storage(), 2, (2, 2), (2, 1))
    assert y.tolist() == [[2, 3], [4, 5]]
    x.set_()
    assert x.numel() == 0


def test_copy_between_strides():
    x = torch.zeros(4, 5, device=MPS)
    x.copy_(X.t().contiguous().t())
    assert torch.equal(x.cpu(), X)
    y = torch.zeros(5, 4, device=MPS)
    y.t().copy_(X.to(MPS))
    assert torch.equal(y.cpu(), X.t())


def test_copy_between_types():
    x = X.to(MPS)
    assert torch.equal(x.to(torch.float16).cpu(), x.cpu().half())


def test_copy_expands_the_source():
    x = torch.zeros(4, 5, device=MPS)
    x.copy_(torch.arange(5))
    assert torch.equal(x.cpu(), torch.arange(5.0).expand(4, 5))


def test_copy_between_other_shapes_is_refused():
    with pytest.raises(RuntimeError):
        torch.zeros(4, 5, device=MPS).copy_(torch.zeros(3))


@pytest.mark.parametrize(
    "other", [2.5, torch.tensor(1.0, dtype=torch.float64)], ids=["a number", "a scalar of the CPU"]
)
def test_a_scalar_does_not_change_the_type(other):
    x = torch.ones(3, device=MPS, dtype=torch.float16)
    assert (x * other).dtype == (x + other).dtype == torch.float16


# ---- refusals of the device


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(3, dtype=torch.float64, device=MPS),
        lambda: torch.zeros(3, device=MPS).double(),
        lambda: torch.zeros(3, dtype=torch.float64).to(MPS),
        lambda: torch.zeros(3, device=MPS).to(torch.complex128),
        lambda: torch.empty_strided((2,), (1,), dtype=torch.float64, device=MPS),
    ],
)
def test_float64_is_refused(make):
    with pytest.raises(
        TypeError,
        match="Cannot convert a MPS Tensor to float64 dtype as the MPS "
        "framework doesn't support float64",
    ):
        make()


def test_devices_do_not_mix():
    x = torch.ones(3, device=MPS)
    for function in (
        lambda: x + torch.ones(3),
        lambda: torch.mm(x.view(1, 3), torch.ones(3, 1)),
        lambda: torch.cat([x, torch.ones(3)]),
    ):
        with pytest.raises(RuntimeError, match="same device"):
            function()
    with pytest.raises(TypeError, match="can't convert mps:0"):
        x.numpy()


def test_an_operator_without_an_mps_kernel_is_refused():
    """segment_reduce is one example.  oracle.py tests all operators with an OpInfo of torch."""
    x, lengths = X.to(MPS), torch.tensor([2, 2], device=MPS)
    with pytest.raises(
        NotImplementedError, match="is not currently implemented for the MPS device"
    ):
        torch.segment_reduce(x, "sum", lengths=lengths)


def test_a_fallback_runs_every_operator(in_child):
    done = in_child(
        "x = torch.tensor([1.0, 6.0], device='mps')\n"
        "lengths = torch.tensor([2], device='mps')\n"
        "print(torch.segment_reduce(x, 'sum', lengths=lengths).cpu().tolist())\n",
        PYTORCH_ENABLE_MPS_FALLBACK="1",
    )
    assert done.stdout == "[7.0]\n", done.stderr
    assert "will fall back to run on the CPU" in done.stderr


# ---- networks


@pytest.mark.parametrize("cell", [torch.nn.LSTM, torch.nn.GRU])
def test_recurrent_networks(cell):
    torch.manual_seed(0)
    network = cell(5, 3, num_layers=2, bidirectional=True, batch_first=True)
    batch = torch.randn(2, 4, 5)

    def run(device):
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            batch.to(device), torch.tensor([4, 2]), batch_first=True
        )
        return network.to(device)(packed)[0].data.cpu()

    torch.testing.assert_close(run(MPS), run("cpu"))


def test_bytes_of_operators():
    def moved(work):
        with mps_emulator.counters() as counted:
            work()
        return counted.operator_bytes

    x = torch.ones(100, 10, device=MPS)
    y = torch.empty_like(x)
    assert moved(lambda: y.copy_(x)) == 2 * 4000
    assert moved(lambda: y.copy_(x[:1].expand(100, 10))) == 4000 + 40
    assert moved(lambda: x.add_(1)) == 4000
    assert moved(lambda: x + y) == 3 * 4000
    assert moved(lambda: x.t()[2:]) == 0
    index = torch.tensor([1, 2], device=MPS)
    assert moved(lambda: x.index_select(0, index)) == 4000 + 16 + 80
    assert moved(lambda: x.cpu()) == 4000
    assert moved(lambda: y.copy_(torch.ones(100, 10), non_blocking=True)) == 4000


@pytest.mark.parametrize("rows", [slice(3, 4), slice(0, 8)])
def test_attention_with_a_boolean_mask(rows):
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 2, 8, 4)
    mask = torch.tril(torch.ones(8, 8, dtype=torch.bool))[rows]
    both(
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m),
        query[..., rows, :],
        key,
        value,
        mask,
        # For CPU tensors, torch calls another kernel, and that kernel adds in another order.
        tolerance=1e-6,
    )


def test_indexed_assignment_in_torchscript():
    @torch.jit.script
    def fill(x):
        x[x < 3] = 1.0
        return x

    @torch.jit.script
    def accumulate(x, index, value):
        return x.index_put_([None, index], value, accumulate=True)

    both(fill, torch.arange(6.0))
    both(accumulate, torch.arange(8.0).reshape(4, 2), torch.tensor([1, 0]), torch.tensor(10.0))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.float16, torch.float32])
def test_bincount_keeps_the_type_of_its_weights(dtype):
    weights = torch.tensor([1, 1, 1, 2], device=MPS, dtype=dtype)
    counts = torch.bincount(torch.tensor([0, 1, 1, 2], device=MPS), weights)
    assert counts.dtype == dtype
    assert counts.tolist() == [1, 2, 2]


def test_dtypes_that_the_cpu_lacks():
    x = torch.tensor([0.5, 2], dtype=torch.half, device=MPS)
    expected = torch.special.bessel_j0(x.cpu().float()).half()
    out = torch.empty(0, dtype=torch.half, device=MPS)
    torch.special.bessel_j0(x, out=out)
    assert torch.equal(torch.special.bessel_j0(x).cpu(), expected)
    assert torch.equal(out.cpu(), expected)
    truths = torch.tensor([True, False], device=MPS)
    assert truths.floor_() is truths
    assert truths.tolist() == [True, False]

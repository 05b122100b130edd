"""Metal's swoosh_l and swoosh_r agree with float64."""

import math
from typing import NamedTuple

import k2
import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from k2_mps_tests.parity.helpers import MPS

SHIFTS = {"l": (4.0, 0.035), "r": (1.0, 0.313261687)}
KINDS = pytest.mark.parametrize("kind", SHIFTS)
TYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])

# For the backward pass, k2 stores the derivative in 8 bits.  STEP is the distance between two
# derivatives that differ by 1 in these bits.  k2 rounds at random, up or down.
STEP = 1.005 / 255
# The largest error of the kernels' results, in units in the last place.  The results come from
# tables; SwooshTable in k2/csrc/mps/swoosh.cu promises this error.
MOST_ULPS = 2.0
# Results nearer to 0 than this number are not compared, because the reference in float64 has fewer
# right digits there than a float32 has.
FLOAT64_DIGITS = 2e-9


def _expected(x, kind):
    """Returns swoosh and its derivative in float64."""
    shift, offset = SHIFTS[kind]
    x = x.double()
    y = torch.logaddexp(x - shift, torch.zeros((), dtype=torch.float64))
    return (y - 0.08 * x - offset, torch.sigmoid(x - shift) - 0.08)


def _worst_ulps(found, expected):
    """Returns the largest error, in units in the last place of the float32 nearest to `expected`.

    Results that are not finite must be equal.
    """
    found = found.detach().cpu().double().numpy()
    expected = expected.numpy()
    rounded = expected.astype(np.float32)
    special = ~np.isfinite(rounded)
    np.testing.assert_array_equal(found[special], rounded[special])
    judged = ~special & (np.abs(expected) > FLOAT64_DIGITS)
    unit = np.spacing(np.abs(rounded[judged])).astype(np.float64)
    return (np.abs(found[judged] - expected[judged]) / unit).max()


def _all_sorts_of_floats():
    """Returns float32 numbers: random bits, numbers near 0 (where swoosh bends), special values."""
    random = np.random.default_rng(5)
    bits = random.integers(0, 1 << 32, 1 << 16, dtype=np.uint32)
    near = random.normal(0, 6, 1 << 16).astype(np.float32)
    inf = math.inf
    special = [0, -0.0, inf, -inf, math.nan, 1e-45, -1e-45, 1e-38, 3.4e38, -3.4e38, 88, 89, 100]
    return torch.from_numpy(
        np.concatenate([bits.view(np.float32), near, np.array(special, np.float32)])
    )


@KINDS
@pytest.mark.parametrize("name", ["", "_forward", "_forward_and_deriv"])
def test_values_of_all_floats(kind, name):
    x = _all_sorts_of_floats()
    found = getattr(k2, f"swoosh_{kind}{name}")(x.to("mps"))
    y = found[0] if name == "_forward_and_deriv" else found
    assert _worst_ulps(y, _expected(x, kind)[0]) <= MOST_ULPS


@KINDS
def test_derivatives_of_all_floats(kind):
    x = _all_sorts_of_floats()
    _, deriv = getattr(k2, f"swoosh_{kind}_forward_and_deriv")(x.to("mps"))
    assert _worst_ulps(deriv, _expected(x, kind)[1]) <= MOST_ULPS


@KINDS
def test_values_near_the_zeros(kind):
    zeros = {"l": (-0.26267, 2.77125), "r": (-3.81482, 0.0)}[kind]
    x = torch.cat([torch.linspace(zero - 1e-3, zero + 1e-3, 20_001) for zero in zeros])
    y = getattr(k2, f"swoosh_{kind}_forward")(x.to("mps"))
    assert _worst_ulps(y, _expected(x, kind)[0]) <= MOST_ULPS


@KINDS
@TYPES
def test_values_with_a_gradient(kind, dtype):
    x = _all_sorts_of_floats().to(dtype)
    y = getattr(k2, f"swoosh_{kind}")(x.to("mps").requires_grad_(True))
    # k2 returns float32 for all input types.
    assert (y.device, y.dtype, y.requires_grad) == (MPS, torch.float32, True)
    assert _worst_ulps(y, _expected(x, kind)[0]) <= MOST_ULPS


@KINDS
@TYPES
def test_gradient(kind, dtype):
    x = (torch.randn(2003) * 5).to(dtype).to("mps").requires_grad_(True)
    y = getattr(k2, f"swoosh_{kind}")(x)
    upstream = torch.linspace(-2, 2, y.numel(), device="mps")
    y.backward(upstream)
    assert x.grad.dtype == dtype and x.grad.device == MPS
    _, deriv = _expected(x.detach().cpu(), kind)
    # The derivative is off by up to a STEP, and `upstream` is at most 2.  The product is rounded
    # to the type of x.
    slack = STEP * 2 + torch.finfo(dtype).eps * 4
    expected = deriv * upstream.cpu().double()
    torch.testing.assert_close(x.grad.cpu().double(), expected, rtol=0, atol=slack)


@KINDS
@pytest.mark.parametrize("value", [-7.0, 0.0, 1.7, 30.0])
def test_the_gradient_is_right_on_average(kind, value):
    count = 100_000
    x = torch.full((count,), value, device="mps", requires_grad=True)
    getattr(k2, f"swoosh_{kind}")(x).sum().backward()
    _, deriv = _expected(torch.tensor([value]), kind)
    # A rounding has a standard deviation of at most STEP / 2.  So the standard deviation of the
    # mean of 100,000 roundings is at most STEP / 632.  If k2 rounded down, or had a bias of a 63rd
    # of a step, the mean would be off by ten standard deviations or more.  The test allows five
    # standard deviations, which a right generator exceeds once in two million runs.
    assert abs(x.grad.cpu().double().mean().item() - deriv.item()) <= 5 * STEP / 2 / count**0.5


def test_roundings_of_neighbours_do_not_depend_on_one_another():
    count = 1 << 16
    x = torch.full((count,), 1.7, device="mps", requires_grad=True)
    k2.swoosh_r(x).sum().backward()
    up = (x.grad > x.grad.min()).cpu().double()
    up -= up.mean()
    for distance in (1, 2, 3, 4, 128, 1024):
        correlation = (up[distance:] * up[:-distance]).mean() / up.square().mean()
        # The test allows five standard deviations of 1 / sqrt(count).
        assert abs(correlation) < 5 / count**0.5, distance


def _kept(x):
    """Returns which elements dropout keeps; swoosh of each element of x must not be 0."""
    return (k2.swoosh_l(x, dropout_prob=0.5) != 0).cpu()


def test_manual_seed_repeats_the_random_numbers():
    x = torch.full((1000,), 100.0, device="mps", requires_grad=True)
    torch.manual_seed(1)
    first, second = _kept(x), _kept(x)
    torch.manual_seed(1)
    assert torch.equal(_kept(x), first) and torch.equal(_kept(x), second)
    # By chance, 1,000 elements would agree once in 10^301 runs.
    assert not torch.equal(first, second)


def test_checkpointing_repeats_the_random_numbers():
    x = torch.full((1000,), 100.0, device="mps", requires_grad=True)
    seen = []

    def block(x):
        y = k2.swoosh_l(x, dropout_prob=0.5)
        seen.append((y.detach() != 0).cpu())
        return y

    with set_checkpoint_early_stop(False):
        checkpoint(block, x, use_reentrant=False).sum().backward()
    assert len(seen) == 2 and torch.equal(*seen)
    torch.testing.assert_close(x.grad.cpu() > 0.5, seen[0])


def test_dropout_does_not_bias_the_rounding():
    count = 100_000
    x = torch.full((count,), 1.7, device="mps", requires_grad=True)
    y = k2.swoosh_r(x, dropout_prob=0.5)
    y.sum().backward()
    kept = (y != 0).cpu()
    _, deriv = _expected(torch.tensor([1.7]), "r")
    mean = x.grad.cpu()[kept].double().mean().item()
    # The tolerance is that of test_the_gradient_is_right_on_average, with two changes.  There are
    # about half as many roundings.  Dropout doubles the kept gradients and their errors.
    assert abs(mean - 2 * deriv.item()) <= 2 * 5 * STEP / 2 / (0.45 * count) ** 0.5


@KINDS
def test_dropout(kind):
    p = 0.25
    x = (torch.randn(20_000) * 5).to("mps").requires_grad_(True)
    y = getattr(k2, f"swoosh_{kind}")(x, dropout_prob=p)
    y.sum().backward()
    expected, deriv = _expected(x.detach().cpu(), kind)
    y, grad = y.detach().cpu().double(), x.grad.cpu().double()
    dropped = y == 0
    # The test allows five standard deviations of sqrt(p (1 - p) / 20,000).
    assert abs(dropped.double().mean().item() - p) < 5 * (p * (1 - p) / 20_000) ** 0.5
    # Dropout adds two roundings.
    torch.testing.assert_close(y[~dropped], (expected / (1 - p))[~dropped], rtol=4 * 2**-23, atol=0)
    slack = STEP / (1 - p) + 1e-6
    assert (grad[dropped].abs() <= slack).all()
    torch.testing.assert_close(grad[~dropped], (deriv / (1 - p))[~dropped], rtol=0, atol=slack)


@KINDS
@pytest.mark.parametrize("shape", [(), (1,), (0, 4), (3,), (4,), (5,), (2, 1, 3), (1025,)])
def test_shapes(kind, shape):
    x = torch.full(shape, 2.0, device="mps", requires_grad=True)
    for name in ("_forward", "_forward_and_deriv"):
        found = getattr(k2, f"swoosh_{kind}{name}")(x)
        for y in found if isinstance(found, tuple) else (found,):
            assert y.shape == shape
    y = getattr(k2, f"swoosh_{kind}")(x)
    assert y.shape == shape
    y.sum().backward()
    assert x.grad.shape == shape
    if y.numel() != 0:
        expected, deriv = _expected(torch.tensor(2.0), kind)
        assert (y.detach().cpu().double() - expected).abs().max() < 1e-7
        assert (x.grad.cpu().double() - deriv).abs().max() <= STEP


LAYOUTS = {
    "transposed": lambda: torch.randn(4, 3, 2).transpose(0, 2),
    "permuted, an axis of size 1": lambda: torch.randn(5, 1, 7).permute(1, 2, 0),
    "slice with gaps": lambda: torch.randn(4, 12)[1:, 2:9:2],
    "slice without gaps": lambda: torch.randn(9, 3)[1:],
    "expanded": lambda: torch.randn(1, 4).expand(3, 4),
}


def _on_mps(x):
    """Returns a tensor on mps with the values, strides and offset of x."""
    base = x if x._base is None else x._base
    return base.to("mps").as_strided(x.shape, x.stride(), x.storage_offset())


@KINDS
@TYPES
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(kind, dtype, layout):
    x = LAYOUTS[layout]()
    x = _on_mps((x if x._base is None else x._base).to(dtype).as_strided(*_view(x)))
    leaf = x.detach().requires_grad_(True)
    y = getattr(k2, f"swoosh_{kind}")(leaf)
    # In memory, the axes of the gradient have another order than the axes of the input.
    upstream = torch.linspace(1, 2, y.numel(), device="mps").view(y.shape[::-1])
    upstream = upstream.permute(*reversed(range(y.dim())))
    (grad,) = torch.autograd.grad(y, leaf, upstream)
    expected, deriv = _expected(x.cpu(), kind)
    assert y.shape == x.shape and grad.shape == x.shape
    assert _worst_ulps(y, expected) <= MOST_ULPS
    slack = STEP * 2 + torch.finfo(dtype).eps * 4
    torch.testing.assert_close(
        grad.cpu().double(), deriv * upstream.cpu().double(), rtol=0, atol=slack
    )


def _view(x):
    return x.shape, x.stride(), x.storage_offset()


@KINDS
def test_two_backward_passes_give_the_same_bits(kind):
    x = torch.randn(500, device="mps", requires_grad=True)
    y = getattr(k2, f"swoosh_{kind}")(x)
    grads = [torch.autograd.grad(y.sum(), x, retain_graph=True)[0] for _ in range(2)]
    assert torch.equal(*grads)


class Commands(NamedTuple):
    dispatches: int
    operators: int  # of torch
    waits: int


ONE_DISPATCH = Commands(dispatches=1, operators=0, waits=0)


def _commands(function):
    """Calls a function twice, and returns the numbers of the second call."""
    function()
    torch.mps.synchronize()
    with k2.mps.counters() as counted:
        function()
    return Commands(counted.dispatches, counted.operators, counted.waits)


@KINDS
@TYPES
@pytest.mark.parametrize("name", ["", "_forward", "_forward_and_deriv"])
def test_a_call_is_one_dispatch(kind, dtype, name):
    x = torch.randn(6, 4, 5, device="mps").to(dtype).permute(1, 0, 2)
    function = getattr(k2, f"swoosh_{kind}{name}")
    assert _commands(lambda: function(x)) == ONE_DISPATCH


@KINDS
@TYPES
def test_each_pass_is_one_dispatch(kind, dtype):
    x = torch.randn(6, 4, 5, device="mps").to(dtype).permute(1, 0, 2).requires_grad_(True)
    function = getattr(k2, f"swoosh_{kind}")
    y = function(x, dropout_prob=0.1)
    upstream = torch.ones_like(y)
    assert _commands(lambda: function(x, dropout_prob=0.1)) == ONE_DISPATCH
    assert _commands(lambda: torch.autograd.grad(y, x, upstream, retain_graph=True)) == ONE_DISPATCH

"""swoosh_l and swoosh_r, made of ATen operators on mps, against float64."""

import k2
import pytest
import torch

from k2_mps_tests.parity.helpers import MPS

SHIFTS = {"l": (4.0, 0.035), "r": (1.0, 0.313261687)}
KINDS = pytest.mark.parametrize("kind", SHIFTS)

# float32 outputs of up to 1,000, with a few roundings.
RTOL = 1e-6
ATOL = 1e-6
# k2 keeps the gradient in 8 bits, in steps of 1.005 / 255 with random rounding.
STEP = 1.005 / 255


def _inputs(dtype=torch.float32):
    torch.manual_seed(41)
    x = torch.cat(
        [torch.randn(2000) * 5, torch.tensor([0.0, -1000.0, 1000.0, 88.0, 89.0, 1e-8, 20.0, 21.0])]
    )
    return x.to(dtype)


def _expected(x, kind):
    """Returns swoosh and its derivative in float64."""
    shift, offset = SHIFTS[kind]
    x = x.double()
    y = torch.logaddexp(x - shift, torch.zeros((), dtype=torch.float64))
    return (y - 0.08 * x - offset, torch.sigmoid(x - shift) - 0.08)


@KINDS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_forward(kind, dtype):
    x = _inputs(dtype)
    for name in ("", "_forward", "_forward_and_deriv"):
        found = getattr(k2, f"swoosh_{kind}{name}")(x.to("mps").requires_grad_(True))
        for y, expected in zip(found if name.endswith("deriv") else [found], _expected(x, kind)):
            assert y.requires_grad == (name == "")
            # k2 returns float32 for all input types.
            assert (y.device, y.dtype) == (MPS, torch.float32)
            torch.testing.assert_close(y.detach().cpu().double(), expected, rtol=RTOL, atol=ATOL)


@KINDS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_gradient(kind, dtype):
    x = _inputs(dtype).to("mps").requires_grad_(True)
    y = getattr(k2, f"swoosh_{kind}")(x)
    upstream = torch.linspace(-2, 2, y.numel(), device="mps")
    y.backward(upstream)
    assert x.grad.dtype == dtype and x.grad.device == MPS
    _, deriv = _expected(x.detach().cpu(), kind)
    expected = deriv * upstream.cpu().double()
    slack = STEP * 2 + torch.finfo(dtype).eps * 4
    torch.testing.assert_close(x.grad.cpu().double(), expected, rtol=0, atol=slack)


@KINDS
def test_the_gradient_is_right_on_average(kind):
    x = torch.full((20_000,), 1.7, device="mps", requires_grad=True)
    getattr(k2, f"swoosh_{kind}")(x).sum().backward()
    _, deriv = _expected(torch.tensor([1.7]), kind)
    assert x.grad.unique().numel() == 2  # rounded up or down
    # The mean of 20,000 roundings, each with an error of at most a step: 5 standard
    # deviations of STEP / 2 / sqrt(20,000).
    torch.testing.assert_close(
        x.grad.mean().cpu().double(), deriv[0], rtol=0, atol=5 * STEP / 2 / 20_000**0.5
    )


@KINDS
def test_dropout(kind):
    p = 0.25
    x = _inputs().to("mps").requires_grad_(True)
    y = getattr(k2, f"swoosh_{kind}")(x, dropout_prob=p)
    y.sum().backward()
    expected, deriv = _expected(x.detach().cpu(), kind)
    # swoosh_r(0) is about 0 without dropout too.
    keep = expected.abs() > 1e-3
    x_grad = x.grad.cpu()[keep]
    y, expected, deriv = y.detach().cpu()[keep], expected[keep], deriv[keep]
    dropped = y == 0
    # About 2,000 trials: 0.05 is five standard deviations.
    assert abs(dropped.float().mean().item() - p) < 0.05
    torch.testing.assert_close(
        y[~dropped].double(), (expected / (1 - p))[~dropped], rtol=RTOL, atol=ATOL
    )
    grad = x_grad.double()
    slack = 2 * STEP / (1 - p)
    assert (grad[dropped].abs() <= slack).all()
    torch.testing.assert_close(grad[~dropped], (deriv / (1 - p))[~dropped], rtol=0, atol=slack)


@KINDS
def test_a_transposed_input(kind):
    x = torch.randn(2, 3, 4, device="mps").transpose(0, 2)
    assert not x.is_contiguous()
    y = getattr(k2, f"swoosh_{kind}")(x)
    assert y.shape == x.shape
    expected, _ = _expected(x.cpu(), kind)
    torch.testing.assert_close(y.cpu().double(), expected, rtol=RTOL, atol=ATOL)

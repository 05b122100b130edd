"""rnnt_loss_smoothed and rnnt_loss_simple in Metal agree with the CPU's results in float64.

k2/python/tests/mps_rnnt_smoothed_test.py tests each kind of loss.  The tests here vary the sizes,
and use large logits and odd inputs.  A tolerance is relative to the norm of a tensor.

Two of the functions here are like two of that file.  k2's tests go to k2 with the patches and
import nothing of this project, and this file imports nothing of theirs.
"""

import k2
import pytest
import torch

from k2_mps_tests.parity.helpers import EPS, MPS


def make(B, S, T, C, scale=1.0):
    lm, am = torch.randn(B, S + 1, C) * scale, torch.randn(B, T, C) * scale
    return lm, am, torch.randint(0, C, (B, S))


def results(function, lm, am, device, dtype):
    """Calls a function on a device, in `dtype`; returns [loss, gradient of lm, gradient of am].

    The returned tensors are in float64 on the CPU.
    """
    leaves = [x.detach().to(device, dtype).requires_grad_(True) for x in (lm, am)]
    loss = function(*leaves)
    loss.sum().backward()
    return [x.detach().cpu().double() for x in (loss, *(leaf.grad for leaf in leaves))]


def smoothed(symbols, scales=(0.25, 0.0), boundary=None, **rest):
    """Returns a function of lm and am: the smoothed loss, or the simple loss if scales is None."""

    def function(lm, am):
        bound = None if boundary is None else boundary.to(am.device)
        if scales is None:
            return k2.rnnt_loss_simple(lm, am, symbols.to(am.device), 0, bound, **rest)
        return k2.rnnt_loss_smoothed(lm, am, symbols.to(am.device), 0, *scales, bound, **rest)

    return function


def check(function, lm, am, tolerance):
    found = results(function, lm, am, MPS, torch.float32)
    expected = results(function, lm, am, "cpu", torch.float64)
    for a, b in zip(found, expected):
        assert a.isfinite().all()
        assert (a - b).norm() <= tolerance * b.norm(), ((a - b).norm() / b.norm(), b.norm())


# (S, T, C): the numbers of symbols, frames and logits.  Some sizes are the smallest allowed.
# Other sizes are near multiples of 32, the size of a tile, or near 256, the number of rows in a
# band.
SIZES = [(0, 1, 1), (1, 1, 2), (0, 40, 33), (31, 32, 5), (32, 63, 70), (33, 95, 31), (260, 300, 3)]


@pytest.mark.parametrize("rnnt_type", ["regular", "modified", "constrained"])
@pytest.mark.parametrize("S, T, C", SIZES)
def test_sizes(S, T, C, rnnt_type):
    lm, am, symbols = make(2, S, T, C)
    function = smoothed(symbols, (0.25, 0.1), rnnt_type=rnnt_type)
    # Each of S + T steps rounds a score of about 3 (S + T).  The gradients have the same errors,
    # because they are computed from the scores.
    check(function, lm, am, (S + T) * 3 * EPS + 1e-5)


@pytest.mark.parametrize("am_scale", [0.0, 0.1])
@pytest.mark.parametrize("scale", [2, 10, 40])
def test_large_logits(scale, am_scale):
    """If logits have a standard deviation of 30, torch's float32 products have errors of 15%."""
    lm, am, symbols = make(2, 15, 60, 500, scale)
    check(smoothed(symbols, (0.25, am_scale), reduction="sum"), lm, am, 1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scale", [4, 40])
def test_autocast_changes_nothing(dtype, scale):
    lm, am, symbols = make(2, 15, 60, 500, scale)
    function = smoothed(symbols, (0.25, 0.1))

    def cast(lm, am):
        with torch.autocast("mps", dtype=dtype):
            return function(lm, am)

    expected = results(function, lm, am, MPS, torch.float32)
    assert all(x.isfinite().all() for x in expected)
    for a, b in zip(results(cast, lm, am, MPS, torch.float32), expected):
        assert torch.equal(a, b)


def test_what_is_scaled_by_zero_does_not_count():
    """A part of the loss whose scale is 0 does not count, even if the part is infinite."""
    lm, am, symbols = make(2, 4, 9, 6)
    lm[0, 1, symbols[0, 1]] = float("-inf")
    for scales in ((0.0, 0.0), (0.5, 0.5), (1.0, 0.0), (0.0, 1.0)):
        for x in results(smoothed(symbols, scales), lm, am, MPS, torch.float32)[1:]:
            assert x.isfinite().all(), scales


# {name: (lm or am, an index)}: logits of sequence 0.  No sequence has symbol 5.
ELEMENTS = {
    "first position": ("lm", (0, 0, 5)),
    "position": ("lm", (0, 2, 5)),
    "last position": ("lm", (0, 4, 5)),
    "all of a position": ("lm", (0, 2)),
    "frame": ("am", (0, 3, 5)),
    "last frame": ("am", (0, 8, 5)),
}


def _with_nan(elements, scales, bounded, rnnt_type):
    """Returns results on mps, and the CPU's float64 results, if `elements` are NaN."""
    S, T, C = 4, 9, 6
    lm, am, symbols = make(2, S, T, C)
    name, at = ELEMENTS[elements]
    (lm if name == "lm" else am)[at] = float("nan")
    boundary = torch.tensor([[0, 0, S, T]] * 2) if bounded else None
    rest = dict(boundary=boundary, rnnt_type=rnnt_type, reduction="none")
    function = smoothed(symbols % (C - 1), scales, **rest)
    return [
        results(function, lm, am, device, dtype)
        for device, dtype in ((MPS, torch.float32), ("cpu", torch.float64))
    ]


@pytest.mark.parametrize("rnnt_type", ["regular", "modified", "constrained"])
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("elements", ELEMENTS)
def test_a_nan_makes_the_smoothed_loss_nan(elements, bounded, rnnt_type):
    """Only the sequence with the NaN has a loss of NaN.

    On the CPU, a NaN in lm also makes the losses of other sequences NaN.
    """
    (loss, *grads), (expected, *_) = _with_nan(elements, (0.25, 0.0), bounded, rnnt_type)
    assert loss[0].isnan() and loss[1].isfinite() and expected[0].isnan()
    assert all(grad.isnan().any() for grad in grads)


@pytest.mark.parametrize("rnnt_type", ["regular", "modified", "constrained"])
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("elements", ELEMENTS)
def test_a_nan_does_to_the_simple_loss_what_it_does_on_the_cpu(elements, bounded, rnnt_type):
    """The loss can be NaN, infinite or finite, because k2 drops some paths whose score is NaN."""
    (loss, *grads), (expected, *_) = _with_nan(elements, None, bounded, rnnt_type)
    assert loss[0].isnan() == expected[0].isnan() and loss[0].isinf() == expected[0].isinf()
    assert loss[1].isfinite()
    assert all(grad.isnan().any() for grad in grads)


def test_strided_inputs():
    lm, am, symbols = make(3, 5, 9, 8)
    function = smoothed(symbols.t().contiguous().t(), (0.25, 0.1))
    expected = results(function, lm, am, MPS, torch.float32)

    def strided(lm, am):
        return function(lm.transpose(0, 1), am.transpose(1, 2))

    found = results(
        strided,
        lm.transpose(0, 1).contiguous(),
        am.transpose(1, 2).contiguous(),
        MPS,
        torch.float32,
    )
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1].transpose(0, 1), expected[1])
    assert torch.equal(found[2].transpose(1, 2), expected[2])


@pytest.mark.parametrize("which", [0, 1], ids=["lm", "am"])
def test_only_one_argument_needs_a_gradient(which):
    *inputs, symbols = (x.to(MPS) for x in make(2, 4, 9, 6))
    _, *grads = results(smoothed(symbols), *inputs, MPS, torch.float32)
    leaf = inputs[which] = inputs[which].clone().requires_grad_(True)
    smoothed(symbols)(*inputs).backward()
    assert torch.equal(leaf.grad.cpu().double(), grads[which])


def test_without_gradients():
    lm, am, symbols = (x.to(MPS) for x in make(2, 4, 9, 6))
    with k2.mps.counters() as counted:
        loss = smoothed(symbols)(lm, am)
    assert not loss.requires_grad and counted.dispatches == 4
    assert torch.equal(loss, smoothed(symbols)(lm.requires_grad_(True), am).detach())


@pytest.mark.parametrize("B, S, T", [(0, 3, 4), (2, 3, 0), (2, 0, 0)])
def test_empty_tensors_give_the_cpus_results(B, S, T):
    lm, am, symbols = make(B, S, T, 5)
    function = smoothed(symbols, reduction="none")
    mps, cpu = (results(function, lm, am, device, torch.float32) for device in (MPS, "cpu"))
    for a, b in zip(mps, cpu):
        assert torch.equal(a, b)


@pytest.mark.parametrize("shape", [(), (6,), (2, 6)])
def test_scores_without_three_axes_give_the_cpus_error(shape):
    _, am, symbols = make(2, 3, 4, 5)
    errors = []
    for device in ("cpu", MPS):
        with pytest.raises(AssertionError) as error:
            smoothed(symbols)(torch.zeros(shape, device=device), am.to(device))
        errors.append(str(error.value))
    assert errors[0] == errors[1]

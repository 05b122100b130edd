"""mutual_information_recursion in Metal agrees with the CPU's result in float64.

The recursion adds S + T terms, and rounds each sum to float32.  The sums are about as large as the
result.  So the error of the value is about (S + T) * eps * |value|, with eps = 1.2e-7.  Gradients
are probabilities, at most 1.  k2 computes gradients from differences of the sums, so a gradient has
the absolute error of the value.  Errors have both signs and mostly cancel.  So a test allows only
``TERMS`` times this error.
"""

import _k2
import k2
import pytest
import torch

from k2_mps_tests.parity.helpers import EPS, MPS, assert_same

TERMS = 0.5
HALF_TYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])


def make(B, S, T, modified, boundary=None, scale=1.0):
    """Returns px and py, float64 on the CPU.

    py has shape (B, S + 1, T).  px has shape (B, S, T + 1), or (B, S, T) if `modified` is true.
    """
    px = torch.randn(B, S, T if modified else T + 1, dtype=torch.float64)
    py = torch.randn(B, S + 1, T, dtype=torch.float64)
    # k2's losses pass logs of probabilities, which are mostly negative.
    return px * scale - 1, py * scale - 1


def run(px, py, boundary, device, dtype):
    """Returns the scores, the gradient of px, and the gradient of py, all in float64."""
    x = px.to(dtype).to(device).requires_grad_(True)
    y = py.to(dtype).to(device).requires_grad_(True)
    if boundary is not None:
        boundary = boundary.to(device)
    ans = k2.mutual_information_recursion(x, y, boundary)
    assert ans.device == torch.device(device)
    weight = torch.arange(1, ans.numel() + 1, device=device).to(dtype)
    (ans * weight).sum().backward()
    assert x.grad.device == ans.device and y.grad.device == ans.device
    return (ans.detach().cpu().double(), x.grad.cpu().double(), y.grad.cpu().double())


def check(px, py, boundary=None):
    B, S = px.shape[:2]
    T = py.shape[2]
    # float32 represents these numbers exactly, so only the arithmetic differs between devices.
    px, py = px.float().double(), py.float().double()
    ans, px_grad, py_grad = run(px, py, boundary, MPS, torch.float32)
    expected = run(px, py, boundary, "cpu", torch.float64)

    size = 1 + expected[0].nan_to_num(0, 0, 0).abs().max().item()
    bound = TERMS * (S + T + 1) * EPS * size
    torch.testing.assert_close(ans, expected[0], atol=bound, rtol=0, equal_nan=True)
    # The gradients of the b'th sequence are multiplied by b + 1.
    torch.testing.assert_close(px_grad, expected[1], atol=B * bound, rtol=0)
    torch.testing.assert_close(py_grad, expected[2], atol=B * bound, rtol=0)


LIMITS = [(30, 300), (31, 300), (32, 300), (63, 70), (64, 70), (126, 300), (127, 300), (128, 300)]
LIMITS += [(127, 20), (255, 261), (256, 260), (510, 520), (511, 520), (512, 520)]
SIZES = [(3, s, t) for s, t in [(1, 1), (1, 7), (7, 1), (5, 9), (33, 32), (31, 64), (70, 110)]]
# These sizes have more rows, or more columns, than a threadgroup has threads.
SIZES += [(1, 3, 1500), (1, 1030, 5), (1, 1100, 1060)]
# Numbers of rows, S + 1, below, at and above the limits of simdgroups and bands.
SIZES += [(2, s, t) for s, t in LIMITS]


@pytest.mark.parametrize("modified", [False, True])
@pytest.mark.parametrize("B,S,T", SIZES)
def test_sizes(B, S, T, modified):
    if modified and S > T > 1:
        T = S + 3  # In the modified recursion, each symbol takes a frame.
    check(*make(B, S, T, modified))


@pytest.mark.parametrize("modified", [False, True])
@pytest.mark.parametrize("S,T", [(0, 0), (0, 1), (1, 0), (0, 9), (9, 0)])
def test_empty_sequences(S, T, modified):
    # In the modified recursion each symbol takes a frame, so there is a path only
    # if S <= T.  Even if T is 0, px's shape tells k2 whether the recursion is modified.
    check(*make(2, S, T, modified))


def test_no_sequences():
    ans = k2.mutual_information_recursion(
        torch.zeros(0, 3, 5, device="mps"), torch.zeros(0, 4, 4, device="mps")
    )
    assert ans.shape == (0,) and ans.device == MPS


BOUNDARIES = {
    # {name: ((S, T), boundary)}.  A row of a boundary is for one sequence: s and t of its first
    # cell, then s and t of its last cell.
    "one band": (
        (8, 12),
        [
            [0, 0, 8, 12],
            [0, 0, 3, 7],
            [2, 3, 5, 9],
            [4, 5, 4, 5],  # empty
            [1, 2, 1, 9],  # one row
            [0, 0, 0, 0],
        ],
    ),
    "several bands": (
        (600, 630),
        [
            [0, 0, 600, 630],
            [3, 5, 515, 609],  # 513 rows, one more than two bands have
            [10, 20, 521, 620],  # 512 rows, two full bands
            [60, 7, 91, 190],
            [600, 629, 600, 630],
        ],
    ),
    "one column": ((8, 9), [[1, 4, 6, 4], [0, 0, 8, 0]]),
}


@pytest.mark.parametrize("modified", [False, True])
@pytest.mark.parametrize("name", BOUNDARIES)
def test_boundary(name, modified):
    (S, T), boundary = BOUNDARIES[name]
    check(*make(len(boundary), S, T, modified), torch.tensor(boundary))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38])
@pytest.mark.parametrize("modified", [False, True])
@pytest.mark.parametrize("S,T", [(20, 50), (150, 40)])
def test_values_outside_of_the_boundary_change_no_bit(S, T, modified, value):
    """Values outside of the boundary do not change the results, and their gradient is 0."""
    torch.manual_seed(S)
    px, py = make(4, S, T, modified)
    boundary = torch.tensor(
        [[0, 0, S - 3, T - 2], [5, 7, S, T - 1], [2, 1, S - 1, T], [S, T - 4, S, T]]
    )
    expected = run(px, py, boundary, MPS, torch.float32)
    for b, (s_begin, t_begin, s_end, t_end) in enumerate(boundary.tolist()):
        px_inside = torch.zeros_like(px[b], dtype=torch.bool)
        px_inside[s_begin:s_end, t_begin : t_end + (not modified)] = True
        px[b][~px_inside] = value
        assert (expected[1][b][~px_inside] == 0).all()
        py_inside = torch.zeros_like(py[b], dtype=torch.bool)
        py_inside[s_begin : s_end + 1, t_begin:t_end] = True
        py[b][~py_inside] = value
        assert (expected[2][b][~py_inside] == 0).all()
        assert modified or px_inside.any() == (expected[1][b] != 0).any()
    ans, px_grad, py_grad = run(px, py, boundary, MPS, torch.float32)
    assert torch.equal(ans, expected[0])
    assert torch.equal(px_grad, expected[1])
    assert torch.equal(py_grad, expected[2])


@pytest.mark.parametrize("value", [float("-inf"), -1e4, -1e9, -1e30, -3e38])
@pytest.mark.parametrize("modified", [False, True])
def test_large_negative_numbers_close_paths(modified, value):
    px, py = make(2, 6, 9, modified)
    px[0, 2, 3:] = value
    py[1, :4, 5] = value
    check(px, py)


INF, NAN = float("inf"), float("nan")
# {name: ((B, S, T), changes, tolerance)}.  A change is (px or py, an index, the new number).  Metal
# and the CPU compute in float32.  In each of S + T steps, exp() and log() have errors of an ulp or
# two.
NOT_FINITE = {
    "no path from row 1 to row 2": ((2, 4, 6), [("px", (0, 1), -INF)], {"atol": 1e-6, "rtol": 0}),
    **{
        f"{value} in {where}": (
            (3, 5, 7),
            [(where, (1, 2, 3), value)],
            {"atol": 12 * 4 * EPS * 10, "rtol": 0},  # at values of about 10
        )
        for value in (NAN, INF)
        for where in ("px", "py")
    },
    "several bands": (
        (3, 550, 40),
        [("px", (0, 540, 3), NAN), ("py", (1, 549, 5), NAN), ("px", (2, 20), -INF)],
        {"atol": 590 * EPS * 600, "rtol": 0},  # at values of about 600
    ),
    **{
        f"{value} in px": ((1, 3, 4), [("px", (0, 1, 2), value)], {"atol": 1e-6, "rtol": 4 * EPS})
        for value in (1e21, 3e38)
    },
}


@pytest.mark.parametrize("name", NOT_FINITE)
def test_numbers_that_are_large_or_not_finite_spread_as_on_the_cpu(name):
    shape, changes, tolerance = NOT_FINITE[name]
    px, py = make(*shape, False)
    for where, index, value in changes:
        (px if where == "px" else py)[index] = value
    mps, cpu = [run(px, py, None, device, torch.float32) for device in (MPS, "cpu")]
    for a, b in zip(mps, cpu):
        torch.testing.assert_close(a, b, equal_nan=True, **tolerance)


def test_strided_inputs_with_returned_gradients():
    px, py = make(4, 6, 9, False)
    wide_px = torch.zeros(4, 6, 20)
    wide_px[:, :, 5:15] = px
    swapped_py = py.float().transpose(0, 1).contiguous().to("mps")
    ans, grads = k2.mutual_information_recursion(
        wide_px.to("mps")[:, :, 5:15], swapped_py.transpose(0, 1), return_grad=True
    )
    expected, expected_grads = k2.mutual_information_recursion(
        px.float().double(), py.float().double(), return_grad=True
    )
    assert_same(ans, expected.float(), atol=1e-5, rtol=1e-6)
    for grad, expected_grad in zip(grads, expected_grads):
        # These gradients have the error that the top of this file explains, with S + T = 15.
        assert_same(grad, expected_grad.float(), atol=1e-5, rtol=0)


@HALF_TYPES
@pytest.mark.parametrize("S,T", [(20, 90), (30, 50), (150, 60), (540, 80)])
@pytest.mark.parametrize("modified", [False, True])
def test_half_types_are_added_up_in_float32(modified, S, T, dtype):
    torch.manual_seed(S)
    if modified and S > T:
        T = S + 3
    px, py = (x.to(dtype) for x in make(5, S, T, modified))
    px[1, S // 2] = float("-inf")  # no path
    px[2, S - 3, T // 2] = float("nan")
    py[3, 5, 7] = float("inf")
    boundary = torch.tensor([[0, 0, S, T]] * 4 + [[1, 2, S - 2, T - 10]], device=MPS)
    if modified:
        boundary[4, 2] = min(S - 2, T - 12)
    ans, grads = k2.mutual_information_recursion(px.to(MPS), py.to(MPS), boundary, return_grad=True)
    expected, expected_grads = k2.mutual_information_recursion(
        px.float().to(MPS), py.float().to(MPS), boundary, return_grad=True
    )
    assert ans.dtype == torch.float32
    assert ans[0].isfinite() and ans[1] == float("-inf") and ans[4].isfinite()
    assert_same(ans, expected.cpu())
    for grad, expected_grad in zip(grads, expected_grads):
        # Only the result is rounded to the half type.
        assert grad.dtype == dtype
        assert torch.equal(grad, expected_grad.to(dtype))


@HALF_TYPES
def test_gradients_of_half_types(dtype):
    torch.manual_seed(4)
    px, py = (x.to(dtype) for x in make(3, 10, 30, False))
    ans, px_grad, py_grad = run(px, py, None, MPS, dtype)
    expected = run(px.float(), py.float(), None, MPS, torch.float32)
    assert torch.equal(ans, expected[0])
    # k2 rounds each derivative to `dtype`.  k2 then multiplies the derivative by the gradient of
    # ans, which is at most 3, and rounds the product.  k2 rounds small products to a multiple of
    # the smallest subnormal number.
    eps = torch.finfo(dtype).eps
    atol = 4 * torch.finfo(dtype).smallest_normal * eps
    torch.testing.assert_close(px_grad, expected[1], rtol=eps, atol=atol)
    torch.testing.assert_close(py_grad, expected[2], rtol=eps, atol=atol)


@HALF_TYPES
def test_joint_recursion_of_half_types(dtype):
    torch.manual_seed(5)
    px, py = (x.to(dtype).to(MPS) for x in make(2, 6, 20, False))
    first, second = k2.joint_mutual_information_recursion((px, px), (py, py))
    total = k2.mutual_information_recursion(px + px, py + py)
    assert first.dtype == dtype
    # k2 rounds each gradient to `dtype`.  k2 then multiplies px and py by the gradients, adds the
    # products, and rounds each sum.
    torch.testing.assert_close(
        (first + second).float(), total, atol=0, rtol=4 * torch.finfo(dtype).eps
    )


@pytest.mark.parametrize(
    "px,py,message",
    [
        ((2, 3, 5), (2, 4, 6), "px has shape"),
        ((2, 3, 5), (2, 3, 4), "py has shape"),
        ((2, 3, 5), (3, 4, 4), "py has shape"),
    ],
)
def test_wrong_shapes_are_refused(px, py, message):
    p = torch.zeros(px[0], px[1] + 1, py[2] + 1, device="mps")
    px, py = torch.zeros(px, device="mps"), torch.zeros(py, device="mps")
    with pytest.raises(RuntimeError, match=message):
        _k2.mutual_information_forward(px, py, None, p)


def test_mixed_devices_are_refused():
    px, py = torch.zeros(1, 2, 4, device="mps"), torch.zeros(1, 3, 3)
    with pytest.raises(RuntimeError, match="on mps"):
        k2.mutual_information_recursion(px, py)


def test_integers_are_refused():
    px, py = torch.zeros(1, 2, 4, device="mps"), torch.zeros(1, 3, 3, device="mps")
    with pytest.raises(RuntimeError, match="torch.float16 or torch.bfloat16"):
        k2.mutual_information_recursion(px.int(), py.int())


def test_a_boundary_on_the_cpu_is_refused():
    px, py = torch.zeros(1, 2, 4, device="mps"), torch.zeros(1, 3, 3, device="mps")
    boundary = torch.tensor([[0, 0, 2, 3]])
    with pytest.raises(RuntimeError, match="boundary must be"):
        k2.mutual_information_recursion(px, py, boundary)

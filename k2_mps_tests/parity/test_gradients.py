"""The gradient of each differentiable operation agrees with finite differences.

Other files compare gradients on mps with gradients on the CPU.  In this file, all inputs move along
a line.  A test compares the derivative along the line with the slope between two points of the
line.
"""

import math

import pytest
import torch

from k2_mps_tests.parity import calls
from k2_mps_tests.parity.helpers import EPS

STEP = 2.0**-7
# In these operations, a change of the scores can suddenly change which paths or arcs are kept. A
# short step avoids the jumps.
SHORT_STEP = 2.0**-13
WITH_JUMPS = ("shortest_path", "prune_on_arc_post")
# These operations draw pseudo-random paths, and any change of the scores gives other paths.
RANDOM = ("Nbest", "mwer_loss")
# The backward passes of these operations need no saved tensor, so a second pass does not fail.
LINEAR = ("DenseFsaVec", "cat")
# k2 rounds the derivative of a swoosh at random to 8 bits.  The derivative lies between about -0.1
# and 0.9.
UNIT_OF_SWOOSH = 1 / 255


def _cases(without=()):
    """Yields (name, call, value of K2_MPS_FORCE) for each differentiable operation."""
    for row in calls.table("operations.toml")["operations"]:
        if "gradient" not in row:
            continue
        places = ("host", "metal") if "either" in (row["on"], row["gradient"]) else ("metal",)
        for call in row["calls"]:
            name = call["names"][0]
            if name in without:
                continue
            for place in places:
                yield pytest.param(name, call["call"], place, id=f"{name}-{place}")


def _finite(result):
    """Returns the elements in float64 on the CPU, with 0 in place of infinities and NaN."""
    return result.detach().cpu().double().nan_to_num(posinf=0, neginf=0)


@pytest.mark.parametrize("name, call, place", list(_cases(without=RANDOM)))
def test_a_gradient_agrees_with_differences_of_results(name, call, place, monkeypatch):
    monkeypatch.setenv("K2_MPS_FORCE", place)
    step = SHORT_STEP if name in WITH_JUMPS else STEP
    along = torch.zeros((), device="mps", requires_grad=True)
    result = calls.result(call, calls.variables(along))
    generator = torch.Generator().manual_seed(7)
    weights = torch.rand(result.shape, generator=generator) + 0.5
    weights[result.detach().isinf().cpu()] = 0
    result.backward(weights.to(result.device, result.dtype))
    gradient = along.grad.item()

    def at(distance):
        with torch.no_grad():
            variables = calls.variables(torch.tensor(distance, device="mps"))
            moved = calls.result(call, variables)
        return (_finite(moved) * weights).sum().item()

    slope = (at(step) - at(-step)) / (2 * step)
    rougher = (at(2 * step) - at(-2 * step)) / (4 * step)
    # With the steps h and 2 h, the slopes have errors of c h^2 and 4 c h^2, and smaller terms of
    # h^4.  So the first slope's error is about a third of the slopes' difference.  The tolerance is
    # half of the difference, to cover the smaller terms.
    curvature = abs(rougher - slope) / 2
    # A slope divides the difference of two results, each rounded to float32, by two steps.
    rounding = (_finite(result).abs() * weights).sum().item() * EPS / step
    tolerance = curvature + rounding
    if name == "swoosh_l":
        # The standard deviation of a random rounding is at most half of a unit.  One in 16,000 sums
        # is off by more than four standard deviations.  The seed is fixed, so the test is stable.
        tolerance += 4 * UNIT_OF_SWOOSH / 2 * math.hypot(*weights.flatten().tolist())
    assert abs(gradient - slope) <= tolerance
    # With a larger tolerance, the test would miss wrong gradients.
    assert tolerance < 0.1 * abs(gradient)


@pytest.mark.parametrize("name, call, place", list(_cases()))
def test_without_gradients_a_result_requires_none(name, call, place, monkeypatch):
    monkeypatch.setenv("K2_MPS_FORCE", place)
    variables = calls.variables()
    with torch.no_grad():
        assert not calls.result(call, variables).requires_grad


@pytest.mark.parametrize("name, call, place", list(_cases(without=LINEAR)))
def test_a_second_backward_pass_is_refused(name, call, place, monkeypatch):
    monkeypatch.setenv("K2_MPS_FORCE", place)
    total = calls.result(call, calls.variables()).sum()
    total.backward()
    with pytest.raises(RuntimeError, match="second time"):
        total.backward()

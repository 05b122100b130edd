"""The training without k2: it learns, and reports a wrong kernel."""

import itertools
import math
import sys

import pytest
import torch

from k2_mps_tests.kernels import __main__ as command
from k2_mps_tests.kernels import sources, train


@pytest.fixture
def said():
    return []


def test_it_learns(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["k2mps kernels", "--train"])
    with pytest.raises(SystemExit) as end:
        command.main()
    said = capsys.readouterr().out.splitlines()
    assert end.value.code == 0, said
    assert said[0].startswith("on mps")
    assert said[-1].startswith("the loss fell from ")


def test_a_wrong_kernel_is_noticed(monkeypatch, said):
    text = sources.text("mutual_information")
    right = "FastLogAdd(from_above, from_left)"
    assert text.count(right) == 1
    monkeypatch.setattr(train.MutualInformation, "library", None)
    monkeypatch.setattr(sources, "text", lambda name: text.replace(right, right + " * 1.001f"))
    assert train.main(["--steps", "2"], said.append) == 1
    assert said[-1].startswith("error: a result is off by ")


def test_a_loss_that_does_not_fall_is_noticed(monkeypatch, said):
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self: None)
    assert train.main(["--steps", "2"], said.append) == 1
    assert said[-1].startswith("error: the loss has not fallen")


def test_nan_is_noticed(monkeypatch, said):
    monkeypatch.setattr(train, "compare", lambda *_: (1.0, 0.0, math.nan))
    assert train.main(["--steps", "1"], said.append) == 1
    assert "off by nan" in said[-1]


SIZES = [(1, 0, 1), (1, 1, 1), (2, 2, 3), (3, 3, 2), (1, 4, 4)]


def inputs(B, S, T):
    torch.manual_seed(S)
    px = torch.randn(B, S, T + 1, dtype=torch.float64)
    px[:, :, T] = -math.inf
    py = torch.randn(B, S + 1, T, dtype=torch.float64)
    boundary = torch.tensor([[0, 0, max(0, S - b), max(1, T - b)] for b in range(B)])
    return px, py, boundary


def paths(px, py, S, T):
    """The log of the sum over all paths, one path at a time."""
    totals = []
    for ups in itertools.combinations(range(S + T), S):
        s = t = 0
        total = 0.0
        for step in range(S + T):
            if step in ups:
                total += px[s, t].item()
                s += 1
            else:
                total += py[s, t].item()
                t += 1
        totals.append(total)
    return math.log(sum(map(math.exp, totals)))


@pytest.mark.parametrize("size", SIZES)
def test_the_reference_sums_over_all_paths(size):
    px, py, boundary = inputs(*size)
    found = train.by_recursion(px, py, boundary)
    expected = [paths(px[b], py[b], *boundary[b, 2:].tolist()) for b in range(len(px))]
    assert found.tolist() == pytest.approx(expected, rel=1e-12)

"""`python -m k2_mps_tests.kernels --train` lowers the loss, and reports a wrong kernel."""

import math
import sys

import pytest
import torch

from k2_mps_tests.kernels import __main__ as command
from k2_mps_tests.kernels import sources, train


@pytest.fixture
def said():
    return []


def test_the_loss_falls(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kernels", "--train"])
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

"""examples/icefall/fewer_waits.py changes no result of a recipe, and waits less.

icefall is not installed.  The modules `optim` and `scaling` are stand-ins, with the interface that
the file uses.
"""

import importlib
import random
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).resolve().parent
MODULES = ("fewer_waits", "optim", "scaling")


@pytest.fixture
def recipe(monkeypatch):
    """Returns the modules fewer_waits, optim and scaling, imported anew."""
    for folder in (HERE / "icefall", HERE.parents[1] / "examples/icefall"):
        monkeypatch.syspath_prepend(folder)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    plain = importlib.import_module("scaling").WhiteningPenaltyFunction
    modules = [importlib.import_module(name) for name in MODULES]
    modules[-1].plain = plain
    yield modules
    for name in MODULES:
        sys.modules.pop(name, None)


def weights(device="cpu"):
    """Three parameters of one shape, one of which never gets a gradient, and one of another."""
    generator = torch.Generator().manual_seed(5)
    shapes = {"a": (2, 3), "b": (4,), "c": (2, 3), "unused": (2, 3)}
    return {
        name: torch.nn.Parameter(torch.randn(shape, generator=generator).to(device))
        for name, shape in shapes.items()
    }


def train(optimizer, params, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (params["a"] * params["c"]).tanh().sum() + (params["b"] ** 4).sum()
        loss.backward()
        optimizer.step()


def run(kind):
    """Trains, loads weights as a recipe that continues does, and trains again."""
    params = weights()
    optimizer = kind(list(params.items()), lr=0.05)
    train(optimizer, params, 3)
    with torch.no_grad():
        params["a"].copy_(params["c"])
    train(optimizer, params, 2)
    params["b"].data = params["b"].detach() * 2
    train(optimizer, params, 2)
    state = [state["momentum"] for state in optimizer.state_dict()["state"].values()]
    return [*params.values(), *state]


def test_stacked_adam_gives_the_same_bits(recipe):
    fewer_waits, optim, _ = recipe
    plain, stacked = run(optim.ScaledAdam), run(fewer_waits.StackedAdam)
    assert len(plain) == len(stacked) == 4 + 2
    assert all(torch.equal(x, y) for x, y in zip(plain, stacked))
    assert not torch.equal(plain[0], weights()["a"])


def test_stacked_adam_does_not_copy_the_parameters(recipe):
    params = weights()
    optimizer = recipe[0].StackedAdam(list(params.items()), lr=0.05)
    train(optimizer, params, 1)
    before = [p.data_ptr() for p in params.values()]
    train(optimizer, params, 1)
    assert [p.data_ptr() for p in params.values()] == before
    assert params["c"].data_ptr() - params["a"].data_ptr() == params["a"].nbytes


def whitened(recipe, function, dtype=torch.float32, device="cpu"):
    """Returns the gradients of two Whitens, one below and one above its limit, and both modules."""
    scaling = recipe[2]
    scaling.WhiteningPenaltyFunction = function
    x = torch.randn(7, 5, 8, generator=torch.Generator().manual_seed(3)).to(device, dtype)
    x.requires_grad_()
    whitens = [scaling.Whiten(1e9), scaling.Whiten(1.0)]
    weight = torch.arange(8, device=device, dtype=dtype)
    losses = [(whiten(x) * weight).sum() for whiten in whitens]
    return [lambda loss=loss: torch.autograd.grad(loss, x)[0] for loss in losses], whitens


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_late_whitening_gives_the_same_bits(recipe, dtype):
    fewer_waits, _, scaling = recipe
    results = []
    for function in (scaling.plain, fewer_waits.LateWhitening):
        random.seed(1)
        backward, whitens = whitened(recipe, function, dtype)
        grads = [grad() for grad in backward]
        fewer_waits.LateWhitening.read()
        results.append((grads, [whiten.prob for whiten in whitens], random.random()))
    (plain, *others), (late, *late_others) = results
    assert others == late_others and others[0] == [0.25, 1.0]
    assert all(torch.equal(x, y) for x, y in zip(plain, late))
    assert not torch.equal(*plain)


def test_read_forgets_the_step(recipe):
    late = recipe[0].LateWhitening
    for grad in whitened(recipe, late)[0]:
        grad()
    assert len(late.found) == 2
    late.read()
    assert not late.found


@pytest.mark.k2
def test_late_whitening_waits_once_for_all_whitens(recipe):
    import k2

    fewer_waits, _, scaling = recipe
    waits = []
    for function in (scaling.plain, fewer_waits.LateWhitening):
        backward, _ = whitened(recipe, function, device="mps")
        with k2.mps.counters() as counted:
            for grad in backward:
                grad()
        with k2.mps.counters() as at_end:
            fewer_waits.LateWhitening.read()
        waits.append((counted.torch_waits, at_end.torch_waits))
    assert waits == [(2, 0), (0, 1)]

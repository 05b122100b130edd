"""Tests of ci/try_wheel.py, with which CI tries a wheel for macOS."""

import importlib.util
import os
import sys
from pathlib import Path

import k2
import pytest
import torch

from k2_mps_tests.running import ran

PROGRAM = Path(__file__).parents[2] / "ci/try_wheel.py"


def test_both_devices_are_tried():
    done = ran(sys.executable, PROGRAM)
    assert done.returncode == 0, done.stdout + done.stderr
    mps = "mps" if sys.platform == "darwin" else "mps (emulated)"
    assert "cpu: the largest difference from torch's CTC loss and gradient is " in done.stdout
    assert f"{mps}: the largest difference from the CPU is " in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can be without the device")
def test_without_a_device_the_reason_is_printed():
    done = ran(sys.executable, PROGRAM, env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nnot tried on mps: " in done.stdout and "emulated" not in done.stdout


def _program():
    """Returns the program as a module."""
    spec = importlib.util.spec_from_file_location("try_wheel", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _fail(*_, **__):
    raise RuntimeError("MPS backend out of memory")


@pytest.mark.parametrize(
    "ones_on_mps, reason",
    [
        (_fail, "fail on this device: MPS backend out of memory"),
        (torch.zeros, "give wrong results"),
    ],
)
def test_a_device_on_which_torch_itself_fails_is_not_tried(
    monkeypatch, capsys, ones_on_mps, reason
):
    ones = torch.ones

    def instead(*sizes, device=None, **options):
        make = ones_on_mps if device == "mps" else ones
        return make(*sizes, device=device, **options)

    monkeypatch.setattr(torch, "ones", instead)
    assert _program().main() == 0
    assert f"not tried on mps: torch's own operators {reason}" in capsys.readouterr().out


def _with_nan_as_gradient(losses):
    losses.register_hook(lambda grad: grad * float("nan"))
    return losses


@pytest.mark.parametrize("device, status", [("cpu", 1), ("mps", 2)])
@pytest.mark.parametrize(
    "change",
    [
        lambda losses: 1.001 * losses,
        lambda losses: losses + 0.001 * (losses - losses.detach()),
        _with_nan_as_gradient,
    ],
    ids=["losses", "gradient", "gradient NaN"],
)
def test_a_wrong_device_is_noticed(monkeypatch, capsys, device, status, change):
    module = _program()
    right = k2.ctc_loss

    def wrong(graph, *arguments, **options):
        losses = right(graph, *arguments, **options)
        return change(losses) if graph.device.type == device else losses

    monkeypatch.setattr(k2, "ctc_loss", wrong)
    assert module.main() == status
    assert "WRONG" in capsys.readouterr().out

"""Runs k2's own Python tests, unedited, on torch's mps device.

A pytest plugin: ``pytest -p k2_mps_tests.upstream.plugin k2/python/tests``.

k2's tests run on the CPU, and on ``cuda:0`` if torch has a CUDA device.  The plugin gives each test
module a stand-in with the name ``torch``.  k2's own modules use the real torch.  The stand-in
differs from torch in these points:

- ``torch.cuda`` has one device, and ``torch.device('cuda', 0)`` is
  ``mps:0``.
- ``torch.float64`` is ``torch.float32``, because mps has no float64.
  ``torch.autograd.gradcheck`` then compares differences in float32, see
  ``GRADCHECK``.

The tests in ``mps_*_test.py`` get the real torch, because they name the mps device themselves.

``exceptions.toml`` lists the tests that do not apply to mps, and the tests that run only
on mps and not on the CPU, with a reason for each.  The plugin raises an error if the suite
no longer has a listed test.

At the end, the plugin prints how many tests ran on mps, and how many tests do not choose
a device and so ran on the CPU.
"""

import collections
import sys
import types
from pathlib import Path

import pytest
import tomlkit
import torch

EXCEPTIONS = Path(__file__).with_name("exceptions.toml")

# The error of central differences of a float32 function f is about eps(float32) * |f| / step +
# step**2 * |f'''|.  In these tests, the step is 1e-2, and f is a sum of up to about 100 terms with
# values of about 1.  So the first part of the error is 1.2e-7 / 1e-2 = 1.2e-5 for each term.
GRADCHECK = {"eps": 1e-2, "atol": 2e-3, "rtol": 1e-2}


class _DeviceType(type):
    def __instancecheck__(cls, instance):
        return isinstance(instance, torch.device)

    def __call__(cls, *args, **kwargs):
        device = torch.device(*args, **kwargs)
        return torch.device("mps", 0) if device.type == "cuda" else device


class _Device(metaclass=_DeviceType):
    """The stand-in for torch.device."""


class _StandIn(types.ModuleType):
    """A copy of a module in which some names have other values."""

    def __init__(self, module, **names):
        super().__init__(module.__name__, module.__doc__)
        self.__dict__.update(names)
        self.__dict__["_module"] = module

    def __getattr__(self, name):
        return getattr(self._module, name)


def _gradcheck(func, inputs, **kwargs):
    return torch.autograd.gradcheck(func, inputs, **{**kwargs, **GRADCHECK})


_TORCH = _StandIn(
    torch,
    device=_Device,
    float64=torch.float32,
    double=torch.float32,
    autograd=_StandIn(torch.autograd, gradcheck=_gradcheck),
    cuda=_StandIn(
        torch.cuda,
        is_available=lambda: True,
        device_count=lambda: 1,
        set_device=lambda device: None,
    ),
)


# The property of a test's report that says where the test ran.
_RAN_ON = "ran on"
_EXCEPTIONS = pytest.StashKey()


def pytest_configure(config):
    import k2
    import k2.ragged
    import k2.sparse

    assert k2.with_mps, "this k2 was built without K2_WITH_MPS"
    assert torch.backends.mps.is_available(), "torch finds no mps device"
    k2.with_cuda = True
    with open(EXCEPTIONS, "rb") as f:
        config.stash[_EXCEPTIONS] = tomlkit.load(f)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    if not isinstance(collector, pytest.Module) or collector.path.name.startswith("mps_"):
        return (yield)
    sys.modules["torch"] = _TORCH
    try:
        return (yield)
    finally:
        sys.modules["torch"] = torch


def _name(item):
    return f"{item.path.stem}::{item.name}"


def pytest_collection_modifyitems(config, items):
    exceptions = config.stash[_EXCEPTIONS]
    modules = {item.path.stem for item in items}
    unknown = {
        name
        for names in exceptions.values()
        for name in names
        if name.partition("::")[0] in modules
    }
    unknown -= {_name(item) for item in items}
    if unknown and not any("::" in argument for argument in config.args):
        raise pytest.UsageError(
            f"{EXCEPTIONS.name} lists tests that k2 does not have: {', '.join(sorted(unknown))}"
        )
    for item in items:
        reason = exceptions["not_applicable"].get(_name(item))
        if reason is not None:
            item.add_marker(pytest.mark.skip("not applicable: " + reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    devices = getattr(item.cls, "devices", [])
    on_mps = [d for d in devices if d.type == "mps"]
    asks = item.path.name.startswith("mps_")
    item.user_properties.append((_RAN_ON, "mps" if on_mps or asks else "cpu"))
    if _name(item) not in item.config.stash[_EXCEPTIONS]["mps_only"]:
        return (yield)
    item.cls.devices = on_mps
    try:
        return (yield)
    finally:
        item.cls.devices = devices


def pytest_terminal_summary(terminalreporter):
    ran = collections.Counter(
        device
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, device in report.user_properties
        if name == _RAN_ON
    )
    emulated = "" if sys.platform == "darwin" else " (emulated)"
    terminalreporter.write_line(
        f"k2's own tests: {ran['mps']} ran on mps{emulated}, "
        f"{ran['cpu']} have no device to choose and ran on the CPU"
    )

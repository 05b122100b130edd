"""Tests that k2 on mps agrees with k2 on the CPU.

The tests need an mps build of k2.  On a Mac, the tests run on the real device.  On Linux, the tests
run on the emulated device.  Without an mps device, pytest stops with an error.  Skipped tests would
look like a success although nothing ran.
"""

import sys

import _k2
import k2
import pytest
import torch

from k2_mps_tests.kernels import sources


def pytest_addoption(parser):
    parser.addoption(
        "--rounds",
        type=int,
        default=1000,
        metavar="N",
        help="how often each test of threads repeats its calls",
    )


@pytest.fixture
def rounds(request):
    return request.config.getoption("rounds")


def pytest_configure(config):
    if not k2.with_mps:
        raise pytest.UsageError(
            "this k2 was built without K2_WITH_MPS; build it with `k2mps build`"
        )
    if not torch.backends.mps.is_available():
        raise pytest.UsageError("torch finds no mps device")


def pytest_report_header():
    return "mps: " + ("the real device" if sys.platform == "darwin" else "emulated")


@pytest.fixture
def metal(monkeypatch):
    """Makes Metal run the operations that the host could also run."""
    monkeypatch.setenv("K2_MPS_FORCE", "metal")


@pytest.fixture(params=["host", "metal"])
def placement(request, monkeypatch):
    """Runs a test twice: once on the host and once by Metal kernels."""
    monkeypatch.setenv("K2_MPS_FORCE", request.param)
    return request.param


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(20260101)


@pytest.fixture(autouse=True)
def waits_without_gil():
    """Asserts that no thread waits for torch's queue while holding the GIL.

    Such a wait can be a deadlock, because the queue's current task may need the GIL to end.
    """
    if sys.platform == "darwin":  # Only the emulated device counts such waits.
        yield
        return
    from mps_emulator import counters

    with counters() as counted:
        yield
    assert counted.syncs_with_gil == 0


@pytest.fixture(autouse=True)
def in_and_out_agree_with_the_kernels():
    """Asserts that each launch passes an argument with Out() if its kernel may write the argument.

    The launch must pass every other argument with In(); see k2/csrc/mps/metal.h.
    """
    yield
    numbers = sources.argument_numbers()
    for passed in _k2.mps_passed_arguments():
        writable = sources.writable_arguments(passed.source)[passed.kernel]
        for argument, is_writable in writable.items():
            bit = 1 << numbers[argument]
            is_in, is_out = passed.in_ & bit != 0, passed.out & bit != 0
            assert (is_in, is_out) == (not is_writable, is_writable), (passed.kernel, argument)

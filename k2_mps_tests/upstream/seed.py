"""Gives each of k2's own tests the same random numbers in every run.

A pytest plugin: ``pytest -p k2_mps_tests.upstream.seed k2/python/tests``.

k2's tests draw random input without a seed.  For some input, a few tests fail, even on the
CPU.  ``ctc_loss_test`` can draw targets that are too long for the frames.  For such targets,
torch's gradient is NaN and k2's gradient is 0.  On the CPU, 1 of the first 60 seeds makes this
test fail.  ``numerical_gradient_check_test`` can draw paths with equal scores, for which the
tropical score has no gradient.
"""

import random

import numpy
import pytest
import torch

SEED = 1


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    random.seed(SEED)
    numpy.random.seed(SEED)
    torch.manual_seed(SEED)

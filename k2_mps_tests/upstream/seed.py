"""Gives each of k2's own tests the same random numbers in every run.

A pytest plugin: ``pytest -p k2_mps_tests.upstream.seed k2/python/tests``.

k2's tests draw their cases without a seed, and some tests fail for a few of the
possible cases, on the CPU too.  ``ctc_loss_test`` may draw targets that do not fit into
the input: torch's gradient is then nan, and k2's is 0.  On the CPU this happens for 1 of the first
60 seeds; any of the others would do.  ``numerical_gradient_check_test`` may draw ties, at which the
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

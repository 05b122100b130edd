"""Give each of k2's own tests the same random numbers in every run.

A pytest plugin: ``pytest -p k2_mps_tests.upstream.seed k2/python/tests``.

k2's tests draw their cases without a seed, and some of them fail for a few of
the cases that they may draw, on the CPU as well: ``ctc_loss_test`` draws
targets that are longer than the input, for which the references differ, and
``numerical_gradient_check_test`` draws ties, where the tropical score has no
gradient.
"""
import random

import numpy
import pytest
import torch

SEED = 20260101


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    random.seed(SEED)
    numpy.random.seed(SEED)
    torch.manual_seed(SEED)

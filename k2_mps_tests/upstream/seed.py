"""Give each of k2's own tests the same random numbers in every run.

A pytest plugin: ``pytest -p k2_mps_tests.upstream.seed k2/python/tests``.

k2's tests draw their cases without a seed, and some of them fail for a few of
the cases that they may draw, on the CPU as well.  ``ctc_loss_test`` draws
targets that do not fit into the input, for which torch's gradient is nan and
k2's is 0: on the CPU for 1 of the first 60 seeds, so that any seed that does
not is as good as another.  ``numerical_gradient_check_test`` draws ties, where
the tropical score has no gradient.
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

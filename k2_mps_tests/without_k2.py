"""A plugin of pytest's: skips the tests that need k2, where k2 is missing.

They have the mark `k2`.  `k2mps test` loads it where upstream cannot be
reached, for suites whose other tests can run all the same.
"""

import pytest

# By these words `k2mps test` counts them.
REASON = "k2 itself is missing"


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("k2"):
            item.add_marker(pytest.mark.skip(reason=REASON))

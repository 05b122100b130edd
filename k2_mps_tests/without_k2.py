"""A pytest plugin that skips tests with the mark `k2`.

If k2's repository cannot be reached, `k2mps test` loads this plugin for suites that also have tests
without the mark.
"""

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("k2"):
            item.add_marker(pytest.mark.skip(reason="k2 itself is missing"))

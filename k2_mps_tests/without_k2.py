"""A pytest plugin that skips tests with the mark `k2`.

`k2mps test` loads the plugin if it cannot reach upstream, for suites that have other tests too.
"""

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("k2"):
            item.add_marker(pytest.mark.skip(reason="k2 itself is missing"))

"""A pytest plugin that passes the name of each test to the library of interpose.cc.

LD_PRELOAD has loaded this library.
"""

import ctypes

_library = ctypes.CDLL(None)


def pytest_runtest_protocol(item):
    # The name has the full path, because k2's tests can be outside of pytest's root directory.
    _, _, name = item.nodeid.partition("::")
    _library.waits_test(f"{item.path}::{name}".encode())

"""A pytest plugin: names each test to interpose.cc's library, which LD_PRELOAD has loaded."""

import ctypes

_library = ctypes.CDLL(None)


def pytest_runtest_protocol(item):
    # k2's tests may lie outside of pytest's root directory.
    _, _, name = item.nodeid.partition("::")
    _library.waits_test(f"{item.path}::{name}".encode())

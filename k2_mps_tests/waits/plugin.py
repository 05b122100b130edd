"""A pytest plugin: records the waits of each test, or drops some of them.

Works under LD_PRELOAD of interpose.cc's library.

WAITS_LIBRARY: the path of this library.
WAITS_RECORD: the output, a JSON object {id of a test: list of the sites ``[module,
  offset]`` whose wait found work in flight}.
WAITS_DROP: the input, a JSON list of the sites without waits.
"""

import ctypes
import json
import os

import pytest

_library = ctypes.CDLL(os.environ["WAITS_LIBRARY"])
_library.waits_drop.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
_library.waits_take.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
_library.waits_take.restype = ctypes.c_uint64
_library.waits_num_dropped.restype = ctypes.c_uint64
_recorded = {}


def _take():
    buffer = ctypes.create_string_buffer(1 << 20)
    needed = _library.waits_take(buffer, len(buffer))
    assert needed <= len(buffer), needed
    lines = buffer.value.decode().splitlines()
    return [[module, int(offset)] for module, offset in (line.split() for line in lines)]


def pytest_configure():
    if "WAITS_DROP" in os.environ:
        with open(os.environ["WAITS_DROP"]) as f:
            for module, offset in json.load(f):
                _library.waits_drop(module.encode(), offset)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    _take()
    try:
        return (yield)
    finally:
        # k2's tests may lie outside of pytest's root directory.
        _, _, name = item.nodeid.partition("::")
        _recorded[f"{item.path}::{name}"] = _take()


def pytest_sessionfinish():
    if "WAITS_RECORD" in os.environ:
        with open(os.environ["WAITS_RECORD"], "w") as f:
            json.dump(_recorded, f)


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"waits dropped: {_library.waits_num_dropped()}")

"""The kinds of planted bugs: the list here and the marks of the tests agree."""

import pathlib

import pytest

KINDS = {
    "autorelease without a pool",
    "buffer that no encoder knows",
    "constant memory that is written",
    "data pointer taken for the buffer",
    "divergent barrier",
    "encoder beside torch's own",
    "host access past the gate",
    "host write in flight",
    "inactive lane",
    "missing barrier",
    "missing fence",
    "missing synchronize",
    "out of bounds",
    "race between queues",
    "synchronize from two threads",
    "uninitialised threadgroup memory",
    "use of what has been freed",
    "write after read on a recycled buffer",
}


def test_no_test_has_another_kind(request):
    assert request.session.planted_kinds <= KINDS


def test_each_kind_has_a_test(request):
    files = set(pathlib.Path(__file__).parent.rglob("test_*.py"))
    if files - request.session.collected_files:
        pytest.skip("only some files were collected")
    assert KINDS == request.session.planted_kinds

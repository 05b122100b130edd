"""Each of k2's C++ tests passes, or exceptions.toml lists it."""

import pytest

from k2_mps_tests.upstream_cpp.conftest import EXCEPTIONS, names, programs


def test_a_test_of_k2_passes(program, name, results):
    failure = results.of(program, name)
    reason = EXCEPTIONS.get(f"{program.name}::{name}")
    if reason is None:
        assert not failure, failure
    else:
        assert failure, f"it passes; take it out of exceptions.toml: {reason}"
        pytest.skip(reason)


def test_every_exception_is_a_test():
    found = {f"{path.name}::{name}" for path in programs().values() for name in names(path)}
    assert set(EXCEPTIONS) <= found

"""Each of k2's C++ tests passes, or exceptions.toml lists it."""

import pytest

from k2_mps_tests.upstream_cpp.conftest import DEVICE, EXCEPTIONS, Results, names, programs

# A program with three tests.  The first skips itself.
PROGRAM = """#!/bin/sh
cat > "${1#--gtest_output=xml:}" <<'EOF'
<testsuites><testsuite>
<testcase classname="Suite" name="Skips"><skipped message="no device"/></testcase>
<testcase classname="Suite" name="Works"/>
<testcase classname="Suite" name="Last">FAILURE</testcase>
</testsuite></testsuites>
EOF
echo the last words
exit STATUS
"""


def test_a_test_of_k2_passes(program, name, results):
    result = results.of(program, name)
    reason = EXCEPTIONS.get(f"{program.name}::{name}")
    if reason is not None:
        assert result.failure, f"it passes; take it out of exceptions.toml: {reason}"
        pytest.skip(reason)
    assert not result.failure, result.failure
    if result.skipped:
        # A test of mps must find the device in a build for the device.
        assert DEVICE != "mps", result.skipped
        pytest.skip(result.skipped)


@pytest.mark.parametrize(
    "status, failure, last",
    [
        (0, "", ""),
        (1, '<failure message="1 is not 2"/>', "1 is not 2"),
        (134, "", "program ended with the status 134:\nthe last words"),
    ],
    ids=["passes", "fails", "crashes at the end"],
)
def test_the_results_are_those_of_the_program(tmp_path, status, failure, last):
    path = tmp_path / "program"
    path.write_text(PROGRAM.replace("STATUS", str(status)).replace("FAILURE", failure))
    path.chmod(0o755)
    results = Results(tmp_path)
    assert results.of(path, "Suite.Skips") == ("", "no device")
    assert results.of(path, "Suite.Works") == ("", "")
    assert results.of(path, "Suite.Last") == (last, "")
    assert "did not reach this test" in results.of(path, "Suite.Missing").failure


def test_every_exception_is_a_test():
    found = {f"{path.name}::{name}" for path in programs().values() for name in names(path)}
    assert set(EXCEPTIONS) <= found

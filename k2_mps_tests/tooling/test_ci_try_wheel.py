"""ci/try-wheel, with a small wheel in place of k2's, and a stand-in for try_wheel.py."""

import os
import shutil
import sys

import pytest

from k2_mps_tests.running import ran
from k2_mps_tests.tooling import support, wheel_for_tests

WARNING = "::warning::the wheel is wrong on this GPU\n"
MAY_BE_WRONG = "--mps-may-be-wrong"


@pytest.fixture
def try_wheel(tmp_path):
    """A function that runs ci/try-wheel, whose try_wheel.py ends with a given status."""
    ci = tmp_path / "ci"
    ci.mkdir()
    shutil.copy(support.TOOLS.parent / "ci/try-wheel", ci)
    files = {"k2/__init__.py": "", "k2/version.py": "print('version 1.0')\n"}
    wheel = wheel_for_tests.make(tmp_path, "1.0", name="k2", files=files)
    # The repository has a folder k2, too, which must not be imported.
    support.write(tmp_path, {"k2/__init__.py": "raise SystemExit(9)\n"})

    def run(*options, status):
        support.write(ci, {"try_wheel.py": f"import sys, k2\nprint('tried')\nsys.exit({status})\n"})
        environment = {**os.environ, "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
        environment.pop("PYTHONPATH", None)
        program = (ci / "try-wheel", *options, tmp_path / wheel, sys.executable)
        return ran(*program, cwd=tmp_path, env=environment)

    return run


def test_a_right_wheel_is_tried_where_only_the_wheel_is_found(try_wheel, tmp_path):
    result = try_wheel(status=0)
    assert (result.returncode, result.stdout) == (0, "version 1.0\ntried\n"), result.stderr
    assert (tmp_path / "summary").read_text() == result.stdout


@pytest.mark.parametrize(
    "options, status, expected",
    [([], 1, 1), ([MAY_BE_WRONG], 1, 1), ([], 2, 2), ([MAY_BE_WRONG], 2, 0)],
)
def test_only_a_wrong_mps_may_be_a_warning(try_wheel, options, status, expected):
    result = try_wheel(*options, status=status)
    assert result.returncode == expected, result.stderr
    assert (WARNING in result.stdout) == (expected == 0)

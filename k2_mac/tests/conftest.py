"""Fixtures of the tests of k2_mac.

Like the suite parity, these tests run on the real device or on the emulated one.
"""

import os
import pathlib
import shutil
import sys
import sysconfig
import venv

import pytest

from k2_mac.tests.programs import ROOT, write
from k2_mps_tests.parity.conftest import (  # noqa: F401
    in_and_out_agree_with_the_kernels,
    placement,
    pytest_configure,
    pytest_report_header,
    seed,
    waits_without_gil,
)
from k2_mps_tests.running import ran


@pytest.fixture(scope="session")
def python(tmp_path_factory):
    """A Python that finds all packages that this one finds, and has k2_mac_run.pth, as a wheel."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, symlinks=True)
    site = pathlib.Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    found = [path for path in sys.path if os.path.isdir(path)]
    own = [path for path in found if not path.startswith(sys.base_prefix + os.sep)]
    (site / "packages.pth").write_text("".join(f"{path}\n" for path in own))
    shutil.copy(ROOT / "k2_mac/k2_mac_run.pth", site)
    return folder / "bin/python"


@pytest.fixture
def project(tmp_path, python):
    """A function that writes files in a folder, and runs Python there; returns its output.

    Its first argument is a name of the folder.  The status of the program must be as expected.
    """

    def run_in(folder, files, *arguments, status=0, input=None, **variables):
        root = tmp_path / folder
        write(root, {**files, ".git/HEAD": ""})
        environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
        environment["PYTHONDONTWRITEBYTECODE"] = ""
        environment |= {"STORE": f"file://{tmp_path}/store-{folder}", **variables}
        result = ran(python, *arguments, cwd=root, env=environment, input=input)
        assert result.returncode == status, result.stderr
        return result

    return run_in


@pytest.fixture
def command(project):
    """A function that runs `python -m k2_mac.run` with a program in the folder "project"."""

    def run_in_project(files, *arguments, **how):
        return project("project", files, "-m", "k2_mac.run", *arguments, **how)

    return run_in_project

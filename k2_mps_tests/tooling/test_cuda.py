"""`k2mps cuda --prepare` makes a folder that works without this project."""

import shutil
import subprocess
import tarfile

import pytest

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import git

ROOT = support.TOOLS.parent


@pytest.fixture
def moderngpu(sandbox, tmp_path):
    """The sandbox with the scripts, and a stand-in for moderngpu."""
    for path in ("k2_mps_tests/cuda", "k2_mps_tests/benchmarks", "k2_mps_tests/upstream"):
        shutil.copytree(ROOT / path, sandbox.root / path)
    support.write(tmp_path / "gpu", {"src/moderngpu/a.hxx": "// a\n"})
    return tmp_path / "gpu"


def names(path):
    with tarfile.open(path) as archive:
        return {one.name: one for one in archive if one.isfile()}


def test_the_folder_has_all(sandbox, moderngpu, tmp_path):
    folder = tmp_path / "cuda"
    sandbox.ok("cuda", "--prepare", folder, "--moderngpu", moderngpu)
    assert {path.name for path in folder.iterdir()} == {
        "series.tgz",
        "base.tgz",
        "moderngpu.tgz",
        "run.sh",
        "include.cmake",
        "compare.py",
        "bench.py",
        "seed.py",
    }
    subprocess.run(["bash", "-n", folder / "run.sh"], check=True)
    assert "k2/csrc/mps/context.mm" in names(folder / "series.tgz")
    assert "k2/csrc/mps/context.mm" not in names(folder / "base.tgz")
    assert set(names(folder / "moderngpu.tgz")) == {"src/moderngpu/a.hxx"}
    # Without a GPU the script names the step at which it stopped.
    empty = tmp_path / "empty"
    empty.mkdir()
    result = subprocess.run(
        ["/bin/bash", folder / "run.sh", "compare"],
        text=True,
        capture_output=True,
        env={"PATH": "/usr/bin:/bin", "W": str(empty)},
    )
    assert result.returncode == 1
    assert result.stdout.endswith("failed: compare\n")


def test_what_times_are_compared_with(sandbox, moderngpu, tmp_path):
    """The comparison is with the pin plus the patches that it needs to compile."""
    k2 = sandbox.checkout
    sandbox.ok("apply")
    git(k2, "checkout", "--quiet", "--detach", sandbox.pin)
    git(k2, "branch", "--quiet", "-f", "k2-mps", sandbox.pin)
    git(k2, "checkout", "--quiet", "k2-mps")
    support.commit(k2, "a\n\nPatch-Filename: torch-2.13.patch", {"a": "x\n"})
    support.commit(k2, "b\n\nPatch-Filename: cub-sum.patch", {"b": "x\n"})
    support.commit(k2, "c", {"c": "x\n"})
    sandbox.ok("export", "--prune")
    folder = tmp_path / "cuda"
    sandbox.ok("cuda", "--prepare", folder, "--moderngpu", moderngpu)
    assert {"a", "b", "c"} <= set(names(folder / "series.tgz"))
    base = set(names(folder / "base.tgz"))
    assert {"a", "b"} <= base and "c" not in base


def test_what_is_refused(sandbox, moderngpu, tmp_path):
    support.write(tmp_path / "full", {"a": ""})
    assert "is not empty" in sandbox.fails(
        1, "cuda", "--prepare", tmp_path / "full", "--moderngpu", moderngpu
    )
    assert "has no src/moderngpu" in sandbox.fails(
        30, "cuda", "--prepare", tmp_path / "new", "--moderngpu", tmp_path
    )
    assert not (tmp_path / "new").exists()

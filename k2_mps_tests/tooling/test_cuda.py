"""k2_mps_tests/cuda/prepare makes a folder that works without this project."""

import tarfile

import pytest

from k2_mps_tests.tooling import support

ROOT = support.TOOLS.parent


@pytest.fixture
def prepare(k2, tmp_path):
    """prepare(): makes a folder of the series, and of a stand-in for moderngpu."""
    support.commit(k2, "a\n\nPatch-Filename: torch-2.13.patch", {"a": "x\n"})
    support.commit(k2, "b\n\nPatch-Filename: cub-sum.patch", {"b": "x\n"})
    support.commit(k2, "c", {"c": "x\n"})

    def run():
        program = ROOT / "k2_mps_tests/cuda/prepare"
        return support.ran(program, tmp_path / "cuda", tmp_path / "gpu", k2)

    return run


def names(path):
    with tarfile.open(path) as archive:
        return {one.name for one in archive if one.isfile()}


def test_the_folder_has_all(prepare, tmp_path):
    refused = prepare()
    assert refused.returncode == 1 and "has no src/moderngpu" in refused.stderr
    support.write(tmp_path / "gpu", {"src/moderngpu/a.hxx": "// a\n"})
    made = prepare()
    assert made.returncode == 0, made.stderr
    folder = tmp_path / "cuda"
    assert f"{folder}/run.sh" in made.stdout
    scripts = {"run.sh", "include.cmake", "compare.py", "bench.py", "seed.py"}
    archives = {"series.tgz", "base.tgz", "moderngpu.tgz"}
    assert {path.name for path in folder.iterdir()} == scripts | archives
    assert {"a", "b", "c"} <= names(folder / "series.tgz")
    # The comparison is with the pin plus the patches that it needs to compile.
    base = names(folder / "base.tgz")
    assert {"a", "b"} <= base and "c" not in base
    assert names(folder / "moderngpu.tgz") == {"src/moderngpu/a.hxx"}
    assert prepare().returncode == 1  # The folder is there.
    # Without a GPU the script names the step at which it stopped.
    empty = tmp_path / "empty"
    empty.mkdir()
    variables = {"PATH": "/usr/bin:/bin", "W": str(empty)}
    result = support.ran("/bin/bash", folder / "run.sh", "compare", env=variables)
    assert result.returncode == 1
    assert result.stdout.endswith("failed: compare\n")

"""k2_mps_tests/cuda: `prepare` makes a folder that works without this project; `compare.py`."""

import tarfile
from pathlib import Path

import pytest

from k2_mps_tests.cuda import compare
from k2_mps_tests.tooling import support

ROOT = support.TOOLS.parent


@pytest.fixture
def prepare(k2, tmp_path):
    """Returns a function that runs `prepare` with a small series and a stand-in for moderngpu."""
    support.git(k2, "checkout", "--quiet", "-B", "k2-mps", "k2-mps~3")
    for name in ("device", "torch-2.13", "cub-sum", "ctc"):
        support.commit(k2, f"{name}\n\nPatch-Filename: {name}.patch", {name: "x\n"})

    def run():
        program = ROOT / "k2_mps_tests/cuda/prepare"
        return support.ran(program, tmp_path / "cuda", tmp_path / "gpu", k2)

    return run


def names(path):
    with tarfile.open(path) as archive:
        return {one.name for one in archive if one.isfile()}


def test_the_folder_has_the_scripts_and_archives(prepare, tmp_path):
    refused = prepare()
    assert refused.returncode == 1 and "has no src/moderngpu" in refused.stderr
    support.write(tmp_path / "gpu", {"src/moderngpu/a.hxx": "// a\n"})
    made = prepare()
    assert made.returncode == 0, made.stderr
    folder = tmp_path / "cuda"
    assert f"{folder}/run.sh" in made.stdout
    scripts = {"run.sh", "include.cmake", "compare.py", "operations.py", "seed.py"}
    archives = {"series.tgz", "base.tgz", "moderngpu.tgz"}
    # prepare copies GoogleTest where Debian's package is installed.
    sources = {"googletest"} if Path("/usr/src/googletest").is_dir() else set()
    assert {path.name for path in folder.iterdir()} == scripts | archives | sources
    assert {"device", "torch-2.13", "cub-sum", "ctc"} <= names(folder / "series.tgz")
    # The base is the pin with two patches.  Without these patches, CUDA cannot compile k2.
    base = names(folder / "base.tgz")
    assert {"torch-2.13", "cub-sum"} <= base and not {"device", "ctc"} & base
    assert names(folder / "moderngpu.tgz") == {"src/moderngpu/a.hxx"}
    assert prepare().returncode == 1  # The folder exists already.
    # Without a GPU, run.sh fails and names the step at which it stopped.
    empty = tmp_path / "empty"
    empty.mkdir()
    variables = {"PATH": "/usr/bin:/bin", "W": str(empty)}
    result = support.ran("/bin/bash", folder / "run.sh", "compare", env=variables)
    assert result.returncode == 1
    assert result.stdout.endswith("failed: compare\n")


def test_without_patches_for_compilation_the_base_is_the_pin(prepare, k2, tmp_path):
    support.git(k2, "rebase", "--quiet", "--onto", "k2-mps~3", "k2-mps~1", "k2-mps")
    support.write(tmp_path / "gpu", {"src/moderngpu/a.hxx": "// a\n"})
    assert prepare().returncode == 0
    assert not {"device", "torch-2.13", "cub-sum", "ctc"} & names(tmp_path / "cuda/base.tgz")
    assert not (tmp_path / "cuda.part").exists()


def test_an_operation_is_slower_if_its_change_exceeds_the_limit_and_the_error(capsys):
    milliseconds = {"same": [2] * 9, "little": [2.05] * 9, "slow": [2.2] * 9}
    milliseconds["noisy"] = [2.2 + 0.2 * i for i in range(-4, 5)]
    rounds = [
        {
            "base": dict.fromkeys(milliseconds, 2e-3),
            "series": {name: times[i] * 1e-3 for name, times in milliseconds.items()},
        }
        for i in range(9)
    ]
    with pytest.raises(SystemExit, match="^slower by more than 3%: slow$"):
        compare.report(rounds)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    # The quartiles of the noisy ratios are 0.85 and 1.35: 1.57 * 0.5 / 3 is 26.2%.
    assert rows == [
        ["same", "2.000", "2.000", "+0.0%", "0.0%"],
        ["little", "2.000", "2.050", "+2.5%", "0.0%"],
        ["slow", "2.000", "2.200", "+10.0%", "0.0%"],
        ["noisy", "2.000", "2.200", "+10.0%", "26.2%"],
    ]
    for each in rounds:
        del each["series"]["slow"], each["base"]["slow"]
    compare.report(rounds)  # does not end the program

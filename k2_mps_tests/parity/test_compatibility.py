"""k2 reports why a build does not load, and why k2 cannot use mps."""

import dataclasses
import sys
from pathlib import Path

import _k2
import k2
import pytest
import torch
from k2 import compatibility
from k2.compatibility import Facts, System
from packaging.version import Version

from k2_mps_tests.parity.helpers import python

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(_k2.__file__).parent

LINUX = System("Linux", "", "x86_64", False)
MAC = System("Darwin", "14.0", "arm64", False)
GOOD = Facts(MAC, "2.13.0", True, True, True, "")


# ---- why k2 cannot be loaded


@pytest.mark.parametrize("version", ["2.11.0", "2.13.1+cpu", "99.0"])
def test_import_beside_another_torch_says_what_to_do(version):
    right = str(Version(_k2.version.torch_version).base_version)
    result = python("-c", f'import torch; torch.__version__ = "{version}"\nimport k2')
    assert result.returncode != 0
    *_, error = result.stderr.partition("ImportError: ")
    assert f"built using PyTorch {right}" in error
    assert f"using PyTorch {version} to run it" in error
    assert f"pip install torch=={right} " in error


def test_another_build_of_the_same_torch_is_no_problem():
    right = str(Version(_k2.version.torch_version).base_version)
    result = python("-c", f'import torch; torch.__version__ = "{right}+other"\nimport k2')
    assert result.returncode == 0, result.stderr


def test_import_by_a_python_for_intel_says_what_to_do():
    """The test simulates an Intel Python: `platform` reports x86_64, and _k2 cannot be imported."""
    result = python(
        "-c",
        "import platform, sys\n"
        "import torch\n"
        'platform.system = lambda: "Darwin"\n'
        'platform.machine = lambda: "x86_64"\n'
        'sys.modules["_k2"] = None\n'
        "import k2",
    )
    assert result.returncode != 0
    *_, error = result.stderr.rpartition("ImportError: ")
    assert error.startswith("This Python is for Intel processors")
    assert "a Python for arm64" in error
    assert "The cause: " in error and "_k2" in error


@pytest.mark.parametrize("change", [lambda content: content[:40], lambda content: b""])
def test_a_library_that_the_dynamic_linker_refuses(tmp_path, change):
    [library] = BUILD.glob("_k2.*")
    (tmp_path / library.name).write_bytes(change(library.read_bytes()))
    (tmp_path / "k2").symlink_to(Path(k2.__file__).parent)
    result = python("-c", "import k2", PYTHONPATH=str(tmp_path))
    assert result.returncode != 0
    *_, error = result.stderr.rpartition("ImportError: ")
    version = str(Version(_k2.version.torch_version).base_version)
    assert error.startswith(f"k2 was built using PyTorch {version}")
    assert f"beside PyTorch {torch.__version__}." in error
    assert f"pip install --force-reinstall torch=={version}" in error
    assert "The cause: " in error and library.name in error


def test_another_failure_stays_as_it_is():
    result = python("-c", 'import sys; sys.modules["_k2"] = None; import k2')
    if sys.platform == "darwin":
        assert "Intel" not in result.stderr
    assert "ModuleNotFoundError: import of _k2 halted" in result.stderr


# ---- why k2 cannot use mps


def mac(**change):
    return dataclasses.replace(GOOD, system=dataclasses.replace(MAC, **change))


def good_but(**change):
    return dataclasses.replace(GOOD, **change)


@pytest.mark.parametrize("version", ["", "14.0", "14.5", "15", "26.1", "10.16"])
def test_a_good_machine_has_no_problem(version):
    assert compatibility.mps_problem(mac(version=version)) is None


# If there are several problems, the message is about the first one.
EVERYTHING_WRONG = dataclasses.replace(
    mac(machine="x86_64", version="13.0"),
    torch="2.2.0",
    k2_has_mps=False,
    torch_has_mps=False,
    device=False,
)
ROSETTA = mac(machine="x86_64", translated=True)
ARM64 = "a Python for arm64"
OTHER_TORCH = "pip install --force-reinstall torch==2.13.0"


@pytest.mark.parametrize(
    "facts, problem, remedy",
    [
        (ROSETTA, "for Intel processors, run by Rosetta", ARM64),
        (mac(machine="x86_64"), "for Intel processors;", ARM64),
        (EVERYTHING_WRONG, "for Intel processors", ARM64),
        (mac(version="13.6.9"), "This is macOS 13.6.9", "Update macOS"),
        (good_but(torch="2.11.0"), "This is torch 2.11.0", "Install a newer torch"),
        (good_but(k2_has_mps=False), "This k2 was built without mps", "-DK2_WITH_MPS=ON"),
        (good_but(torch_has_mps=False), "This torch was built without mps", OTHER_TORCH),
        (good_but(device=False), "torch finds no mps device", "torch.utils.collect_env"),
        (good_but(system=LINUX, torch_has_mps=False), "This is Linux", 'torch.device("cpu")'),
        (good_but(pointers="No pointers."), "No pointers.", "Install a torch that this version"),
    ],
)
def test_each_problem_has_its_remedy(facts, problem, remedy):
    first, *rest = compatibility.mps_problem(facts).split("\n")
    assert problem in first
    assert remedy in "\n".join(rest)


UNKNOWN_POINTERS = """
import torch
import k2
import _k2
problem = _k2.version.mps_pointer_problem()
assert problem.startswith("This k2 does not know what the data pointers of torch"), problem
assert problem.count(".") - torch.__version__.split("+")[0].count(".") == 1, problem
try:
    k2.linear_fsa([1, 2]).to("mps")
except RuntimeError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "darwin", reason="only the emulator can change data pointers")
def test_pointers_that_k2_does_not_know_are_refused():
    result = python("-c", UNKNOWN_POINTERS, MPS_EMULATOR_POINTERS="unfindable")
    assert result.returncode == 0, result.stderr
    assert "Check failed: problem.empty() This k2 does not know" in result.stdout


def test_mps_is_available_where_these_tests_run():
    assert k2.mps.unavailable_reason() is None
    assert k2.mps.is_available()


USE_THE_CPU = """
import torch
import k2
assert not k2.mps.is_available()
try:
    k2.mps.synchronize()
except RuntimeError as error:
    assert str(error) == k2.mps.unavailable_reason()
else:
    raise AssertionError("k2 waited for a device that is turned off")
print(k2.mps.unavailable_reason())
fsa = k2.linear_fsa([1, 2])
fsa.scores = torch.ones(3)
print(k2.create_fsa_vec([fsa]).get_tot_scores(False, False).item())
try:
    torch.ones(1, device="mps")
except RuntimeError:
    pass
else:
    raise AssertionError("import k2 loaded the mps device, which was turned off")
"""


@pytest.mark.skipif(sys.platform == "darwin", reason="no test can hide the device of a Mac")
def test_without_a_device_k2_is_for_the_cpu():
    result = python("-c", USE_THE_CPU, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert result.returncode == 0, result.stderr
    *reason, score = result.stdout.splitlines()
    assert score == "3.0"
    assert reason[0] == "This is Linux; mps is the GPU of Apple Silicon."
    assert "UserWarning: " + "\n".join(reason) in result.stderr
    assert "k2 works on the CPU." in result.stderr


LOADED_WITHOUT_MPS = """
import sys
import _k2
_k2.version.with_mps = False
import k2
print(*sorted(name for name in sys.modules if name.startswith(("k2.mps.", "k2.compat"))))
"""


def test_k2_mps_has_no_other_names():
    with pytest.raises(AttributeError, match="module 'k2.mps' has no attribute 'nothing'"):
        _ = k2.mps.nothing


def test_a_build_without_mps_loads_no_module_of_mps():
    result = python("-c", LOADED_WITHOUT_MPS)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []

"""The headers that the series touches compile for an AMD GPU, as in upstream's build for HIP.

The tests need upstream, clang 19 and an installed torch.  If one of these is missing, the tests are
skipped, with a reason that names what is missing.
"""

import importlib.util
import shutil
from pathlib import Path

import pytest
from k2mps.core import project
from k2mps.series import patch_folder

from k2_mps_tests.hip import headers
from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.sandbox import Sandbox
from k2_mps_tests.tooling.support import git

ROOT = support.TOOLS.parent
SERIES = patch_folder.load(project.Project(ROOT).patches).patches
# The patches that edit headers in k2/csrc.  The headers of the Python bindings are elsewhere, and
# have no code for the GPU.
TOUCHING = [
    patch.name
    for patch in SERIES
    if any(path.startswith("k2/csrc/") and path.endswith(".h") for path in patch.edited)
]
# Files without device code: the tests, code for mps, and files that include torch's tensors.
_OTHER = ("k2/csrc/mps/", "_test.cu", "test_utils", "torch_util", "pytorch_context")


def with_device_code(patch) -> list[str]:
    """Returns the sources and headers of k2/csrc that a patch edits or adds."""
    return [
        path
        for path in (*patch.edited, *patch.new_files)
        if path.startswith("k2/csrc/")
        and path.endswith((".cu", ".h"))
        and not path.endswith("_inl.h")
        and not any(part in path for part in _OTHER)
    ]


@pytest.fixture(scope="module")
def torch() -> Path:
    """The folder of the installed torch, whose headers k2's headers include."""
    found = importlib.util.find_spec("torch")
    if found is None:
        pytest.skip("torch is not installed; make build installs it")
    if shutil.which(headers.CLANG) is None:
        pytest.skip(f"there is no {headers.CLANG}; k2mps doctor tells how to install it")
    return Path(found.origin).parent


@pytest.fixture(scope="module")
def k2(tmp_path_factory, users_environment) -> Path:
    """The real k2 with the series applied."""
    root = tmp_path_factory.mktemp("hip") / "project"
    root.mkdir()
    shutil.copy(ROOT / "upstream.toml", root)
    shutil.copytree(ROOT / "patches", root / "patches")
    variables = {**users_environment, "PYTHONPATH": str(support.TOOLS), "K2": ""}
    done = support.ran(*Sandbox.command(None, "apply"), cwd=root, env=variables)
    if done.returncode == 20:
        pytest.skip(f"upstream cannot be reached: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return root / "build/k2"


def ported(k2: Path, commit: str, folder: Path) -> Path:
    """Copies k2/csrc of a commit into a folder, and ports the copied headers to HIP."""
    archive = folder / "csrc.tar"
    git(k2, "archive", f"--output={archive}", commit, "k2/csrc")
    shutil.unpack_archive(archive, folder)
    headers.port(folder)
    return folder


@pytest.mark.parametrize("name", TOUCHING)
def test_each_patch_of_a_header_compiles_for_hips_device(k2, torch, tmp_path, name):
    commits = git(k2, "log", "--format=%H %s", "k2-mps").splitlines()
    subject = next(patch.subject for patch in SERIES if patch.name == name)
    [commit] = [line[:40] for line in commits if line[41:] == subject]
    names = [*headers.DEVICE, *headers.HOST]
    assert headers.errors_in(ported(k2, commit, tmp_path), tuple(names), torch) == ""


@pytest.mark.parametrize("patch", [*filter(with_device_code, SERIES)], ids=lambda patch: patch.name)
def test_the_device_code_of_each_patch_calls_no_host_code(k2, torch, tmp_path, patch):
    commits = git(k2, "log", "--format=%H %s", "k2-mps").splitlines()
    [commit] = [line[:40] for line in commits if line[41:] == patch.subject]
    tree = ported(k2, commit, tmp_path)
    paths = with_device_code(patch)
    shared = [path for path in paths if not path.endswith(".cu")]
    # Each source is compiled by itself, because two sources may have different structs of the same
    # name.
    units = [[*shared, path] for path in paths if path.endswith(".cu")] or [shared]
    assert [call for unit in units for call in headers.host_calls_in(tree, unit, torch)] == []


def test_a_header_that_is_for_the_host_in_hip_is_found(k2, torch, tmp_path):
    """Plants a fault: a header of the series marks a function for the device with CUDA only."""
    tree = ported(k2, "k2-mps", tmp_path)
    header = tree / "k2/csrc/check_indexes.h"
    marked = "__host__ __device__ __forceinline__ void CheckIndex"
    only_cuda = "#ifdef __CUDACC__\n__host__ __device__\n#endif\ninline void CheckIndex"
    assert marked in header.read_text()
    header.write_text(header.read_text().replace(marked, only_cuda))
    calls = "\n".join(headers.host_calls_in(tree, ["k2/csrc/tensor_ops.cu"], torch))
    assert "check_indexes.h" in calls, calls
    assert "call to __host__ function from __device__ function" in calls


def test_the_header_for_torchs_tensors_compiles_for_hips_device(k2, torch, tmp_path):
    tree = ported(k2, "k2-mps", tmp_path)
    assert headers.errors_in(tree, (headers.TENSORS,), torch) == ""


def test_host_code_that_hips_device_compiler_sees_is_an_error(k2, torch, tmp_path):
    """Plants the fault that the tests above look for: log.h recognizes only CUDA's device code."""
    tree = ported(k2, "k2-mps", tmp_path)
    log = tree / "k2/csrc/log.h"
    log.write_text(log.read_text().replace(" && !defined(__HIP_DEVICE_COMPILE__)", ""))
    assert "error: reference to __host__ function" in headers.errors_in(tree, ("log",), torch)


def test_a_build_for_both_hip_and_mps_is_refused(tmp_path):
    options = {"K2_WITH_MPS": "ON", "K2_WITH_HIP": "ON"}
    with pytest.raises(AssertionError, match="Please choose one of K2_WITH_MPS"):
        support.cmake(tmp_path, f'include("{ROOT}/patches/files/cmake/mps.cmake")', options)

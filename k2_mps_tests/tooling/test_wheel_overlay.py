"""CMakeLists.overlay.cmake in a project that looks for torch in the way of k2."""

import subprocess
import sys
from pathlib import Path

import pytest
from k2mps.build import environment
from k2mps.core import project

from k2_mps_tests.tooling import support

ROOT = support.TOOLS.parent
CMAKE = """\
cmake_minimum_required(VERSION 3.18)
project(k2 CXX)
if(NOT DEFINED TORCH_LIBRARY)
  set(TORCH_LIBRARIES torch_was_found)
  set(TORCH_LIBRARY "/a/path" CACHE FILEPATH "what find_library leaves")
endif()
foreach(name _k2 k2_log fsa context)
  file(WRITE "${PROJECT_BINARY_DIR}/${name}.cc"
    "const char *${name}_file() { return __FILE__; }\\n")
  add_library(${name} SHARED "${PROJECT_BINARY_DIR}/${name}.cc")
endforeach()
target_link_libraries(_k2 PRIVATE "-Wl,-rpath,$ORIGIN/k2/lib")
message(STATUS "linked with: ${TORCH_LIBRARIES}")
"""


@pytest.fixture
def configure(tmp_path):
    """Runs cmake on the project; returns the output."""
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    found = environment.Environment(project.Project(ROOT))
    pybind11 = found.site_packages / "pybind11/share/cmake/pybind11"

    def run(*options: str) -> str:
        command = [
            str(found.program("cmake")),
            "-S",
            str(tmp_path),
            "-B",
            str(tmp_path / "build"),
            "-G",
            "Ninja",
            f"-DCMAKE_MAKE_PROGRAM={found.program('ninja')}",
            f"-DCMAKE_PROJECT_k2_INCLUDE={ROOT}/CMakeLists.overlay.cmake",
            f"-DPYTHON_EXECUTABLE={sys.executable}",
            f"-Dpybind11_DIR={pybind11}",
            *options,
        ]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    run.ninja = str(found.program("ninja"))
    run.build = tmp_path / "build"
    return run


def test_torch_is_linked_however_often_cmake_runs(configure):
    for _ in range(3):
        assert "linked with: torch_was_found" in configure()


def library(configure, name: str) -> Path:
    subprocess.run([configure.ninja, "-C", str(configure.build)], check=True, capture_output=True)
    [path] = configure.build.glob(f"lib{name}.*")
    return path


def test_what_goes_into_a_wheel_names_no_directory(configure, tmp_path):
    configure()
    assert str(tmp_path).encode() in library(configure, "fsa").read_bytes()
    configure("-DK2_FOR_WHEEL=ON")
    for name in ("_k2", "fsa"):
        content = library(configure, name).read_bytes()
        assert str(tmp_path).encode() not in content
        assert b"torch/lib" in content
    # k2's own option gives /k2/lib, because its $ORIGIN is lost.
    content = library(configure, "_k2").read_bytes()
    assert b"\0$ORIGIN/k2/lib:$ORIGIN/torch/lib\0" in content

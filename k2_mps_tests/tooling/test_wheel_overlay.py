"""Tests CMakeLists.overlay.cmake in a project that looks for torch as k2 does."""

import sys
from pathlib import Path

import pybind11

from k2_mps_tests.tooling import support

ROOT = support.TOOLS.parent
CMAKE = """\
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


def configure(folder: Path, **more: str) -> str:
    """Runs cmake on the project, with the overlay and more settings; returns the output."""
    settings = {
        "CMAKE_PROJECT_k2_INCLUDE": ROOT / "CMakeLists.overlay.cmake",
        "PYTHON_EXECUTABLE": sys.executable,
        "pybind11_DIR": pybind11.get_cmake_dir(),
    }
    return support.cmake(folder, CMAKE, settings | more)


def test_torch_is_linked_however_often_cmake_runs(tmp_path):
    for _ in range(3):
        assert "linked with: torch_was_found" in configure(tmp_path)


def library(folder: Path, name: str) -> bytes:
    support.ninja(folder)
    [path] = folder.glob(f"build/lib{name}.*")
    return path.read_bytes()


def test_a_library_for_a_wheel_names_no_directory_of_the_build(tmp_path):
    configure(tmp_path)
    assert str(tmp_path).encode() in library(tmp_path, "fsa")
    configure(tmp_path, K2_FOR_WHEEL="ON")
    for name in ("_k2", "fsa"):
        content = library(tmp_path, name)
        assert str(tmp_path).encode() not in content
        assert b"torch/lib" in content
    # Without the overlay, the rpath would be /k2/lib, because k2's own option loses its $ORIGIN.
    assert b"\0$ORIGIN/k2/lib:$ORIGIN/torch/lib\0" in library(tmp_path, "_k2")

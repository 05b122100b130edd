"""A small stand-in for k2, which the tool can build with real cmake, ninja and compilers.

The stand-in has the parts of k2 that the tool uses: a CMake project `k2` with a
Python extension `_k2` in lib/, a Python package that imports the extension, and a
configure step that writes torch_version.py into the checkout.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from k2mps.build import builder, environment
from k2mps.core import project

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.sandbox import LONG_FILE, Sandbox
from k2_mps_tests.tooling.support import git

ROOT = support.TOOLS.parent

CMAKE = """\
cmake_minimum_required(VERSION 3.18)
project(k2 CXX)
option(K2_WITH_MPS "mps" OFF)
option(K2_BREAK_CONFIGURE "for tests" OFF)
if(K2_BREAK_CONFIGURE)
  message(FATAL_ERROR "broken on purpose")
endif()
if(NOT OVERLAY_WAS_READ)
  message(FATAL_ERROR "the overlay was not read")
endif()
if(NOT EXISTS "${pybind11_DIR}/pybind11Config.cmake")
  message(FATAL_ERROR "pybind11_DIR is wrong: ${pybind11_DIR}")
endif()
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
configure_file(k2/python/k2/torch_version.py.in
  "${PROJECT_SOURCE_DIR}/k2/python/k2/torch_version.py" @ONLY)
set(Python_EXECUTABLE "${PYTHON_EXECUTABLE}")
find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)
Python_add_library(_k2 MODULE WITH_SOABI k2/csrc/module.cc k2/csrc/answer.cc)
"""

MODULE = """\
#define PY_SSIZE_T_CLEAN
#include <Python.h>
int Answer();
static PyObject *CallAnswer(PyObject *, PyObject *) {
  return PyLong_FromLong(Answer());
}
static PyMethodDef methods[] = {
    {"answer", CallAnswer, METH_NOARGS, nullptr}, {}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_k2", nullptr, -1,
                             methods};
PyMODINIT_FUNC PyInit__k2() { return PyModule_Create(&module); }
"""

PROGRAM = "import sys, k2\nprint('the answer is', k2.answer(), *sys.argv[1:])\n"

FILES = {
    "CMakeLists.txt": CMAKE,
    "k2/csrc/module.cc": MODULE,
    "k2/csrc/answer.cc": "int Answer() { return 41; }\n",
    # `k2mps upstream --check` scores an FSA, so the stand-in has one.
    "k2/python/k2/__init__.py": (
        "from types import SimpleNamespace as Made\n"
        "from _k2 import answer  # noqa\n"
        "from . import mps  # noqa\n"
        "Fsa = Made(from_str=str)\n"
        "def create_fsa_vec(fsas):\n"
        "  score = Made(item=lambda: 0.75)\n"
        "  return Made(to=lambda device: Made(get_tot_scores=lambda *how: score))\n"
    ),
    "k2/python/k2/mps/__init__.py": "def is_available():\n  return False\n",
    "k2/python/k2/torch_version.py.in": "k2_torch_version = 'x'\n",
    "k2/csrc/context.h": LONG_FILE,
}


# Reads the origin of a wheel, as k2_mac.provenance does.
ORIGIN = """\
import importlib.metadata, json
def build_info():
  return json.loads(importlib.metadata.distribution("k2").read_text("k2mps.json"))
"""


def make_environment(directory: Path) -> None:
    """Makes a virtual environment with links to all packages of .venv except k2.

    So a test can register a build of k2 in this environment without a change of .venv.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    (target,) = directory.glob("lib/python3.*/site-packages")
    ours = Path(sys.prefix)
    (source,) = ours.glob("lib/python3.*/site-packages")
    for entry in source.iterdir():
        if entry.suffix != ".pth" and not entry.name.startswith("k2-"):
            os.symlink(entry, target / entry.name)
    for name in ("clang-format", "cmake", "cpplint", "flake8", "ninja"):
        os.symlink(ours / "bin" / name, directory / "bin" / name)


def write_program(root: Path) -> None:
    """Writes .venv/bin/k2mps, which runs the tool under test."""
    program = root / ".venv/bin/k2mps"
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH={support.TOOLS} exec "${{0%/*}}/python" -m k2mps "$@"\n'
    )
    program.chmod(0o755)


def leave_emulator(root: Path) -> None:
    """Makes a stand-in for the emulator's source, and the stamp of its installation."""
    support.write(root, {"emulator/source": ""})
    here = project.Project(root)
    torch = environment.Environment(here).version_of("torch")
    settings = sorted(map("=".join, builder.emulator_settings(here).items()))
    key = environment.tree_hash(root / "emulator", *settings, f"torch {torch}")
    (root / ".venv/k2mps-emulator.stamp").write_text(key)


def make_buildable(empty) -> Sandbox:
    """Prepares an empty clone of k2-mps to build the stand-in for k2; returns the clone.

    The stand-in's function answer() returns 41 without the clone's series, and 42 with the series.
    """
    pin = support.commit(empty.upstream, "buildable", FILES)
    empty.pin = pin
    empty.write_config(pin)
    shutil.copy(ROOT / "pyproject.toml", empty.root)
    support.write(empty.root / "k2_mac", {"provenance.py": ORIGIN})
    (empty.root / "CMakeLists.overlay.cmake").write_text("set(OVERLAY_WAS_READ ON)\n")
    support.write(empty.root / "tools/k2mps", {"__init__.py": "", "build/__init__.py": ""})
    support.write(empty.root / "k2_mac", {"__init__.py": "", "check.py": PROGRAM})
    support.write(empty.root / "k2_mac", {"k2_mac_run.pth": "# the hook\n"})
    make_environment(empty.root / ".venv")
    empty.use_installed_torch()
    work = empty.clone("authoring")
    git(work, "checkout", "--quiet", "-b", "k2-mps")
    support.commit(
        work,
        "answer: 42",
        {
            "k2/csrc/answer.cc": "int Answer() { return 42; }\n",
            "k2/csrc/mps/new.h": "// Copyright 2026\n#pragma once\n",
        },
    )
    empty.ok("export", "--k2", str(work))
    return empty


CPU = ("--device", "cpu")


def build(sandbox, *args):
    return sandbox.ok("build", *CPU, "--no-demo", *args)


def fails(sandbox, code, *args, env=None):
    return sandbox.fails(code, "build", *CPU, "--no-demo", *args, env=env)


def trees(sandbox):
    return sorted(path.name for path in (sandbox.root / "build").glob("cpu-*"))


def answer(sandbox):
    """Returns what k2.answer() returns in a new process of .venv's Python."""
    python = sandbox.root / ".venv/bin/python"
    return support.output(python, "-c", "import k2; print(k2.answer())", cwd="/").strip()


def bare_path(tmp_path: Path) -> str:
    """Returns a PATH with the programs that the tool and cmake start, except a compiler."""
    folder = tmp_path / "bare"
    folder.mkdir()
    shell_programs = ("git", "sh", "env", "ln", "sed", "cat", "touch", "uname")
    binutils = ("ar", "ranlib", "ld", "as", "nm", "strip", "objdump")
    for name in (*shell_programs, *binutils):
        if found := shutil.which(name):
            os.symlink(found, folder / name)
    return str(folder)


SLOW = """
add_custom_command(OUTPUT slow.cc
  COMMAND sh "${PROJECT_SOURCE_DIR}/../slow.sh" "${PROJECT_SOURCE_DIR}/../slow.pid"
  COMMAND ${CMAKE_COMMAND} -E touch slow.cc VERBATIM)
target_sources(_k2 PRIVATE slow.cc)
"""


# The inner shell ends a second after SIGTERM.  The outer shell does not wait for the inner shell.
# A compiler's driver does not wait for the compiler itself either.
SLOW_STEP = """
(
  trap 'sleep 1; exit 1' TERM
  sh -c 'echo $PPID' > draft
  mv draft "$1"
  sleep 60 &
  wait
) &
wait
"""


def start_slow_build(sandbox):
    """Starts a build, and waits until ninja runs SLOW_STEP, which takes a minute.

    Returns:
      The tool's process, and the process id of the inner shell of SLOW_STEP.
    """
    build(sandbox)
    support.write(sandbox.root, {"build/slow.sh": SLOW_STEP})
    path = sandbox.checkout / "CMakeLists.txt"
    path.write_text(path.read_text() + SLOW)
    process = sandbox.start("build", *CPU, "--no-demo")
    support.wait_for(sandbox.root / "build/slow.pid")
    return process, int((sandbox.root / "build/slow.pid").read_text())

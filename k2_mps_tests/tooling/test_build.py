"""`k2mps build` with real cmake, ninja and compilers, on a small stand-in for k2.

The stand-in has the parts of k2 that the tool uses: a CMake project `k2` with a
Python extension `_k2` in lib/, a Python package that imports the extension, and a
configure step that writes torch_version.py into the checkout.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from k2mps.build import builder, doctor, environment
from k2mps.core import process as processes
from k2mps.core import project
from k2mps.stack import checkout

from k2_mps_tests.tooling import support
from k2_mps_tests.tooling.support import git
from k2_mps_tests.tooling.test_suites import Progress

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
    "k2/csrc/context.h": support.LONG_FILE,
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


def make_buildable(empty) -> support.Sandbox:
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


@pytest.fixture
def sandbox(empty):
    """A clone of k2-mps that `make_buildable` has prepared."""
    return make_buildable(empty)


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


def test_a_build_from_nothing_can_be_imported(sandbox):
    out = build(sandbox)
    assert "applied the series" in out
    assert re.search(r"built cpu-\S+: \d+ steps", out)
    assert answer(sandbox) == "42"
    (name,) = trees(sandbox)
    tree = git(sandbox.checkout, "rev-parse", "HEAD^{tree}")
    assert f"-cp{sys.version_info[0]}{sys.version_info[1]}-" in name
    assert f"-{tree[:12]}-" in name and "-torch" in name


def test_the_progress_names_the_file_of_ninjas_last_step(sandbox):
    sandbox.ok("apply")
    here = environment.Environment(project.Project(sandbox.root), progress := Progress())
    builder.build(here, checkout.Checkout(sandbox.checkout), builder.Request(doctor.Device.CPU))
    assert {name for _, total, name in progress.steps if total == 3} >= {"answer.cc.o"}


def test_the_origin_says_whether_kernels_were_to_be_compiled(sandbox, monkeypatch):
    monkeypatch.setattr(doctor, "assembler", lambda: doctor.Check("llvm-as-14", "", "here"))
    sandbox.ok("apply")
    here = environment.Environment(project.Project(sandbox.root))
    for asked in (False, True):
        request = builder.Request(doctor.Device.CPU, metallib=asked)
        built = builder.build(here, checkout.Checkout(sandbox.checkout), request)
        assert built.origin["metallib"] is asked


def test_a_second_build_runs_ninja_alone(sandbox):
    build(sandbox)
    before = support.snapshot(sandbox.checkout)
    result = sandbox.run("-v", "build", *CPU, "--no-demo")
    assert "nothing to do" in result.stdout
    assert support.snapshot(sandbox.checkout) == before
    programs = {Path(word).name for word in re.findall(r"^\+ (\S+)", result.stderr, re.MULTILINE)}
    assert "ninja" in programs
    assert not programs & {"cmake", "pip", "python"}


def test_a_build_for_mps_ends_with_a_comparison(sandbox):
    leave_emulator(sandbox.root)
    assert "the answer is 42 --size small --seconds 0\n" in sandbox.ok("build")


def test_edits_are_built_step_by_step_in_one_tree(sandbox):
    build(sandbox)
    source = "k2/csrc/answer.cc"
    support.write(sandbox.checkout, {source: "int Answer() { return 1; }\n"})
    out = build(sandbox)
    assert "building your edits" in out
    assert answer(sandbox) == "1"
    support.write(sandbox.checkout, {source: "int Answer() { return 2; }\n"})
    assert "2 steps" in build(sandbox)
    assert answer(sandbox) == "2"
    git(sandbox.checkout, "commit", "--quiet", "--all", "-m", "mine")
    build(sandbox)
    assert [name for name in trees(sandbox) if "-edited-" in name]
    assert len(trees(sandbox)) == 2
    # Without the user's commit, the tool uses the first build tree again.
    git(sandbox.checkout, "reset", "--quiet", "--hard", "HEAD~1")
    build(sandbox)
    assert answer(sandbox) == "42"


def test_an_edit_of_an_unpatched_checkout_in_another_file_is_kept_and_built(sandbox):
    sandbox.obtain()
    support.write(sandbox.checkout, {"k2/csrc/context.h": "mine\n"})
    build(sandbox)
    assert answer(sandbox) == "42"
    assert (sandbox.checkout / "k2/csrc/context.h").read_text() == "mine\n"
    assert "-edited-" in trees(sandbox)[0]


def test_another_series_is_built_in_another_tree(sandbox):
    build(sandbox)
    work = sandbox.root.parent / "authoring"
    support.write(work, {"k2/csrc/answer.cc": "int Answer() { return 7; }\n"})
    git(work, "commit", "--quiet", "--all", "--amend", "--no-edit")
    old = support.patches(sandbox)
    sandbox.ok("export", "--k2", str(work))
    build(sandbox)
    assert answer(sandbox) == "7"
    assert len(trees(sandbox)) == 2
    files = (sandbox.root / "build").glob("cpu-*/lib/k2mps.json")
    told = {json.loads(file.read_text())["series"] for file in files}
    git(sandbox.root, "init", "--quiet")
    git(sandbox.root, "add", "patches")
    assert len(told) == 2 and git(sandbox.root, "write-tree", "--prefix=patches/") in told
    for path, content in old.items():
        (sandbox.root / path).write_bytes(content)
    sandbox.ok("apply")
    build(sandbox)
    assert len(trees(sandbox)) == 2
    assert answer(sandbox) == "42"


def test_other_flags_are_built_in_another_tree(sandbox):
    build(sandbox)
    build(sandbox, "--", "-DCMAKE_CXX_FLAGS=-DSOMETHING=1")
    assert len(trees(sandbox)) == 2
    build(sandbox)
    assert len(trees(sandbox)) == 2


def test_another_checkout_is_built_in_another_tree(sandbox):
    build(sandbox)
    build(sandbox, "--k2", str(sandbox.clone("own größe")))
    assert len(trees(sandbox)) == 2
    assert answer(sandbox) == "42"


def test_a_file_that_cmake_writes_is_written_again(sandbox):
    build(sandbox)
    path = sandbox.checkout / "k2/python/k2/torch_version.py"
    path.write_text("k2_torch_version = 'of another build'\n")
    build(sandbox)
    assert path.read_text() == "k2_torch_version = 'x'\n"


def test_an_edit_of_the_overlay_is_built_once(sandbox):
    build(sandbox)
    overlay = sandbox.root / "CMakeLists.overlay.cmake"
    overlay.write_text(overlay.read_text() + "add_definitions(-DX=1)\n")
    assert "nothing to do" not in build(sandbox)
    assert "nothing to do" in build(sandbox)


def test_an_error_of_cmake_is_shown(sandbox):
    message = fails(sandbox, 34, "--", "-DK2_BREAK_CONFIGURE=ON")
    assert "broken on purpose" in message and "configure.log" in message


def test_an_error_of_ninja_itself_is_shown(sandbox):
    build(sandbox)
    [tree] = trees(sandbox)
    (sandbox.root / "build" / tree / "build.ninja").write_text("not ninja\n")
    message = fails(sandbox, 34)
    assert "ninja: error: build.ninja:1: " in message


def break_the_source(sandbox):
    """Builds, then puts a hundred warnings and an error into a source."""
    build(sandbox)
    warnings = "#warning of no interest\n" * 100
    text = warnings + "int Answer() { return wrong_name; }\n"
    support.write(sandbox.checkout, {"k2/csrc/answer.cc": text})


def test_an_error_of_the_compiler_is_shown_without_warnings(sandbox):
    break_the_source(sandbox)
    message = fails(sandbox, 34)
    assert "answer.cc:101:" in message and "wrong_name" in message
    assert "FAILED: " in message and "build.log" in message
    assert "of no interest" not in message
    assert "-std=" not in message  # Only the log has the compiler's command.
    assert len(message.splitlines()) < 60


def test_with_keep_going_each_error_of_the_compiler_is_shown(sandbox):
    break_the_source(sandbox)
    support.edit(sandbox.checkout / "k2/csrc/module.cc", "(&module)", "(other_name)")
    message = fails(sandbox, 34, "--jobs", "1", "--keep-going")
    assert message.count("FAILED: ") == 2
    assert "wrong_name" in message and "other_name" in message
    assert fails(sandbox, 34, "--jobs", "1").count("FAILED: ") == 1


def test_a_build_goes_on_after_an_error(sandbox):
    break_the_source(sandbox)
    fails(sandbox, 34)
    support.write(sandbox.checkout, {"k2/csrc/answer.cc": "int Answer() { return 5; }\n"})
    assert "2 steps" in build(sandbox)
    assert answer(sandbox) == "5"


def test_an_error_of_the_linker_is_shown(sandbox):
    sandbox.ok("apply")
    text = "int Missing();\nint Answer() { return Missing(); }\n"
    support.write(sandbox.checkout, {"k2/csrc/answer.cc": text})
    message = fails(sandbox, 34, "--", "-DCMAKE_MODULE_LINKER_FLAGS=-Wl,--no-undefined")
    assert "Missing()" in message


def test_a_full_disk_in_a_step_is_reported(sandbox):
    sandbox.ok("apply")
    full = 'add_custom_command(OUTPUT x.cc COMMAND sh -c "cat /dev/zero > /dev/full" VERBATIM)\n'
    path = sandbox.checkout / "CMakeLists.txt"
    path.write_text(f"{path.read_text()}{full}target_sources(_k2 PRIVATE x.cc)\n")
    assert "No space left on device" in fails(sandbox, 34)


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


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or ") Z " not in status.read_text()


def ends(pid: int) -> bool:
    """Waits up to 5 seconds for the end of a process; returns whether it has ended.

    A process that ends closes its pipes a moment before it is gone.
    """
    deadline = time.monotonic() + 5  # much less than the minute that SLOW_STEP sleeps
    while alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@contextlib.contextmanager
def heeded_hangup():
    """Lets SIGHUP end the tool even if the tests run under nohup, where SIGHUP is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


class Interrupted(NamedTuple):
    """How signals ended a build, and what answer() returns after the next build."""

    signal: int
    status: int
    output: str
    compiler_ended: bool
    left_a_lock: bool  # whether the checkout is locked
    answer: str  # what answer() returns after the next build


def is_locked(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


# `timeout` sends SIGTERM twice; a closed terminal sends SIGHUP.
@pytest.fixture(
    scope="module",
    params=[[signal.SIGINT], [signal.SIGTERM, signal.SIGTERM], [signal.SIGHUP]],
    ids=["ctrl-c", "timeout", "closed terminal"],
)
def interrupted(request, make_empty, tmp_path_factory):
    sandbox = make_buildable(make_empty(tmp_path_factory.mktemp("interrupted")))
    with heeded_hangup():
        process, pid = start_slow_build(sandbox)
    for number in request.param:
        process.send_signal(number)
        time.sleep(0.05)
    output, _ = process.communicate(timeout=30)
    ended = ends(pid)
    locked = is_locked(checkout.Checkout(sandbox.checkout).git_dir)
    git(sandbox.checkout, "checkout", "--quiet", "CMakeLists.txt")
    build(sandbox)
    return Interrupted(
        signal=request.param[0],
        status=process.returncode,
        output=output,
        compiler_ended=ended,
        left_a_lock=locked,
        answer=answer(sandbox),
    )


def test_a_build_that_a_signal_ends_has_the_status_of_the_signal(interrupted):
    assert interrupted.status == 128 + interrupted.signal, interrupted.output


def test_a_build_that_a_signal_ends_prints_interrupted(interrupted):
    assert "interrupted" in interrupted.output


def test_a_signal_ends_the_compilers(interrupted):
    assert interrupted.compiler_ended


def test_a_build_that_a_signal_ends_leaves_no_lock(interrupted):
    assert not interrupted.left_a_lock


def test_the_build_after_a_signal_goes_on(interrupted):
    assert interrupted.answer == "42"


def test_a_compiler_that_does_not_end_is_killed(tmp_path):
    """The test's compiler is in a separate process group, as each step of ninja is."""
    script = (
        "import os, signal, time; os.setpgid(0, 0); signal.signal(signal.SIGTERM, lambda *_: 0)"
    )
    script += f"; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))"
    script += "; [time.sleep(1) for _ in range(60)]"
    words = ["sh", "-c", '"$0" -c "$1" & wait', sys.executable, script]
    with pytest.raises(KeyboardInterrupt):
        with processes.started(words, grace=0.5, start_new_session=True):
            support.wait_for(tmp_path / "pid")
            time.sleep(0.2)
            begin = time.monotonic()
            raise KeyboardInterrupt
    assert ends(int((tmp_path / "pid").read_text()))
    assert time.monotonic() - begin < 30  # without SIGKILL, the compiler would end after 60 s


def test_a_compiler_that_outlives_its_parent_has_time_to_end(tmp_path):
    """The compiler removes its incomplete output, after its parent has ended."""
    compiler = 'trap "sleep 0.5; rm output; exit" TERM; touch output; while :; do sleep 0.1; done'
    words = ["sh", "-c", f"({compiler}) & wait"]
    with pytest.raises(KeyboardInterrupt):
        with processes.started(words, start_new_session=True, cwd=tmp_path):
            support.wait_for(tmp_path / "output")
            raise KeyboardInterrupt
    assert not (tmp_path / "output").exists()


def test_after_kill_9_the_next_build_waits_for_the_compilers(sandbox):
    process, pid = start_slow_build(sandbox)
    process.kill()
    process.communicate()
    assert alive(pid)
    message = fails(sandbox, 17)
    assert "another k2mps" in message
    os.killpg(os.getpgid(pid), signal.SIGKILL)
    deadline = time.monotonic() + 20
    git(sandbox.checkout, "checkout", "--quiet", "CMakeLists.txt")
    while time.monotonic() < deadline:
        result = sandbox.run("build", *CPU, "--no-demo")
        if result.returncode != 17:
            break
        time.sleep(0.2)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("command", [["apply"], ["export"], ["fold", "answer-42"]])
def test_a_command_that_changes_the_checkout_is_refused_while_a_build_reads_it(sandbox, command):
    process, _ = start_slow_build(sandbox)
    assert "a build reads it" in sandbox.fails(17, *command)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)


def test_a_build_is_refused_while_the_checkout_is_changed(sandbox):
    build(sandbox)
    with checkout.Checkout(sandbox.checkout).exclusive():
        assert "another k2mps changes" in fails(sandbox, 17)


def test_two_builds_may_read_one_checkout(sandbox):
    build(sandbox)
    with checkout.Checkout(sandbox.checkout).reading():
        assert "nothing to do" in build(sandbox)


def test_missing_compilers_name_the_one_command(sandbox, tmp_path):
    """The PATH has no compiler and no apt-get."""
    env = {"PATH": bare_path(tmp_path)}
    message = fails(sandbox, 30, env=env)
    assert "C++ compiler" in message
    assert message.rstrip().endswith("next: sudo apt-get install g++")
    assert not sandbox.checkout.exists()  # The tool refuses before it clones k2.
    result = sandbox.run("doctor", *CPU, env=env)
    assert result.returncode == 30 and "sudo apt-get install g++" in result.stderr
    assert re.search(r"^MISSING\tC\+\+ compiler\tnothing", result.stdout, re.MULTILINE)
    # With compilers, nothing is missing.
    checks = [line.split("\t") for line in sandbox.ok("doctor", *CPU).splitlines() if "\t" in line]
    named = {name for _, name, *_ in checks}
    assert {"git", "Python", "Python headers", "C++ compiler", "ccache"} <= named


@pytest.mark.skipif(os.geteuid() != 0, reason="as another user, the tool would call sudo")
@pytest.mark.parametrize("works", [True, False])
def test_root_installs_what_is_missing(sandbox, tmp_path, works):
    """A fake apt-get puts a compiler on the PATH, or fails if `works` is false."""
    path = bare_path(tmp_path)
    log = tmp_path / "apt.log"
    tool = Path(path) / "apt-get"
    compiler = shutil.which("c++") or shutil.which("g++")
    install = f"ln -s {compiler} '{path}/c++'" if works else "echo E: Unable to locate; exit 100"
    script = f"echo \"$@\" >> '{log}'\n[ $1 = update ] || {{ {install}; }}\n"
    tool.write_text(f"#!/bin/sh\n{script}")
    tool.chmod(0o755)
    result = sandbox.run("build", *CPU, "--no-demo", env={"PATH": path})
    assert "install -y --no-install-recommends g++" in log.read_text()
    if works:
        assert result.returncode == 0, result.stderr
        assert answer(sandbox) == "42"
    else:
        assert result.returncode == 30
        assert "Unable to locate" in result.stderr


def bare_path(tmp_path: Path) -> str:
    """Returns a PATH with the programs that the tool and cmake start, except a compiler."""
    folder = tmp_path / "bare"
    folder.mkdir()
    for name in "git sh env ln sed cat touch uname ar ranlib ld as nm strip objdump".split():
        if found := shutil.which(name):
            os.symlink(found, folder / name)
    return str(folder)


def test_a_pull_request_is_checked_commit_by_commit(sandbox):
    """`upstream --check` names the commit that fails; a second run checks only this commit."""
    work = sandbox.root.parent / "authoring"
    answers = "# Copyright 2026\nimport k2\n\n\ndef test_answer():\n    assert k2.answer() == 43\n"
    for message, files in {
        "answer: broken": {"k2/csrc/answer.cc": "int Answer() { return wrong; }\n"},
        "answer: mended": {
            "k2/csrc/answer.cc": "int Answer() { return 43; }\n",
            "k2/python/tests/answer_test.py": answers,
        },
    }.items():
        support.commit(work, message, files)
    sandbox.ok("export", "--k2", str(work))
    support.write_cover_letters(sandbox)
    shutil.rmtree(sandbox.root / "tools")
    (sandbox.root / "tools").symlink_to(support.TOOLS)
    (sandbox.root / "k2_mps_tests").mkdir()
    # `upstream --check --quick` runs the suite upstream-cpu on the last commit.
    for name in ("__init__.py", "ending.py", "commits", "upstream"):
        (sandbox.root / "k2_mps_tests" / name).symlink_to(ROOT / "k2_mps_tests" / name)
    sandbox.ok("apply")
    git(sandbox.checkout, "config", "user.name", "A Sender")
    git(sandbox.checkout, "config", "user.email", "sender@example.org")
    mine = sandbox.root / "build/upstream/notes"
    support.write(sandbox.root, {"build/upstream/notes": "mine\n"})
    assert f"{mine.parent} exists" in sandbox.run("upstream", "--check", "--quick").stdout
    mine.unlink()
    mine.parent.rmdir()
    for built in (["answer: 42", "answer: broken", "answer: mended"], ["answer: broken"]):
        result = sandbox.run("upstream", "--check", "--quick")
        assert result.returncode == 34, result.stdout + result.stderr
        assert "1 of 3 commits fail; answer: broken" in result.stderr
        assert re.findall(r"^[0-9a-f]{12} (answer: \w+)$", result.stdout, re.MULTILINE) == built
        for fact in (
            "answer: 42: K2_WITH_MPS=OFF: import k2 and an FSA on cpu; ON: -; style: well",
            "answer: broken: K2_WITH_MPS=OFF: does not build: ",
            "k2/csrc/answer.cc:1:",
            "answer: mended: K2_WITH_MPS=OFF: 1 passed in ",
        ):
            assert fact in result.stdout

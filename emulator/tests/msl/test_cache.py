"""Tests the cache of compiled libraries, which all processes share."""

import functools
import pathlib
import shutil
import subprocess
from typing import NamedTuple

import pytest
from metal import floats

# A program that compiles a text, runs its kernel, and prints the value that the kernel stores.
CHILD = """
import sys
sys.path.insert(0, {folder!r})
import numpy as np
from metal import Metal
library = Metal().compile({source!r})
a = np.zeros(1, np.float32)
library.run("k", [a], 1, 1)
print(a[0])
"""
FOLDER = str(pathlib.Path(__file__).parent)


def child_code(source):
    return CHILD.format(folder=FOLDER, source=source)


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def child(run_python, cache):
    """child(source, **environment) compiles and runs a text in a new process.

    The cache of the process is the folder `cache`.  Returns the finished process.
    """

    def run(source, **environment):
        environment = {"MPS_EMULATOR_CACHE_DIR": str(cache), **environment}
        return run_python(child_code(source), **environment)

    return run


def stored(process):
    assert process.returncode == 0, process.stderr
    return float(process.stdout)


def kernel(value):
    return f"kernel void k(device float *a) {{ a[0] = {value}; }}\n"


def files(folder):
    return sorted(p for p in folder.rglob("*") if p.is_file())


def test_a_second_process_does_not_compile_again(child, cache):
    assert stored(child(kernel(5))) == 5
    (library,) = files(cache)
    assert library.suffix == ".so"
    stamp = library.stat().st_mtime_ns
    # The next process cannot start the front end.
    assert stored(child(kernel(5), MPS_EMULATOR_PYTHON="/nonexistent/python")) == 5
    assert files(cache) == [library]
    assert library.stat().st_mtime_ns == stamp


def test_the_cache_has_a_library_for_each_text_and_math_mode(metal, tmp_path, monkeypatch):
    monkeypatch.setenv("MPS_EMULATOR_CACHE_DIR", str(tmp_path))
    results = []
    for value, options in ((7, {}), (8, {}), (7, {"fast_math": False})):
        a = floats(0)
        metal.compile(kernel(value), **options).run("k", [a], 1, 1)
        results.append(float(a[0]))
    assert results == [7, 8, 7]
    assert len(files(tmp_path)) == 3


def test_four_processes_may_compile_the_same_text_at_the_same_time(child, cache, in_threads):
    def work():
        assert stored(child(kernel(11))) == 11

    in_threads([work] * 4)
    assert len(files(cache)) == 1


def test_a_damaged_library_is_compiled_again(child, cache):
    child(kernel(12))
    (library,) = files(cache)
    library.write_bytes(library.read_bytes()[:100])
    assert stored(child(kernel(12))) == 12


def test_the_name_of_clang_may_have_no_version(child, tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, program in {"clang++": "clang++-19", "ld": "ld"}.items():
        (folder / name).symlink_to(shutil.which(program))
    assert stored(child(kernel(17), PATH=str(folder), MPS_EMULATOR_CLANG="")) == 17


# {cause of a failure: (value that the kernel stores, environment variables, parts of the message)}.
FAILURES = {
    "refusal": ("nothing", {}, ["undeclared identifier"]),
    "no interpreter": (
        13,
        {"MPS_EMULATOR_PYTHON": "/nonexistent/python"},
        ["MPS_EMULATOR_PYTHON names the Python interpreter", "not found"],
    ),
    "no clang": (
        14,
        {"PATH": "/nonexistent", "MPS_EMULATOR_CLANG": ""},
        ["apt-get install clang-19"],
    ),
    "no front end": (15, {"MPS_EMULATOR_MSL_DIR": "/nonexistent"}, ["set MPS_EMULATOR_MSL_DIR"]),
    "no folder for the cache": (
        16,
        {"MPS_EMULATOR_CACHE_DIR": "/dev/null"},
        ["MPS_EMULATOR_CACHE_DIR names the folder"],
    ),
}


class Failure(NamedTuple):
    process: subprocess.CompletedProcess
    parts: list[str]  # of the message
    cache: pathlib.Path


@pytest.fixture(scope="module", params=FAILURES)
def failure(run_python_in, request, tmp_path_factory):
    """A compilation that failed in a new process."""
    value, environment, parts = FAILURES[request.param]
    folder = tmp_path_factory.mktemp("failure")
    environment = {"MPS_EMULATOR_CACHE_DIR": str(folder / "cache"), **environment}
    process = run_python_in(folder, child_code(kernel(value)), **environment)
    assert process.returncode != 0
    return Failure(process, parts, folder / "cache")


def test_a_failure_is_explained(failure):
    for part in failure.parts:
        assert part in failure.process.stderr


def test_a_failure_is_not_kept(failure):
    assert files(failure.cache) == []


def test_compiling_on_several_threads(metal, in_threads):
    """Several threads can compile at the same time, because the compiler releases the GIL."""

    def work(number):
        a = floats(0)
        metal.compile(kernel(number)).run("k", [a], 1, 1)
        assert a[0] == number

    in_threads([functools.partial(work, 20 + n % 3) for n in range(9)])

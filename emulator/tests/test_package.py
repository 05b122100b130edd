"""Tests how Python programs and build systems use the installed package."""

import pathlib
import subprocess
import sys

import mps_emulator
import pytest
import torch


def test_works_from_the_source_directory():
    """In the source directory, Python imports the package's source, not the installed package."""
    source = pathlib.Path(__file__).resolve().parent.parent
    done = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.ones(2).to('mps'))"],
        cwd=source,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "tensor([1., 1.], device='mps:0')\n", done.stderr


def test_kernels_are_compiled_by_the_interpreter_that_runs(run_python, tmp_path):
    """The front end runs in the program's Python, not in the first Python of PATH.

    The first Python of PATH lacks the package clang.
    """
    done = run_python(
        "import torch\n"
        "library = torch.mps.compile_shader('kernel void k(device float *x) { x[0] = 4; }')\n"
        "x = torch.ones(1, device='mps')\n"
        "library.k(x)\n"
        "print(x.tolist())\n",
        MPS_EMULATOR_PYTHON="",
        MPS_EMULATOR_CACHE_DIR=str(tmp_path / "cache"),
        PATH="/usr/bin:/bin",
    )
    assert done.stdout == "[4.0]\n", done.stderr


def test_the_loaded_library_alone_does_not_make_the_device_available(run_python):
    """An extension that is linked with libmps_emulator.so loads it even if autoload is off."""
    done = run_python(
        "import ctypes, mps_emulator, torch\n"
        "ctypes.CDLL(mps_emulator.library_path())\n"
        "print(torch._C._mps_is_available(), torch.accelerator.is_available())\n"
        "try:\n"
        "    torch.zeros(1, device='mps')\n"
        "except RuntimeError as error:\n"
        "    print(error)\n"
        "mps_emulator.load()\n"
        "print(torch._C._mps_is_available(), torch.zeros(1, device='mps').item())\n",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    before, refusal, after = done.stdout.splitlines()
    assert before == "False False", done.stderr
    assert refusal.startswith("TORCH_DEVICE_BACKEND_AUTOLOAD=0 turns the emulated mps device off")
    assert after == "True 0.0"


def test_a_load_that_is_too_late_is_refused(run_python):
    done = run_python(
        "import torch; torch.backends.mps.is_available()\n"
        "import mps_emulator; mps_emulator.load()\n",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert done.returncode == 1
    assert "mps-emulator was loaded too late" in done.stderr


def test_load_refuses_macos(run_python):
    done = run_python(
        "import sys; sys.platform = 'darwin'\nimport mps_emulator; mps_emulator.load()\n",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("RuntimeError: mps-emulator is for Linux")
    assert "pip uninstall mps-emulator" in last


def test_build_refuses_macos(tmp_path):
    source = pathlib.Path(__file__).resolve().parent.parent
    done = subprocess.run(
        ["cmake", "-S", str(source), "-B", str(tmp_path), "-DCMAKE_HOST_APPLE=1"],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "mps-emulator is for Linux" in done.stderr


def test_a_program_may_end_right_after_a_backward(run_python, in_threads):
    """At the end of the program, autograd's thread may still hold objects of the backward pass."""

    def run():
        done = run_python(
            "import torch\n"
            "x = torch.ones(3, device='mps', requires_grad=True)\n"
            "(x * 2).sum().backward()\n"
        )
        assert done.returncode == 0, done.stderr

    in_threads([run] * 5)


def test_exported_symbols():
    """The library exports only the symbols that programs and the Python package need."""
    lines = subprocess.run(
        ["nm", "-DC", "--defined-only", mps_emulator.library_path()],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    names = [line.split(" ", 2)[2] for line in lines]
    interface = (
        "MTL",
        "_Block_object_",
        "_OBJC_CLASS_",
        "__gnu_objc_personality_v0",
        "__objc_class_name_",
        "at::mps::",
        "dispatch_",
        "mps_emulator_",
        "objc_autoreleasePool",
        "objc_msg_lookup",
        "os_log_create",
        "os_signpost_",
    )
    foreign = [name for name in names if not name.startswith(interface)]
    assert not foreign


PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(hello LANGUAGES CXX OBJCXX)
find_package(mps_emulator CONFIG REQUIRED)
add_executable(hello hello.mm)
target_link_libraries(hello PRIVATE mps_emulator::metal)
"""

PROGRAM = """
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <cstdio>

int main() {
  @autoreleasepool {
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    printf("%s\\n", [[device name] UTF8String]);
    id<MTLBuffer> buffer =
        [device newBufferWithLength:16 options:MTLResourceStorageModeShared];
    printf("%lu\\n", static_cast<unsigned long>([buffer length]));
    if (@available(macOS 15.0, *)) printf("available\\n");
  }
}
"""


def test_a_program_without_python(tmp_path, cmake_build):
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "hello.mm").write_text(PROGRAM)
    cmake_build(tmp_path, tmp_path / "build", f"-Dmps_emulator_DIR={mps_emulator.cmake_dir()}")
    done = subprocess.run(
        [tmp_path / "build" / "hello"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "Emulated Metal device\n16\navailable\n"


def test_counters_are_filled_when_the_block_raises():
    with pytest.raises(ValueError):
        with mps_emulator.counters() as counted:
            torch.zeros(10, device="mps")
            raise ValueError
    assert counted.operators == 1

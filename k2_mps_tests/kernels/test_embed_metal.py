"""cmake/mps.cmake embeds kernels in a library, as text and compiled.

In place of Metal's compiler, the tests use a program that notes its arguments in a file.
The CMake code is k2's own.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from k2mps.series import series_file

from k2_mps_tests.kernels import sources
from k2_mps_tests.tooling import support

ROOT = support.TOOLS.parent
PATCHES = ROOT / "patches"
SERIES = PATCHES / "files"
FILES = SERIES / "cmake"
KERNELS = "k2/csrc/mps/kernels"

KERNEL = """\
#include <metal_stdlib>
#include "k2/csrc/mps/kernels/add.h"
kernel void add(device float *x [[buffer(0)]]) { *x += ONE; }
"""
FULL = KERNEL.replace('#include "k2/csrc/mps/kernels/add.h"', "#define ONE 1\n")
# Bytes that a wrong C++ literal or a wrong CMake list would change.
COMPILED = bytes(range(256)) + b"\0MTLB;[]\n\0"

CMAKE = """\
set(K2_WITH_MPS ON)
set(K2_TORCH_VERSION 2.13.0)
# Another test covers Objective-C++.
macro(enable_language)
endmacro()
add_library(k2_metal INTERFACE)
list(APPEND CMAKE_MODULE_PATH "${PROJECT_SOURCE_DIR}/cmake")
include(mps)
file(GLOB k2_mps_srcs RELATIVE "${PROJECT_SOURCE_DIR}"
  "${PROJECT_SOURCE_DIR}/k2/csrc/mps/kernels/*.metal")
add_executable(show show.cc)
target_include_directories(show PRIVATE "${PROJECT_SOURCE_DIR}")
k2_use_mps(show)
"""
HEADER = """\
#include <cstddef>
namespace k2 { namespace mps {
struct KernelSource {
  KernelSource(const char *name, const char *text,
               const unsigned char *metallib = nullptr, size_t size = 0);
};
}}
"""
SHOW = """\
#include <cstdio>
#include "k2/csrc/mps/kernel_source.h"
k2::mps::KernelSource::KernelSource(const char *name, const char *text,
                                    const unsigned char *metallib,
                                    size_t size) {
  std::printf("%s\\n%zu\\n", name, size);
  std::fwrite(metallib, 1, size, stdout);
  std::fputs(text, stdout);
}
int main() { return 0; }
"""
COMPILER = """\
#!{python}
import pathlib, sys
arguments = sys.argv[1:]
output = pathlib.Path(arguments[arguments.index("-o") + 1])
output.write_bytes({content!r})
pathlib.Path({log!r}).write_text("\\n".join(arguments))
sys.exit({status})
"""


class Tree:
    """A project that embeds its kernels as k2 does."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.log = folder / "arguments"
        self.compiler = folder / "metal"
        support.write(
            folder,
            {
                "show.cc": SHOW,
                "k2/csrc/mps/kernel_source.h": HEADER,
                "k2/csrc/mps/kernels/add.metal": KERNEL,
                "k2/csrc/mps/kernels/add.h": "#define ONE 1\n",
                **{f"cmake/{path.name}": path.read_text() for path in FILES.iterdir()},
            },
        )
        # patches/files has mps.cmake as the first patch adds it.  Later patches edit it.
        names, _ = series_file.parse((PATCHES / "series").read_bytes())
        for patch in (PATCHES / name for name in names):
            if "diff --git a/cmake/mps.cmake" in patch.read_text():
                command = ["git", "apply", "--include=cmake/mps.cmake", patch]
                subprocess.run(command, cwd=folder, check=True)

    def provide_compiler(self, status: int = 0) -> Path:
        facts = {"python": sys.executable, "content": COMPILED, "log": str(self.log)}
        self.compiler.write_text(COMPILER.format(**facts, status=status))
        self.compiler.chmod(0o755)
        return self.compiler

    def configure(self, compiler: Path | str | None = "") -> str:
        """Runs CMake; returns its output.

        Args:
          compiler: the path of Metal's compiler; "" for none; None for the compiler that CMake
            finds.
        """
        settings = {} if compiler is None else {"K2_METAL_COMPILER": compiler}
        return support.cmake(self.folder, CMAKE, settings)

    def shown(self) -> bytes:
        support.ninja(self.folder)
        return subprocess.run([self.folder / "build/show"], capture_output=True, check=True).stdout


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def test_without_a_compiler_only_the_text_is_embedded(tree):
    # On a Mac there may be a compiler; elsewhere CMake finds none.
    chosen = "" if sys.platform == "darwin" else None
    assert "Compiling Metal: at run time" in tree.configure(chosen)
    assert tree.shown() == b"add\n0\n" + FULL.encode()


def test_the_output_of_a_compiler_is_embedded_without_a_change(tree):
    out = tree.configure(tree.provide_compiler())
    assert f"Compiling Metal with: {tree.compiler}" in out
    size = str(len(COMPILED)).encode()
    assert tree.shown() == b"add\n" + size + b"\n" + COMPILED + FULL.encode()
    arguments = tree.log.read_text().split("\n")
    assert arguments[-1] == str(tree.folder / "k2/csrc/mps/kernels/add.metal")
    # For kernels that k2 compiles at run time, metal.mm also turns off fast math.
    assert "-fno-fast-math" in arguments
    assert arguments[arguments.index("-I") + 1] == str(tree.folder)


@pytest.mark.skipif(shutil.which("llvm-as-14") is None, reason="llvm-as-14 is not installed")
def test_the_emulators_front_end_is_a_compiler(tree):
    from mps_emulator.msl.air import metallib

    tree.configure(f"{sys.executable};{sources.FRONT_END};metallib")
    name, size, rest = tree.shown().split(b"\n", 2)
    assert metallib.Metallib(rest).kernels == [name.decode()]
    assert rest[int(size) :] == FULL.encode()


def test_after_a_change_of_a_header_the_compiler_runs_again(tree):
    tree.configure(tree.provide_compiler())
    tree.shown()
    tree.log.unlink()
    header = tree.folder / "k2/csrc/mps/kernels/add.h"
    header.write_text("#define ONE 1.0f\n")
    assert b"#define ONE 1.0f\n" in tree.shown()
    assert tree.log.exists()


def test_a_kernel_that_the_compiler_refuses_ends_the_build(tree):
    tree.configure(tree.provide_compiler(status=1))
    with pytest.raises(AssertionError, match="Compiling k2/csrc/mps/kernels/add.metal"):
        support.ninja(tree.folder)


def test_a_header_that_several_files_include_is_embedded_once(tree):
    files = {
        f"{KERNELS}/add.metal": f'#include "{KERNELS}/x.h"\n#include "{KERNELS}/y.h"\nü\n',
        f"{KERNELS}/x.h": f'#include "{KERNELS}/z.h"\nint x;\n',
        f"{KERNELS}/y.h": f'#include "{KERNELS}/z.h"\n#include "{KERNELS}/x.h"\nint y;\n',
        f"{KERNELS}/z.h": "int z;\n",
    }
    support.write(tree.folder, files)
    tree.configure()
    lines = tree.shown().decode().splitlines()
    assert [line for line in lines if line] == ["add", "0", "int z;", "int x;", "int y;", "ü"]


def test_the_error_for_a_missing_header_names_the_header(tree):
    files = {f"{KERNELS}/add.metal": '#include "k2/gone.h"\n'}
    support.write(tree.folder, files)
    tree.configure()
    # CMake breaks long lines.
    with pytest.raises(AssertionError, match=r"add.metal\s+includes\s+k2/gone.h,\s+which\s+is"):
        support.ninja(tree.folder)

"""If Metal cannot load a kernel's precompiled library, k2 compiles the kernel's text."""

import sys
from pathlib import Path

import _k2
import pytest

from k2_mps_tests.kernels import sources
from k2_mps_tests.running import ran

# Before the kernels of mutual_information are used, the script registers these kernels again, with
# a metallib.  cmake/embed_metal.cmake generates code that registers kernels in this way.
SCRIPT = """
import ctypes
import sys

import k2
import torch

library, metallib = sys.argv[1], bytes.fromhex(sys.argv[2])
register = getattr(ctypes.CDLL(library),
                   '_ZN2k23mps12KernelSourceC1EPKcS3_PKhm')
register.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p,
                     ctypes.c_char_p, ctypes.c_size_t]
name, text = b'mutual_information', sys.stdin.buffer.read()
register(ctypes.create_string_buffer(8), name, text, metallib, len(metallib))

torch.manual_seed(1)
px, py = torch.randn(2, 3, 6), torch.randn(2, 4, 5)
cpu = k2.mutual_information_recursion(px, py)
mps = k2.mutual_information_recursion(px.to('mps'), py.to('mps'))
# On both devices, a path adds at most 8 numbers in float32.
torch.testing.assert_close(mps.cpu(), cpu, rtol=1e-5, atol=1e-5)
print('equal')
"""


def run(text, metallib):
    [library] = Path(_k2.__file__).parent.glob("libk2context.*")
    return ran(sys.executable, "-c", SCRIPT, library, metallib.hex(), input=text)


@pytest.mark.parametrize("metallib", [b"MTLB", b"not one at all"])
def test_the_text_is_compiled_instead(metallib):
    result = run(sources.text("mutual_information"), metallib)
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("\nequal\n")
    warning = "Metal cannot load the compiled mutual_information.metal and compiles its text: "
    assert result.stdout.count(warning) == 1


def test_without_a_compiled_library_there_is_no_warning():
    result = run(sources.text("mutual_information"), b"")
    assert (result.returncode, result.stdout + result.stderr) == (0, "equal\n")


def test_a_text_without_the_kernel_is_an_error():
    result = run("kernel void other() {}", b"MTLB")
    assert result.returncode != 0
    assert "There is no kernel" in result.stderr

"""k2 uses a kernel's precompiled library, or compiles the kernel's text if Metal refuses it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import _k2
import pytest

from k2_mps_tests.kernels import sources

# Before the kernels of mutual_information are used, the script registers these kernels again, with
# a metallib.  cmake/embed_metal.cmake generates code that registers kernels in this way.
SCRIPT = """
import ctypes
import sys

import _k2
import k2
import torch

library, text = sys.argv[1], sys.argv[2].encode()
metallib = sys.stdin.buffer.read()
register = getattr(ctypes.CDLL(library),
                   '_ZN2k23mps12KernelSourceC1EPKcS3_PKhm')
register.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p,
                     ctypes.c_char_p, ctypes.c_size_t]
name = b'mutual_information'
register(ctypes.create_string_buffer(8), name, text, metallib, len(metallib))

torch.manual_seed(1)
px, py = torch.randn(2, 3, 6), torch.randn(2, 4, 5)
cpu = k2.mutual_information_recursion(px, py)
with k2.mps.counters() as counted:
    mps = k2.mutual_information_recursion(px.to('mps'), py.to('mps'))
assert counted.dispatches == 1
# On both devices, a path adds at most 8 numbers in float32.
torch.testing.assert_close(mps.cpu(), cpu, rtol=1e-5, atol=1e-5)
[passed] = _k2.mps_passed_arguments()
assert counted.precompiled == passed.is_precompiled
print('precompiled' if passed.is_precompiled else 'text')
"""

# Makes the device refuse the first pipeline, as a Mac does if its compiler cannot read a kernel.
REFUSED_PIPELINE = """
import ctypes

import torch

torch.ones(1, device='mps')
objc = ctypes.CDLL('libobjc.so.4')
objc.objc_getClass.restype = objc.sel_registerName.restype = ctypes.c_void_p
objc.class_getMethodImplementation.restype = ctypes.c_void_p
device = ctypes.c_void_p(objc.objc_getClass(b'MPSEmulatorDevice'))
selector = ctypes.c_void_p(objc.sel_registerName(
    b'newComputePipelineStateWithDescriptor:options:reflection:error:'))
Method = ctypes.CFUNCTYPE(*[ctypes.c_void_p] * 4, ctypes.c_ulong, *[ctypes.c_void_p] * 2)
original = Method(objc.class_getMethodImplementation(device, selector))
calls = []


@Method
def refuse_first(*arguments):
    calls.append(arguments)
    return original(*arguments) if calls[1:] else None


objc.class_replaceMethod(device, selector, refuse_first, b'@@:@Q^@^@')
"""


# A first call, which fails.
FIRST_CALL = """
try:
    k2.mutual_information_recursion(px.to('mps'), py.to('mps'))
except RuntimeError as error:
    print(error)
"""


def run(text, metallib, before="", script=SCRIPT, **environment):
    """Returns (exit status, standard output, standard error) of the script."""
    [library] = Path(_k2.__file__).parent.glob("libk2context.*")
    script = before + script
    command = [sys.executable, "-c", script, library, text]
    result = subprocess.run(
        command, input=metallib, capture_output=True, env={**os.environ, **environment}
    )
    return result.returncode, result.stdout.decode(), result.stderr.decode()


@pytest.fixture(scope="module")
def metallibs(tmp_path_factory):
    """Returns {name of a file of kernels: its .metallib}."""
    if shutil.which("llvm-as-14") is None:
        pytest.skip("llvm-as-14 is not installed")
    folder = tmp_path_factory.mktemp("metallibs")
    sources.write_metallibs(folder, ["mutual_information", "graph_index"])
    return {path.stem: path.read_bytes() for path in folder.iterdir()}


def test_the_precompiled_library_is_used(metallibs):
    assert run("no text", metallibs["mutual_information"]) == (0, "precompiled\n", "")


def test_a_variable_turns_precompiled_libraries_off(metallibs):
    content, text = metallibs["mutual_information"], sources.text("mutual_information")
    assert run(text, content, K2_MPS_METALLIB="0") == (0, "text\n", "")
    status, _, said = run(text, content, K2_MPS_METALLIB="no")
    assert status != 0 and "K2_MPS_METALLIB may be `0` or `1`. Given: no" in said


@pytest.mark.parametrize("metallib", [b"MTLB", b"not one at all"])
def test_if_metal_refuses_the_library_the_text_is_compiled(metallib):
    status, said, errors = run(sources.text("mutual_information"), metallib)
    assert status == 0, errors
    assert said.endswith("\ntext\n")
    warning = "Metal cannot load the compiled mutual_information.metal and compiles its text: "
    assert said.count(warning) == 1


def test_if_the_library_lacks_the_kernel_the_text_is_compiled(metallibs):
    status, said, errors = run(sources.text("mutual_information"), metallibs["graph_index"])
    assert status == 0, errors
    assert said.endswith("\ntext\n")
    assert "There is no kernel mutual_information_forward in" in said


@pytest.mark.skipif(sys.platform != "linux", reason="only the emulated device refuses on demand")
def test_if_metal_refuses_a_pipeline_the_text_is_compiled(metallibs):
    content, text = metallibs["mutual_information"], sources.text("mutual_information")
    status, said, errors = run(text, content, REFUSED_PIPELINE)
    assert status == 0, errors
    assert said.endswith("\ntext\n")
    assert "Metal cannot make a pipeline of the kernel mutual_information_forward" in said


@pytest.mark.skipif(sys.platform != "linux", reason="only the emulated device refuses on demand")
def test_if_metal_refuses_the_text_too_the_library_stays(metallibs):
    twice = SCRIPT.replace("cpu = ", FIRST_CALL + "cpu = ", 1)
    status, said, errors = run("no text", metallibs["mutual_information"], REFUSED_PIPELINE, twice)
    assert status == 0, errors
    assert "Metal cannot compile mutual_information.metal" in said
    assert said.endswith("\nprecompiled\n")


def test_without_a_compiled_library_there_is_no_warning():
    assert run(sources.text("mutual_information"), b"") == (0, "text\n", "")


def test_a_text_without_the_kernel_is_an_error():
    status, _, said = run("kernel void other() {}", b"MTLB")
    assert status != 0 and "There is no kernel" in said

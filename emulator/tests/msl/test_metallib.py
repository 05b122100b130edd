"""Compiles texts to .metallibs, and runs their kernels: the results must be those of the text.

The tests need llvm-as-14, and are skipped without it.
"""

import shutil
import subprocess

import numpy as np
import pytest
from metal import HEADER
from mps_emulator.msl.air.metallib import Metallib
from mps_emulator.msl.air.module import Module, disassemble
from mps_emulator.msl.errors import ToolError
from mps_emulator.msl.pipeline import Program
from mps_emulator.msl.toolchain import find_clang

pytestmark = pytest.mark.skipif(
    shutil.which("llvm-as-14") is None, reason="llvm-as-14 is not installed: apt install llvm-14"
)

# One kernel for each way in which memory and threads are used.
KERNELS = {
    "struct_of_constants": """
        struct Scale { int first; float factors[3]; };
        constant float kOffsets[2] = {0.5f, -0.5f};
        float scaled(constant Scale &s, int i) { return s.factors[i % 3] + kOffsets[i & 1]; }
        kernel void k(device float *x [[buffer(0)]], constant Scale &s [[buffer(1)]],
                      uint i [[thread_position_in_grid]]) {
          x[i] *= scaled(s, (int)i + s.first);
        }""",
    "shared_memory": """
        kernel void k(device float *x [[buffer(0)]], constant int *last [[buffer(1)]],
                      uint i [[thread_index_in_threadgroup]]) {
          threadgroup float shared[64];
          shared[i] = x[i];
          threadgroup_barrier(mem_flags::mem_threadgroup);
          x[i] = shared[*last - (int)i] + simd_sum(x[i]) + simd_shuffle_up(x[i], 1);
        }""",
    "atomics": """
        kernel void k(device float *x [[buffer(0)]], constant int *unused [[buffer(1)]],
                      uint i [[thread_position_in_grid]]) {
          threadgroup atomic_int most, bits;
          if (i == 0) {
            atomic_store_explicit(&most, 0, memory_order_relaxed);
            atomic_store_explicit(&bits, 0, memory_order_relaxed);
          }
          threadgroup_barrier(mem_flags::mem_threadgroup);
          atomic_fetch_max_explicit(&most, (int)x[i], memory_order_relaxed);
          atomic_fetch_or_explicit(&bits, 1 << (i % 5), memory_order_relaxed);
          threadgroup_barrier(mem_flags::mem_threadgroup);
          x[i] = atomic_load_explicit(&most, memory_order_relaxed) +
                 atomic_load_explicit(&bits, memory_order_relaxed);
        }""",
    "arrays_of_a_thread": """
        kernel void k(device float *x [[buffer(0)]], constant int *turns [[buffer(1)]],
                      uint i [[thread_position_in_grid]]) {
          float own[7];
          for (int j = 0; j < 7; ++j) own[j] = x[i] * j;
          int e;
          float m = frexp(x[i], e);
          x[i] = own[(*turns + (int)i) % 7] + m + (float)e + (float)(ushort)(i * 3000);
        }""",
    "vectors": """
        kernel void k(device float4 *x [[buffer(0)]], constant int *unused [[buffer(1)]],
                      uint i [[thread_position_in_grid]]) {
          if (i >= 16) return;
          half4 h = (half4)x[i];
          int4 n = (int4)fma(x[i], float4(2), float4(0.25f));
          x[i] = (float4)h + (float4)n + select(x[i], -x[i], x[i] > float4(3)) +
                 fast::exp(-x[i]) + (float)popcount(i) + (float)clz(i);
        }""",
}


@pytest.fixture
def compiled(tmp_path):
    """compiled(text) returns the content of the .metallib of a text."""

    def run(text):
        source, output = tmp_path / "kernels.metal", tmp_path / "kernels.metallib"
        source.write_text(HEADER + text)
        Program(str(source), "kernels.metal", fast_math=False).build_metallib(str(output))
        return output.read_bytes()

    return run


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_computes_the_same_as_its_text(metal, compiled, name):
    arguments = np.array([63, *np.float32([1.5, -2, 4]).view(np.int32)], np.int32)
    results = []
    content = compiled(KERNELS[name])
    for library in metal.load(content, ["k"]), metal.compile(KERNELS[name], fast_math=False):
        x = np.arange(64, dtype=np.float32)
        library.run("k", [x, arguments], 64, 64)
        results.append(x.tolist())
    assert results[0] == results[1]
    assert results[0] != np.arange(64).tolist()


def test_the_container_and_the_description_of_arguments(compiled):
    library = Metallib(
        compiled(
            """
            template <class T> [[max_total_threads_per_threadgroup(96)]]
            kernel void k(device T *x [[buffer(2)]], device const uchar *u [[buffer(0)]],
                          constant float2 &c [[buffer(5)]], threadgroup int *t [[threadgroup(1)]],
                          uint2 at [[thread_position_in_grid]],
                          ushort lane [[thread_index_in_simdgroup]]) {
              t[lane] = u[at.x];
              x[at.y] = c.x + t[lane];
            }
            template [[host_name("k_float")]] kernel void k<float>(
                device float *, device const uchar *, constant float2 &, threadgroup int *, uint2,
                ushort);
            kernel void other() {}"""
        )
    )
    assert set(library.kernels) == {"k_float", "other"} and library.air_version("other") == (2, 6)
    module = Module(disassemble(library.bitcode("k_float"), find_clang()))
    assert module.max_total_threads == 96
    described = [
        (argument.kind, argument.type, argument.fields.get("location_index"))
        for argument in module.arguments
    ]
    assert described == [
        ("buffer", "ptr addrspace(1)", 2),
        ("buffer", "ptr addrspace(1)", 0),
        ("buffer", "ptr addrspace(2)", 5),
        ("buffer", "ptr addrspace(3)", 1),
        ("thread_position_in_grid", "<2 x i32>", None),
        ("thread_index_in_simdgroup", "i16", None),
    ]
    fields = [argument.fields for argument in module.arguments]
    assert [set(f) & {"read", "read_write"} for f in fields[:4]] == [
        {"read_write"},
        {"read"},
        {"read"},
        {"read_write"},
    ]
    assert fields[2]["buffer_size"] == 8 and "buffer_size" not in fields[0]
    assert [f["arg_type_name"] for f in fields] == [
        *("float", "uchar", "float2", "int", "uint2", "ushort")
    ]


def test_llvm_14_reads_pointers_with_types(compiled, tmp_path):
    (tmp_path / "k.bc").write_bytes(Metallib(compiled(KERNELS["vectors"])).bitcode("k"))
    shown = subprocess.run(
        ["llvm-dis-14", tmp_path / "k.bc", "-o", "-"], capture_output=True, text=True, check=True
    ).stdout
    assert "define void @k(i8 addrspace(1)* %0, i8 addrspace(2)* %1, i32 %2)" in shown
    assert "<4 x float> addrspace(1)*" in shown
    assert "@air.convert.s.i32.f.f32(float" in shown and "fptosi" not in shown


def test_what_air_lacks_is_an_error(compiled):
    kernel = "kernel void k(device float *x) { x[0] = %s; }"
    with pytest.raises(ToolError, match="k: AIR has no function mps_emulator_sinf"):
        compiled(kernel % "sin(x[0])")
    with pytest.raises(ToolError, match="k: AIR has no function llvm.fshl"):
        compiled(kernel % "(float)(as_type<uint>(x[0]) << 3 | as_type<uint>(x[0]) >> 29)")


def test_the_command(front_end, tmp_path):
    text = HEADER + '#include "inner.h"\nkernel void k(device int *x) { x[0] = kOne; }'
    (tmp_path / "inner.h").write_text("constant int kOne = 1;")
    options = ["-mmacosx-version-min=14.0", "-I", tmp_path]
    done = front_end("metallib", text, "-fno-fast-math", *options)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert Metallib((tmp_path / "output").read_bytes()).kernels == ["k"]
    done = front_end("metallib", text, *options)
    assert done.returncode == 2 and "-fno-fast-math" in done.stderr

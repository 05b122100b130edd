"""Kernels as PTX for NVIDIA GPUs.

Only that PTX comes out is checked here, and, where MPS_EMULATOR_PTXAS names
NVIDIA's assembler, that it accepts it; nothing runs on a GPU.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest

FRONT_END = pathlib.Path(__file__).parents[2] / "mps_emulator" / "msl"
HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"

KERNELS = (
    HEADER
    + """
kernel void sums(device const float *x [[buffer(0)]],
                 device float *y [[buffer(3)]],
                 constant uint &n [[buffer(2)]],
                 threadgroup float *s [[threadgroup(1)]],
                 uint3 g [[thread_position_in_grid]],
                 uint lane [[thread_index_in_simdgroup]],
                 uint simd [[simdgroup_index_in_threadgroup]],
                 uint simds [[simdgroups_per_threadgroup]],
                 uint group [[threadgroup_position_in_grid]]) {
  float sum = simd_sum(g.x < n ? x[g.x] : 0.0f);
  if (lane == 0) s[simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd == 0) {
    sum = simd_sum(lane < simds ? s[lane] : 0.0f);
    if (lane == 0) y[group] = sum;
  }
}
template <typename T>
kernel void fill(device T *x [[buffer(0)]], constant T &value [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
  x[i] = value;
}
template [[host_name("fill_half")]] kernel void fill<half>(
    device half *, constant half &, uint);
template [[host_name("fill_float4")]] kernel void fill<float4>(
    device float4 *, constant float4 &, uint);
kernel void atomics(device atomic_uint *most [[buffer(0)]],
                    device atomic_float *sum [[buffer(1)]],
                    device bfloat *b [[buffer(2)]],
                    uint i [[thread_position_in_grid]]) {
  atomic_fetch_max_explicit(most, i, memory_order_relaxed);
  atomic_fetch_add_explicit(sum, 1.0f, memory_order_relaxed);
  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst);
  b[i] = bfloat(exp(float(i)) + pow(2.0f, simd_shuffle_down(1.0f, 2)) +
                simd_prefix_exclusive_sum(float(i)));
}
"""
)


def emit(tmp_path, text, *options):
    source = tmp_path / "kernels.metal"
    source.write_text(text)
    done = subprocess.run(
        [
            sys.executable,
            str(FRONT_END / "__main__.py"),
            "ptx",
            str(source),
            "--output",
            str(tmp_path / "kernels.ptx"),
            *options,
        ],
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("options", [[], ["--no-fast-math"]])
def test_ptx(tmp_path, options):
    status, said = emit(tmp_path, KERNELS, *options)
    assert status == 0, said
    assert said.splitlines() == [
        "sums: buffer(0), buffer(3), buffer(2), threadgroup(1)",
        "atomics: buffer(0), buffer(1), buffer(2)",
        "fill_half: buffer(0), buffer(1)",
        "fill_float4: buffer(0), buffer(1)",
    ]
    text = (tmp_path / "kernels.ptx").read_text()
    entries = re.findall(r"\.visible \.entry (\w+)\(\s*([^)]*)\)", text)
    parameters = {
        name: re.findall(r"\.param (\.\w+)", given) for name, given in entries
    }
    grid = [".u32"] * 3
    assert parameters == {
        "sums": [".u64"] * 4 + grid,
        "atomics": [".u64"] * 3 + grid,
        "fill_half": [".u64"] * 2 + grid,
        "fill_float4": [".u64"] * 2 + grid,
    }
    assert "bar.sync" in text and "shfl.sync" in text
    # The lines of the Metal source are there for NVIDIA's tools.
    assert "kernels.metal" in text and ".loc" in text


@pytest.mark.skipif(
    "MPS_EMULATOR_PTXAS" not in os.environ,
    reason="MPS_EMULATOR_PTXAS does not name NVIDIA's ptxas",
)
def test_ptxas_accepts_it(tmp_path):
    status, said = emit(tmp_path, KERNELS)
    assert status == 0, said
    subprocess.run(
        [
            os.environ["MPS_EMULATOR_PTXAS"],
            "-arch=sm_80",
            "--compile-only",
            str(tmp_path / "kernels.ptx"),
            "-o",
            str(tmp_path / "kernels.cubin"),
        ],
        check=True,
    )


def test_threadgroup_variables_are_refused(tmp_path):
    status, said = emit(
        tmp_path,
        HEADER + "kernel void k(device float *a) {\n"
        "  threadgroup float s[4]; s[0] = a[0]; a[1] = s[0];\n}\n",
    )
    assert status == 11
    assert "kernel 'k' has variables in threadgroup memory" in said

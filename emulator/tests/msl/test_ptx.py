"""Tests the PTX of kernels for NVIDIA GPUs.

The tests read the text of the PTX.  One test also assembles the PTX, if MPS_EMULATOR_PTXAS is the
path of NVIDIA's assembler ptxas or PATH has ptxas.  No test needs a GPU.
"""

import json
import os
import re
import shutil
import subprocess

import pytest
from metal import HEADER

KERNELS = """
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
                simd_max(float(i)));
}
"""


@pytest.fixture
def emit(front_end, tmp_path):
    """emit(text, *options) compiles a text to PTX; returns the PTX and the command's output."""

    def run(text, *options):
        done = front_end("ptx", HEADER + text, *options)
        assert done.returncode == 0, done.stdout + done.stderr
        return (tmp_path / "output").read_text(), done.stdout

    return run


@pytest.mark.parametrize("options", [[], ["--no-fast-math"]])
def test_ptx(emit, options):
    text, said = emit(KERNELS, *options)
    assert said.splitlines() == [
        "sums: buffer(0), buffer(3), buffer(2), threadgroup(1)",
        "atomics: buffer(0), buffer(1), buffer(2)",
        "fill_half: buffer(0), buffer(1)",
        "fill_float4: buffer(0), buffer(1)",
    ]
    signatures = re.findall(r"\.visible \.entry (\w+)\(\s*([^)]*)\)", text)
    parameters = {name: re.findall(r"\.param (\.\w+)", given) for name, given in signatures}
    grid = [".u32"] * 3
    assert parameters == {
        "sums": [".u64"] * 4 + grid,
        "atomics": [".u64"] * 3 + grid,
        "fill_half": [".u64"] * 2 + grid,
        "fill_float4": [".u64"] * 2 + grid,
    }
    assert "bar.sync" in text and "shfl.sync" in text
    # The kernel's threadgroup argument is in dynamic shared memory.
    assert re.search(r"\.extern \.shared \.align 16 \.b8 \w+_of_launch", text)
    assert "st.shared.f32" in entries(text)["sums"]
    assert "st.shared" not in entries(text)["atomics"]
    # The PTX has the line numbers of the Metal source, for NVIDIA's tools.
    assert "kernels.metal" in text and ".loc" in text


OVERLOADS = """
template <typename P> float second(P p) { return p[1]; }
float first(constant float *p) { return p[0]; }
float first(device const float *p) { return -p[0]; }
kernel void k(device float *x [[buffer(0)]], constant float *c [[buffer(1)]],
              device const float *d [[buffer(2)]]) {
  x[0] = first(c) + second(c);
  x[1] = first(d) + second(d);
}
"""


def test_overloads_by_address_space(emit):
    """Overloads for `constant` and `device` stay two functions.

    On a GPU, `constant` and `device` are the same address space.
    """
    text, _ = emit(OVERLOADS)
    assert len(re.findall(r"\b(?:neg|sub)(?:\.\w+)*\.f32", text)) == 1


STRUCTURES = """
struct Pair { float high, low; };
struct Sum { Pair r, m[2]; float4 v; };
struct Mixed { float a; int b; };
struct Empty {};
kernel void k(device Sum *a [[buffer(0)]], device Mixed *b [[buffer(1)]],
              device half3 *c [[buffer(2)]], constant Empty &d [[buffer(3)]],
              device atomic_uint *e [[buffer(4)]]) {
  a[0].r.high = b[0].a;
}
"""


def test_numbers_of_buffers(emit, tmp_path):
    """The description of a kernel has the type of the numbers in each buffer.

    A replay applies tolerances only to buffers of floats.
    """
    emit(STRUCTURES, "--json", str(tmp_path / "k.json"))
    (kernel,) = json.loads((tmp_path / "k.json").read_text())
    assert kernel["numbers"] == {"0": "float", "1": None, "2": "half", "3": None, "4": "uint"}


VARIABLES = """
struct Pair { float a; int b; };
template <typename T, int N>
[[max_total_threads_per_threadgroup(N * 4)]]
kernel void turn(device T *x [[buffer(0)]],
                 uint i [[thread_index_in_threadgroup]]) {
  threadgroup T rows[N][2];
  threadgroup Pair pairs[3], last;
  alignas(64) threadgroup uchar bytes[5];
  rows[i % N][0] = x[i];
  pairs[i % 3].b = int(i);
  bytes[i % 5] = uchar(i);
  if (i == 0) last.b = 7;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[i] = rows[(i + 1) % N][0] + T(pairs[0].b + last.b + bytes[1]);
}
template [[host_name("turn_float")]] kernel void turn<float, 48>(
    device float *, uint);
template [[host_name("turn_half")]] kernel void turn<half, 16>(
    device half *, uint);
"""


def entries(text):
    """Returns the entries in PTX, {name: text}."""
    return {
        found[1]: found[0]
        for found in re.finditer(r"\.entry (\w+)\(.*?^}", text, re.DOTALL | re.MULTILINE)
    }


def test_threadgroup_variables(emit, tmp_path):
    described = tmp_path / "kernels.json"
    text, _ = emit(VARIABLES, "--json", str(described))
    variables = {
        name: (int(size), int(alignment))
        for alignment, name, size in re.findall(r"\.shared \.align (\d+) \.b8 (\w+)\[(\d+)\]", text)
    }
    used = {
        kernel: sorted(size for name, size in variables.items() if name in entry)
        for kernel, entry in entries(text).items()
    }
    # Both instances use the same variables `bytes` and `pairs`, and each instance has its own
    # variable `rows`.  The lists lack `last`, because LLVM reduces `last` to the one member that is
    # used.
    assert used == {
        "turn_float": [(5, 64), (24, 4), (48 * 2 * 4, 4)],
        "turn_half": [(5, 64), (24, 4), (16 * 2 * 2, 2)],
    }
    for entry in entries(text).values():
        assert "ld.shared" in entry and "st.shared" in entry
        assert "bar.sync" in entry
        # All accesses are to shared or global memory, not to local memory or generic addresses.
        assert not re.search(r"\b(ld|st)\.(local|[fbsu]\d+)", entry)
    assert [
        (k["name"], k["max_threads"], k["arguments"]) for k in json.loads(described.read_text())
    ] == [("turn_float", 192, [["buffer", 0]]), ("turn_half", 64, [["buffer", 0]])]
    assert re.findall(r"\.maxntid (\d+), 1, 1", text) == ["192", "64"]
    # LLVM inlines the kernels into their entries and removes all other functions.
    assert ".func" not in text


def test_characters_that_ptx_does_not_allow_are_replaced_in_names(emit, tmp_path):
    source = (
        "namespace outer { namespace inner {\n"
        "kernel void f(device float *x) { x[0] = 1; }\n}}\n"
        '[[host_name("copy<float>"), kernel,'
        " max_total_threads_per_threadgroup(64)]]\n"
        "void g(device float *x) { x[0] = 1; }\n"
    )
    described = tmp_path / "kernels.json"
    text, _ = emit(source, "--json", str(described))
    names = {k["name"]: k["entry"] for k in json.loads(described.read_text())}
    assert names == {"outer::inner::f": "outer$inner$f", "copy<float>": "copy$3c$float$3e$"}
    for entry in names.values():
        assert f".visible .entry {entry}(" in text


SHUFFLE = """
kernel void k(device float *x, uint i [[thread_position_in_grid]]) {
  x[i] = simd_shuffle_up(fast::exp(x[i]) / x[i + 1], 1);
}
"""


def test_options_choose_the_instructions(emit):
    """The options choose the instructions for divisions and for shuffles."""
    text, _ = emit(SHUFFLE, "--no-fast-math")
    assert "activemask.b32" in text and "div.rn.f32" in text
    # fast::exp is an instruction of the GPU even without fast math.
    assert "ex2.approx.ftz.f32" in text
    text, _ = emit(SHUFFLE, "--no-fast-math", "--whole-simdgroups")
    assert "activemask.b32" not in text and "shfl.sync" in text
    text, _ = emit(SHUFFLE)
    assert "div.full" in text and "div.rn.f32" not in text


PTXAS = os.environ.get("MPS_EMULATOR_PTXAS") or shutil.which("ptxas")


@pytest.mark.skipif(not PTXAS, reason="NVIDIA's ptxas is not installed")
@pytest.mark.parametrize("text", [KERNELS, VARIABLES, SHUFFLE])
def test_ptxas_accepts_it(emit, tmp_path, text):
    emit(text)
    files = [tmp_path / "output", "-o", tmp_path / "kernels.cubin"]
    subprocess.run([PTXAS, "-arch=sm_80", "--compile-only", *files], check=True)

"""Mesa's compiler for the M1 compiles k2's kernels as k2_mps_tests/agx/kernels.toml says."""

import re
import shutil

import pytest

pytest.importorskip("mps_emulator", reason="the emulator's front end reads the kernels")

from k2_mps_tests.agx import counting, kernels, mesa, model, spirv  # noqa: E402
from k2_mps_tests.kernels import sources  # noqa: E402

needs_mesa = pytest.mark.skipif(
    mesa.folder() is None, reason=f"{mesa.FOLDER} names no folder with a build of Mesa"
)
needs_llvm = pytest.mark.skipif(
    not all(map(shutil.which, ("llvm-as-14", "llvm-dis-14", "llvm-spirv-14"))),
    reason="llvm-14 or llvm-spirv-14 is not installed",
)
_PLANTED = (
    "#include <metal_stdlib>\n"
    "kernel void planted(device float *x [[buffer(0)]], uint2 i [[thread_position_in_grid]],\n"
    "    uint2 n [[threads_per_grid]]) {\n"
    "  float many[40], sum = 0;\n"
    "  for (int k = 0; k < 40; ++k) many[k] = x[i.x + k * n.x] * x[i.y + k];\n"
    "  for (int k = 0; k < 40; ++k) for (int j = 0; j < 40; ++j) sum += many[k] * many[j] / k;\n"
    "  x[i.x] = metal::simd_sum(sum);\n"
    "}\n"
)


@needs_mesa
def test_the_table_is_as_mesas_compiler_says():
    assert kernels.measure(mesa.build(mesa.folder()), kernels.files()) == kernels.load()


@needs_llvm
def test_a_kernel_in_spirv_calls_the_functions_of_air(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "CHECKS", tmp_path)
    (tmp_path / "planted.metal").write_text(_PLANTED)
    [(kernel, path, module)] = spirv.kernels_of("planted", tmp_path)
    assert (kernel, module.max_total_threads) == ("planted", None)
    names = path.read_bytes()
    assert b"air.simd_sum.f32" in names
    for component in (0, 1):
        assert b"air.builtin.thread_position_in_grid.%d" % component in names


def test_the_threads_of_a_core():
    row = kernels.Row(
        threads=1024,
        registers=68,
        stack=100,
        code=6650,
        instructions=978,
        cycles=605,
        air=400,
        memory=8192,
    )
    assert row.threads_of_core == 1024
    assert row._replace(threads=512).threads_of_core == 768
    assert row._replace(threads=128, registers=128).threads_of_core == 384


# {file of kernels: the floats from the row of one lane to the row of the next}, where the lanes of
# a simdgroup use rows of an array in threadgroup memory.
ROWS = {
    "mutual_information": "kTileStride",
    "rnnt_pruned": "kRpRows",
    "rnnt_smoothed": "kSmoothedTile + 1",
}


def number(text, expression):
    """Returns the value of an expression of the constants that a kernel's text defines."""
    while names := re.findall(r"[a-z]\w*", expression, re.IGNORECASE):
        for name in names:
            defined = re.search(rf"\b{name} = ([^,;/}}]+)", text)[1]
            expression = expression.replace(name, f"({defined.strip()})")
    return eval(expression)


@pytest.mark.parametrize("file", ROWS)
def test_the_rows_of_lanes_are_in_different_banks(file):
    text = sources.text(file)
    floats = number(text, ROWS[file])
    assert model.cycles_of_load(4 * floats) == model.cycles_of_load(4), floats


def test_the_cycles_of_a_load():
    found = [model.cycles_of_load(stride) for stride in (4, 8, 12, 16, 36, 132, 252, 256)]
    assert found == [1.45, 1.45, 1.45, 2, 1.45, 1.45, 1.45, 32]
    assert number("enum { kA = 4, kB = kA + 1 };", "kA * kB") == 20


def test_a_missing_program_is_named_with_the_command_that_installs_it():
    with pytest.raises(LookupError, match="there is no k2-none: apt-get install k2-none"):
        sources.program("k2-none", install="apt-get install k2-none")


def test_a_folder_without_source_says_how_to_get_it(tmp_path):
    with pytest.raises(LookupError, match="--archive"):
        mesa.build(tmp_path)


_LOOP = (
    "#include <metal_stdlib>\n"
    "kernel void loop(device float *x [[buffer(0)]], constant int &n [[buffer(1)]],\n"
    "    uint i [[thread_position_in_grid]]) {\n"
    "  for (int k = 0; k < n; ++k) {\n"
    "    x[i] = x[i ^ 1] + 1;\n"
    "    metal::threadgroup_barrier(metal::mem_flags::mem_device);\n"
    "  }\n"
    "}\n"
)


@pytest.mark.skipif(shutil.which("llvm-as-14") is None, reason="llvm-as-14 is not installed")
def test_the_counts_of_a_loop_grow_with_its_steps(tmp_path):
    import mps_emulator
    import torch

    threads, found = 64, {}
    library = torch.mps.compile_shader(_LOOP)
    for steps in (2, 4, 8):
        x = torch.zeros(threads, device="mps")
        with mps_emulator.record(tmp_path / str(steps)):
            library.loop(x, steps, threads=threads, group_size=32, arg_casts={1: "int32"})
        [(kernel, work)] = counting.count(tmp_path / str(steps)).items()
        assert kernel == "loop"
        assert work[:3] == (1, 2, threads)
        assert (work.barriers, work.bytes) == (threads * steps, 4 * threads)
        found[steps] = work.instructions
    assert found[8] - found[4] == 2 * (found[4] - found[2])
    # A step has at least a load, a sum, a store, a barrier, a comparison and a branch.
    assert found[4] - found[2] >= 2 * 6 * threads


GPU = model.Gpu(cores=10, hertz=1e9, bandwidth=1e11)
# Each instruction of AIR takes 2 cycles, and a core holds 1,024 threads.
ROW = kernels.Row(
    threads=1024, registers=32, stack=0, code=100, instructions=10, cycles=20, air=10, memory=0
)
# Each thread executes 1,000 instructions of AIR.  On average, a core has 10 of the threadgroups.
WORK = model.Work(
    dispatches=1,
    threadgroups=100,
    threads=100 * 128,
    instructions=100 * 128 * 1000,
    barriers=0,
    bytes=10**6,
)


def test_the_times_of_a_kernel():
    times = model.seconds_of_kernel(GPU, WORK, ROW)
    assert times["memory"] == pytest.approx(1e-5)
    # A threadgroup has 4 simdgroups, and a core issues 4 instructions in a cycle.
    assert times["issue"] == pytest.approx(10 * 2000 / 1e9)
    # A core holds 8 threadgroups of 128 threads, so there are two waves.
    assert times["chain"] == pytest.approx(2 * model.LATENCY * 2000 / 1e9)


def test_threadgroup_memory_limits_the_threadgroups_of_a_wave():
    row = ROW._replace(memory=model.CORE_MEMORY // 4)
    # A core holds 4 threadgroups, so there are three waves.
    chain = model.seconds_of_kernel(GPU, WORK, row)["chain"]
    assert chain == pytest.approx(3 * model.LATENCY * 2000 / 1e9)


def test_the_slowest_part_of_a_kernel_is_its_time():
    operation = model.Operation(commands=2, waits=1, moved=10**8, steps={}, work={"kernel": WORK})
    least, most = model.seconds(GPU, operation, {"kernel": ROW})
    slowest = max(model.seconds_of_kernel(GPU, WORK, ROW).values())
    fixed = 2 * model.COMMAND + model.WAIT + 1e-3
    assert least == pytest.approx(fixed + slowest)
    assert most == pytest.approx(fixed + model.SLOWER * slowest)

"""Mesa's compiler for the M1 compiles k2's kernels as k2_mps_tests/agx/kernels.toml says."""

import shutil

import pytest

pytest.importorskip("mps_emulator", reason="the emulator's front end reads the kernels")

from k2_mps_tests.agx import kernels, mesa, spirv  # noqa: E402
from k2_mps_tests.kernels import sources  # noqa: E402

needs_mesa = pytest.mark.skipif(
    mesa.folder() is None, reason=f"{mesa.FOLDER} names no folder with a build of Mesa"
)
needs_llvm = pytest.mark.skipif(
    shutil.which("llvm-spirv-14") is None, reason="llvm-spirv-14 is not installed"
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
    [(kernel, path, limit)] = spirv.kernels_of("planted", tmp_path)
    assert (kernel, limit) == ("planted", None)
    names = path.read_bytes()
    assert b"air.simd_sum.f32" in names
    for component in (0, 1):
        assert b"air.builtin.thread_position_in_grid.%d" % component in names


def test_the_threads_of_a_core():
    row = kernels.Row(
        threads=1024, registers=68, stack=100, code=6650, instructions=978, cycles=605
    )
    assert row.threads_of_core == 1024
    assert row._replace(threads=512).threads_of_core == 768
    assert row._replace(threads=128, registers=128).threads_of_core == 384


def test_a_folder_without_source_says_how_to_get_it(tmp_path):
    with pytest.raises(LookupError, match="--archive"):
        mesa.build(tmp_path)

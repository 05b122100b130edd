"""Each kernel gets enough registers, so that its threads need no stack."""

import platform
import sys

import pytest

from k2_mps_tests.kernels import registers, sources

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"),
    reason="ptxas from PyPI is for Linux on x86-64",
)

# Kernels whose names end in one of these texts may have a stack.  Such kernels are for rare
# batches, whose FSAs have hundreds of states.
LARGE = ("_1024",)
# {kernel: the bytes of its stack}.  These kernels go through a block twice, and keep some values of
# the one pass in memory during the other.
TWO_PASSES = {"ctc_keep": 8, "ctc_block_gradient_double": 40, "ctc_block_gradient_float": 16}


@pytest.fixture
def nvcc():
    found = registers.find_nvcc()
    assert found, "pip install nvidia-cuda-nvcc-cu12"
    return found


@pytest.mark.parametrize("name", [name for name in sources.names() if name != "two_float"])
def test_registers_suffice(name, nvcc, tmp_path):
    rows = list(registers.uses(name, tmp_path, nvcc))
    print(registers.table(rows))
    for use in rows:
        if not use.kernel.endswith(LARGE):
            assert use.stack <= TWO_PASSES.get(use.kernel, 0), use


def test_the_cap_of_apples_gpus():
    assert [registers.cap(threads) for threads in (128, 256, 512, 1024)] == [128, 128, 104, 52]


def test_the_threads_of_a_kernel_without_a_limit():
    assert [registers.most_threads(n) for n in (32, 52, 53, 64, 128, 154)] == [
        1024,
        1024,
        896,
        832,
        384,
        384,
    ]


def test_a_kernel_that_spills_is_seen(nvcc, tmp_path, monkeypatch):
    monkeypatch.setattr(registers, "cap", lambda threads: 24)
    assert any(use.stack for use in registers.uses("graph_index", tmp_path, nvcc))


def test_an_array_in_memory_is_seen(nvcc, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "CHECKS", tmp_path)
    (tmp_path / "planted.metal").write_text(
        "kernel void planted(device int *x [[buffer(0)]], uint i [[thread_position_in_grid]]) {\n"
        "  int last[3] = {0, 0, 0};\n"
        "  for (int k = 0; k < x[0]; ++k) last[x[k]] = k;\n"
        "  x[i] = last[i % 3];\n"
        "}\n"
    )
    [use] = registers.uses("planted", tmp_path, nvcc)
    assert use.stack >= 12

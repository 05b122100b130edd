"""Each kernel gets enough registers, so that its threads do not spill."""

import platform
import sys

import pytest

from k2_mps_tests.kernels import registers, sources

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"),
    reason="ptxas from PyPI is for Linux on x86-64",
)

# Kernels whose names end in one of these texts may spill.  Such kernels are for rare batches, whose
# FSAs have hundreds of states.
LARGE = ("_1024",)
# {kernel: the bytes that a thread spills between two passes, outside of the loops over frames}
BETWEEN_PASSES = {"ctc_keep": 32, "ctc_block_gradient_float": 48}


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
            assert use.spilled <= BETWEEN_PASSES.get(use.kernel, 0), use


def test_the_cap_of_apples_gpus():
    assert [registers.cap(threads) for threads in (128, 256, 512, 1024)] == [128, 128, 104, 48]


def test_the_threads_of_a_kernel_without_a_limit():
    assert [registers.most_threads(n) for n in (32, 52, 64, 128, 154)] == [
        1024,
        1024,
        832,
        416,
        416,
    ]


def test_a_kernel_that_spills_is_seen(nvcc, tmp_path, monkeypatch):
    monkeypatch.setattr(registers, "cap", lambda threads: 24)
    assert any(use.spilled for use in registers.uses("graph_index", tmp_path, nvcc))

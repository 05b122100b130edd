"""The front end still reads the files of the corpus, see corpus.py."""

import os

import corpus
import pytest


def assert_all_read(results):
    assert results
    assert [(r.name, r.reason) for r in results if r.reason] == []


def test_torch():
    """The test leaves out the headers of sorting, which make 700 kernels each."""
    assert_all_read(corpus.read_torch(aten="[!S]*"))


def test_mlx():
    """The front end reads all files but those that need Metal 4's tensor operations."""
    wheel = os.environ.get("MPS_EMULATOR_MLX_WHEEL")
    if wheel is None:
        pytest.skip(
            "takes a minute and a download: run it with "
            "MPS_EMULATOR_MLX_WHEEL=<mlx-metal's macOS wheel>"
        )
    results = corpus.read_mlx(wheel)
    tensors = "'MetalPerformancePrimitives/MetalPerformancePrimitives.h'"
    assert_all_read([r for r in results if r.reason is None or tensors not in r.reason])
    assert sum(r.reason is None for r in results) >= 84


def test_report(tmp_path):
    """The report counts a refused file and its kernels, and gives the reason."""
    (tmp_path / "good.metal").write_text(
        "#include <metal_stdlib>\n"
        "kernel void a(device float *p [[buffer(0)]]) { *p = 1; }\n"
        "[[kernel]] void b(device float *p [[buffer(0)]]) { *p = 2; }\n"
    )
    (tmp_path / "bad.metal").write_text("kernel void c() { double x; }\n")
    results = corpus.read_sources(tmp_path)
    assert [(r.name, r.kernels) for r in results] == [("bad.metal", 1), ("good.metal", 2)]
    text = corpus.report(results)
    assert "1 of 2     50.0%       2 of 3       66.7%" in text
    assert "'double' is not supported in Metal\n    bad.metal" in text

"""The helpers of <ATen/native/mps/OperationUtils.h>, which extensions include."""

import subprocess

import mps_emulator
import pytest
import torch


def test_helpers_encode_a_kernel(extension):
    x = torch.arange(6, dtype=torch.float32, device="mps")
    extension.multiply_with_helpers(x[2:], 3.0, [1, 10])
    assert x.tolist() == [0, 1, 17, 20, 23, 26]


def test_kernel_function(extension):
    x = torch.arange(8, dtype=torch.float32, device="mps")
    extension.negate_with_kernel_function(x)
    assert x.tolist() == [-i for i in range(8)]


@pytest.mark.parametrize(
    "dtype, names",
    [
        (torch.float32, "float f32 268435488"),
        (torch.bfloat16, "bfloat bf16 2415919120"),
        (torch.uint8, "uchar u8 8"),
        (torch.bool, "bool b8 2147483656"),
        (torch.complex64, "float2 c32 285212736"),
    ],
)
def test_names_of_dtypes(extension, dtype, names):
    x = torch.zeros(2, 5, 3, dtype=dtype, device="mps")[:, ::2]
    assert extension.describe_for_mps(x) == f"{names} 2,3,3, 30"


@pytest.mark.parametrize(
    "part, message",
    [
        ("graph", "make_mps_graph needs MPSGraph"),
        ("placeholder", "Placeholder needs MPSGraph"),
        ("bundled", "getBundledLibrary runs torch's own Metal kernels"),
        ("metallib", "Failed to load metallib: it has code for Apple's GPUs"),
    ],
)
def test_closed_parts_are_refused_when_called(extension, part, message):
    with pytest.raises(RuntimeError, match=message):
        extension.call_closed_part(part)


@pytest.mark.parametrize(
    ("code", "option", "message"),
    [
        *(
            (
                f"NSObject *make() {{ return [{name} new]; }}",
                "-fno-objc-arc",
                f"'new' is unavailable: the emulator has no {name}",
            )
            for name in ("MPSGraph", "MPSNDArray", "MPSKernel")
        ),
        ("", "-fobjc-arc", "mps-emulator has no ARC: compile without -fobjc-arc"),
    ],
)
def test_the_compiler_refuses(code, option, message, tmp_path):
    source = tmp_path / "source.mm"
    source.write_text(
        f"#include <MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h>\n{code}\n"
    )
    flags = mps_emulator.cpp_extension_flags()
    result = subprocess.run(
        ["clang++-19", "-fsyntax-only", str(source), option, *flags["extra_cflags"]]
        + ["-I" + path for path in flags["extra_include_paths"]],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert message in result.stderr

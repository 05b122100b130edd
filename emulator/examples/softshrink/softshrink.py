"""A torch extension with its own Metal kernel.  The first run compiles the extension.

    python softshrink.py

On a Mac the example needs only torch.  On Linux the example also needs the package mps_emulator,
which has the compiler's flags and replaces Metal.
"""

import os
import pathlib
import sys
import types

import torch
from torch.utils import cpp_extension


def load(build_directory: str | None = None) -> types.ModuleType:
    """Returns the extension.  The first call compiles softshrink.mm, which takes a minute."""
    flags = {"extra_ldflags": ["-framework", "Metal", "-framework", "Foundation"]}
    if sys.platform != "darwin":
        import mps_emulator

        os.environ["CXX"] = "clang++-19"
        flags = mps_emulator.cpp_extension_flags()
    source = pathlib.Path(__file__).with_name("softshrink.mm")
    return cpp_extension.load(
        name="softshrink_mps", sources=[str(source)], build_directory=build_directory, **flags
    )


class Softshrink(torch.autograd.Function):
    """apply(extension, x, threshold) returns softshrink(x); x is float32 on mps."""

    @staticmethod
    def forward(ctx, extension, x, threshold):
        ctx.threshold = threshold
        ctx.save_for_backward(x)
        return extension.softshrink(x, threshold)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return None, gradient * (x.abs() > ctx.threshold), None


def main() -> None:
    extension = load()
    x = torch.linspace(-1, 1, 9, device="mps", requires_grad=True)
    y = Softshrink.apply(extension, x, 0.5)
    y.sum().backward()
    print(y.tolist(), x.grad.tolist(), sep="\n")


if __name__ == "__main__":
    main()

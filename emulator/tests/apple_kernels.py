"""Runs kernels as Apple compiled them beside our compile of the same text.

The kernels come from wheels for macOS: mlx-metal has a .metallib and the headers of its kernels,
and torch has two .metallibs in libtorch_cpu.dylib and some headers.  The program instantiates
templates of these headers under the names that the kernels have in the .metallib.  Both sides run
in the emulator on the same inputs, in two orders of the threads.  The results must be the same to
the bit, except for the bits of a NaN.

pip downloads the wheels, unless MPS_EMULATOR_WHEELS names a folder that contains the wheels.  Texts
that the wheels lack come from the projects' public repositories, by git.

    python tests/apple_kernels.py [--group NAME] [--only WORDS] [--every N]
"""

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence

import bfloat
import numpy as np
from apple import mlx, pytorch
from apple.kernel import Group, Kernel
from apple.wheels import Unavailable, checkout, headers, libraries
from mps_emulator.msl import native, toolchain

SCHEDULES = ("forward", "reverse")
GROUPS = mlx.GROUPS | pytorch.GROUPS


def text_of(group: Group, names: Sequence[str]) -> str:
    """Returns the text of a group's kernels, with its headers in place."""
    lines = ["#include <metal_stdlib>", "using namespace metal;"]
    lines += [f'#include "{header}"' for header in group.includes]
    for source in group.sources:
        path = headers(group.wheel) / source if isinstance(source, str) else checkout(*source)
        # Only the instances below are compiled, under the names that they have in the .metallib.
        instance = r"^\s*(instantiate|INSTANTIATE)_\w+\(.*?\);?\s*(?://.*)?$"
        lines.append(re.sub(instance, "", path.read_text(), flags=re.M))
    lines.append(group.head)
    for name in names:
        text = group.kernels[name].text
        lines.append(f'template [[host_name("{name}")]] [[kernel]] decltype({text}) {text};')
    with tempfile.NamedTemporaryFile("w", suffix=".metal") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        clang = toolchain.find_clang()
        command = toolchain.preprocess_command(clang, file.name, [str(headers(group.wheel))])
        status, printed = toolchain.run(command)
    assert status == 0, printed
    return printed


def run(library: native.Library, name: str, kernel: Kernel) -> list[np.ndarray]:
    """Returns the buffers after a run of a kernel."""
    buffers = [buffer.copy() for buffer in kernel.buffers]
    library.run(name, buffers, kernel.grid, kernel.threadgroup)
    return buffers


def differences(apple: Sequence[np.ndarray], ours: Sequence[np.ndarray], kernel: Kernel) -> int:
    """Returns the number of elements that differ."""
    count = 0
    for index, (a, b) in enumerate(zip(apple, ours)):
        different = a.view(f"u{a.itemsize}") != b.view(f"u{b.itemsize}")
        if type := kernel.floats.get(index):
            different &= ~(_is_nan(a, type) & _is_nan(b, type))
        count += int(different.sum())
    return count


def _is_nan(array, type):
    return np.isnan(bfloat.to_floats(array) if type == "bfloat16" else array)


def compare(
    metal: native.Metal, group: Group, names: Sequence[str]
) -> Iterator[tuple[str, str, int]]:
    """Compares kernels of a group.

    Yields:
      The name of the kernel, the schedule, and the number of elements that differ.
    Raises:
      Unavailable: a wheel or a text cannot be had.
      native.CompileError: the emulator cannot compile a kernel.
    """
    text = text_of(group, names)
    container = libraries(group.wheel)[0]
    missing = [name for name in names if name not in container.kernels]
    assert not missing, f"the .metallib lacks {missing}"
    apple = metal.load(container.content, names)
    ours = metal.compile(text, fast_math=False)
    for name in names:
        kernel = group.kernels[name]
        for schedule in SCHEDULES:
            os.environ["MPS_EMULATOR_SCHEDULE"] = schedule
            results = [run(library, name, kernel) for library in (apple, ours)]
            written = any(
                (before != after).any() for before, after in zip(kernel.buffers, results[0])
            )
            assert written, f"{name} wrote nothing"
            yield name, schedule, differences(*results, kernel)
    os.environ.pop("MPS_EMULATOR_SCHEDULE", None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--group", choices=GROUPS, action="append")
    parser.add_argument("--only", default="", help="a regular expression for the names of kernels")
    parser.add_argument("--every", type=int, default=1, help="run only every Nth kernel")
    options = parser.parse_args()
    os.environ.setdefault("MPS_EMULATOR_PYTHON", sys.executable)
    metal = native.Metal()
    same, different = 0, 0
    for title in options.group or GROUPS:
        group = GROUPS[title]()
        names = [name for name in group.kernels if re.search(options.only, name)][:: options.every]
        try:
            found = list(compare(metal, group, names)) if names else []
        except Unavailable as reason:
            print(f"{title}: skipped: {reason}")
            continue
        wrong = {name for name, _, count in found if count}
        for name, schedule, count in found:
            if count:
                print(f"{title}: {name}, {schedule}: {count} elements differ")
        print(f"{title}: emulated, {len(names) - len(wrong)} of {len(names)} kernels the same")
        same += len(names) - len(wrong)
        different += len(wrong)
    print(f"emulated: {same} kernels the same to the bit as Apple compiled them, {different} not")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())

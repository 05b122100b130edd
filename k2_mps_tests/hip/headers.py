"""Compiles k2's headers as a HIP build would, for the device, with clang and without ROCm.

k2 at the pin has no HIP build, but later commits of k2 have one.  In a HIP build, K2_CUDA_HOSTDEV
is `__host__ __device__` whenever hipcc compiles a header.  Headers test `__HIP_DEVICE_COMPILE__` in
place of `__CUDA_ARCH__`.  ported() changes upstream's lines in these two ways.  ported() does not
change lines that test both macros, or that test whether `__CUDA_ARCH__` is absent.  Only the series
has such lines, and these lines must be right without a change.
"""

import re
import subprocess
import sysconfig
from pathlib import Path

CLANG = "clang-19"
ARCHITECTURE = "gfx90a"
STAND_IN = Path(__file__).resolve().parent / "stand_in"

# Headers with code for the device.  The list has all such headers that the series touches.
DEVICE = ("log", "context", "nvtx", "utils", "hash", "array_ops", "ragged_ops", "fsa_algo")
HOST = ("thread_pool",)
# This header includes torch's tensors, so its compilation takes half a minute.
TENSORS = "torch_util"

_DECORATOR = re.compile(r"^#ifdef __CUDA_ARCH__(\n#define K2_CUDA_HOSTDEV __host__)", re.MULTILINE)
_DISPATCH = re.compile(r"^#(?:ifdef __CUDA_ARCH__|if defined\(__CUDA_ARCH__\))$", re.MULTILINE)

# clang compiles torch's headers for the host, because their HIP branches need ROCm's headers.
_TORCH = """\
#undef __HIP__
#undef __HIPCC__
#undef __HIP_DEVICE_COMPILE__
#include <torch/types.h>
#define __HIP__ 1
#define __HIPCC__ 1
#define __HIP_DEVICE_COMPILE__ 1
"""
_UNIT = """\
#include "hip/hip_runtime.h"
{headers}
// A check in device code instantiates what log.h has for the device.
__global__ void Check(int32_t *value) {{
  K2_CHECK_EQ(*value, 3) << "it is" << *value << 1.5f << true;
  K2_LOG(INFO) << static_cast<int8_t>(*value);
}}
"""


def ported(text: str) -> str:
    """Changes the `#if` lines for CUDA's device code into `#if` lines for HIP's device code.

    Args:
      text: the text of a header of the pin.
    Returns:
      The text with the changes.
    """
    text = _DECORATOR.sub(r"#if defined(__CUDA_ARCH__) || defined(__HIPCC__)\1", text)
    return _DISPATCH.sub("#if defined(__HIP_DEVICE_COMPILE__)", text)


def port(tree: Path) -> None:
    """Ports the headers of a copy of k2's tree, in place."""
    for header in (tree / "k2/csrc").glob("*.h"):
        header.write_text(ported(header.read_text(encoding="utf-8")), encoding="utf-8")


def unit(names: tuple[str, ...]) -> str:
    """Returns the text of a file that includes headers of k2/csrc and uses K2_CHECK_EQ on the
    device."""
    text = _UNIT.format(headers="\n".join(f'#include "k2/csrc/{name}.h"' for name in names))
    return _TORCH + text if TENSORS in names else text


def host_calls_in(tree: Path, paths: list[str], torch: Path) -> list[str]:
    """Compiles sources and headers of a ported tree as one file.

    The stand-ins lack functions of CUDA's host libraries, so clang reports other errors too.

    Args:
      paths: of the sources and headers.
      torch: the folder of an installed torch.
    Returns:
      clang's lines about host code that device code calls.
    """
    # array_ops.h comes before the files that include array_ops_inl.h.
    first = ["device_math.h", "k2/csrc/array_ops.h", "k2/csrc/ragged_ops.h"]
    includes = "\n".join(f'#include "{path}"' for path in [*first, *paths])
    text = "#include <cfloat>\n" + _UNIT.format(headers=includes)
    return [line for line in _errors(tree, text, torch).splitlines() if "__host__" in line]


def errors_in(tree: Path, names: tuple[str, ...], torch: Path) -> str:
    """Compiles headers of a ported tree; returns clang's errors, empty if there are none.

    Args:
      torch: the folder of an installed torch.
    """
    return _errors(tree, unit(names), torch)


def _errors(tree: Path, text: str, torch: Path) -> str:
    """Compiles a text; returns clang's errors, empty if there are none."""
    include = torch / "include"
    folders = [tree, STAND_IN, include, include / "torch/csrc/api/include"]
    folders.append(Path(sysconfig.get_path("include")))
    done = subprocess.run(
        [
            *(CLANG, "-x", "hip", f"--offload-arch={ARCHITECTURE}", "--cuda-device-only"),
            "-nogpulib",
            "-nogpuinc",
            "-fsyntax-only",
            "-std=c++20",
            "-w",
            "-ferror-limit=0",
            # Most headers test whether K2_WITH_CUDA is defined.  The value of this macro is 0,
            # because eval.h uses cooperative groups if the value is 1.
            "-DK2_WITH_CUDA=0",
            "-DK2_TORCH_VERSION_MAJOR=2",
            "-DK2_TORCH_VERSION_MINOR=13",
            *(f"-I{folder}" for folder in folders),
            "-",
        ],
        input=text,
        capture_output=True,
        text=True,
    )
    return done.stderr if done.returncode else ""

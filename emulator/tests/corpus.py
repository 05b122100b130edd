"""Counts the files of published Metal code that the front end reads.

The corpus is Apple's array library mlx (the kernel headers in its macOS wheel) and PyTorch
(c10/metal and the kernel headers of ATen, which every torch wheel has).  The front end reads a
file if it accepts a program that includes the file behind the headers that the file's own project
includes before it.  The package contains no part of the corpus.

    python tests/corpus.py                      # downloads the mlx wheel
    python tests/corpus.py --mlx mlx_metal.whl  # reads a wheel that is there
    python tests/corpus.py --sources FOLDER     # reads .metal files too

    The figures count files that the emulator's front end reads, not files that
    Apple's compiler accepts.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

from mps_emulator.msl.errors import Refused
from mps_emulator.msl.language import Language
from mps_emulator.msl.pipeline import Program, explain

# The newest language version that torch and mlx compile for.
LANGUAGE = Language((3, 2))

_MLX_KERNELS = "mlx/backend/metal/kernels/"
# Headers that mlx's .metal files include before a header that lacks includes of
# its own.  The first pattern that matches the header's path counts.
_MLX_BEFORE = (
    (r"steel/.*nax", ["utils.h", "steel/gemm/gemm_nax.h"]),
    (r"steel/gemm/kernels/", ["utils.h", "steel/gemm/gemm.h"]),
    (r"steel/conv/", ["utils.h", "steel/gemm/mma.h", "steel/conv/conv.h", "steel/conv/params.h"]),
    (r"quantized.*nax", ["utils.h", "steel/gemm/gemm.h", "quantized_utils.h", "steel/gemm/nax.h"]),
    (r"quantized", ["utils.h", "steel/gemm/gemm.h", "quantized_utils.h"]),
    (r"searchsorted", ["utils.h", "sort.h"]),
    (r"reduc", ["defines.h", "utils.h", "atomic.h", "reduction/ops.h"]),
    (r"(binary|ternary|unary)", ["utils.h"]),
    (r"indexing/scatter", ["utils.h", "atomic.h"]),
    (r"bf16_math", ["bf16.h"]),
    (r"bf16|complex|atomic|defines|^utils", []),
    (r"", ["defines.h", "utils.h"]),
)
# The first lines of ATen's .metal files.
_ATEN_BEFORE = ["#include <metal_stdlib>", "using namespace metal;", "#include <c10/metal/utils.h>"]
_ATEN_SORT_BEFORE = ["#include <ATen/native/mps/kernels/SortMerge.h>"]

_KERNEL = re.compile(r"\[\[\s*kernel\b|^\s*kernel\s+\w", re.MULTILINE)
_ERROR = re.compile(r"^(?P<place>.*?): (?:fatal )?error: (?P<message>.*)$")


class Result:
    """The outcome of one file.

    group:   its part of the corpus.
    name:    its path in that part.
    kernels: the number of kernel functions and templates that its text declares.
    reason:  the first error; None for a file that the front end reads.
    """

    def __init__(self, group, name, kernels, reason):
        self.group = group
        self.name = name
        self.kernels = kernels
        self.reason = reason


def read(program, include_folders=()):
    """The first error in the file `program`, None if the front end accepts the file."""
    try:
        Program(
            str(program),
            str(program),
            LANGUAGE,
            include_folders=[str(folder) for folder in include_folders],
        ).analyse()
    except Refused as refused:
        return _first_error(explain(refused))
    return None


def _first_error(text):
    for line in text.splitlines():
        match = _ERROR.match(line)
        if match is not None:
            name = pathlib.PurePath(match["place"]).name
            return "{}: {}".format(name, match["message"])
    return text.strip()


def headers(group, root, pattern, before):
    """Reads headers, each in a program of its own.

    root:    the folder to which each #include is relative.
    pattern: a pattern of the headers' paths in `root`.
    before:  a function of such a path; returns the lines before its #include.
    """
    found = []
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "program.metal"
        for path in sorted(root.glob(pattern)):
            name = path.relative_to(root).as_posix()
            include = f"#include <{name}>"
            lines = [line for line in before(name) if line != include]
            program.write_text("\n".join(lines + [include, ""]))
            kernels = len(_KERNEL.findall(path.read_text()))
            reason = read(program, [root])
            found.append(Result(group, name, kernels, reason))
    return found


def mlx_before(name):
    short = name.removeprefix(_MLX_KERNELS)
    for pattern, included in _MLX_BEFORE:
        if re.search(pattern, short):
            return ["#include <metal_stdlib>"] + [
                f"#include <{_MLX_KERNELS}{other}>" for other in included
            ]
    raise AssertionError("the last pattern matches everything")


def read_mlx(wheel):
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.startswith("mlx/include/mlx/backend/metal/"):
                    archive.extract(name, folder)
        return headers(
            "mlx", pathlib.Path(folder) / "mlx" / "include", _MLX_KERNELS + "**/*.h", mlx_before
        )


def aten_before(name):
    return _ATEN_BEFORE + (_ATEN_SORT_BEFORE if "/Sort" in name else [])


def read_torch(aten="*"):
    """Reads c10/metal, and the headers of ATen whose names match the pattern `aten`."""
    import torch

    root = pathlib.Path(torch.__file__).parent / "include"
    return headers("torch c10/metal", root, "c10/metal/*.h", lambda name: []) + headers(
        "torch ATen/native/mps", root, f"ATen/native/mps/kernels/{aten}.h", aten_before
    )


def read_sources(folder):
    """Reads the .metal files below a folder, to which their includes are relative."""
    found = []
    for path in sorted(folder.rglob("*.metal")):
        name = path.relative_to(folder).as_posix()
        kernels = len(_KERNEL.findall(path.read_text()))
        found.append(Result(folder.name, name, kernels, read(path, [folder])))
    return found


class Unavailable(Exception):
    """The wheel cannot be downloaded."""


def download_mlx(folder):
    """Downloads mlx's macOS wheel with pip; returns its path."""
    command = [sys.executable, *"-m pip download --quiet --no-deps --only-binary=:all:".split()]
    command += ["--platform=macosx_14_0_arm64", f"--dest={folder}", "mlx-metal"]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wheels = sorted(pathlib.Path(folder).glob("mlx_metal*.whl"))
    if result.returncode != 0 or not wheels:
        raise Unavailable(
            "pip cannot download mlx-metal's macOS wheel (is there a network?)"
            f": {result.stdout.strip()}\nDownload it elsewhere and give it with --mlx."
        )
    return wheels[-1]


def report(results):
    """The table and the reasons, as text."""
    lines = [f"{'emulated':<24} {'files read':>12} {'':>8} {'kernels read':>14} {'':>8}"]
    groups = collections.OrderedDict()
    for result in results:
        groups.setdefault(result.group, []).append(result)
    rows = list(groups.items())
    if len(rows) > 1:
        rows.append(("all", results))
    for group, members in rows:
        good = [r for r in members if r.reason is None]
        kernels = sum(r.kernels for r in members)
        good_kernels = sum(r.kernels for r in good)
        lines.append(
            f"{group:<24} {len(good):5d} of {len(members):<4d} "
            f"{_percent(len(good), len(members)):5.1f}%   {good_kernels:5d} of {kernels:<6d} "
            f"{_percent(good_kernels, kernels):5.1f}%"
        )
    reasons = {}
    for result in results:
        if result.reason is not None:
            reasons.setdefault(result.reason, []).append(result.name)
    for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        lines.append("")
        lines.append(f"not read ({len(names)}): {reason}")
        lines += ["    " + name for name in names]
    return "\n".join(lines) + "\n"


def _percent(part, whole):
    return 100.0 * part / whole if whole else 100.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mlx", metavar="WHEEL", help="mlx-metal's wheel")
    parser.add_argument(
        "--sources",
        action="append",
        default=[],
        type=pathlib.Path,
        metavar="FOLDER",
        help="whose .metal files are read too",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            wheel = options.mlx or download_mlx(folder)
        except Unavailable as unavailable:
            sys.exit(f"error: {unavailable}")
        results = read_mlx(wheel)
    results += read_torch()
    for folder in options.sources:
        results += read_sources(folder)
    sys.stdout.write(report(results))


if __name__ == "__main__":
    main()

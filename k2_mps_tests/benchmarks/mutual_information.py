#!/usr/bin/env python3
"""Compares the Metal kernels of mutual_information_recursion with upstream's CUDA kernel.

Both run on one NVIDIA GPU in one process.  The emulator's front end compiles the
mps backend's .metal file to PTX.  Upstream's kernel comes from the source package
of fast_rnnt, which has the same CUDA file as k2.

    .venv/bin/python mutual_information.py prepare FOLDER   # after `make build`
    python mutual_information.py run FOLDER                 # with the GPU

`prepare` puts all other files that `run` needs into FOLDER.  `run` may be on
another machine, with PyTorch for CUDA and nvcc, without clang.

The comparison judges the algorithm.  Times on Apple's GPUs differ.
"""

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from k2_mps_tests.kernels import sources  # noqa: E402

# B, S, T
SHAPES = [
    (1, 50, 300),
    (8, 50, 300),
    (32, 50, 300),
    (32, 100, 1000),
    (128, 100, 500),
    (32, 500, 1000),
]
VARIANTS = ["plain", "boundary", "modified", "-inf", "float16", "bfloat16"]
# The index of the member in MutualInformationParams.
SCRATCH_STRIDE = 6
PTX = "mutual_information.ptx"
DISPATCHES = "dispatches.json"
# The cores of an H200, among which k2 divides a sequence of several bands.
CORES = 132

BINDING = """
#include "fast_rnnt/csrc/mutual_information.h"

#include <torch/extension.h>

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &fast_rnnt::MutualInformationCuda);
  m.def("backward", &fast_rnnt::MutualInformationBackwardCuda);
}
"""


def prepare(folder, libdevice):
    """Fills the folder with PTX and upstream's source."""
    (folder / DISPATCHES).write_text(json.dumps(dispatches()))
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        kernels = sources.compile_to_ptx("mutual_information", folder / PTX, libdevice, "sm_90")
        source = _download(scratch, "fast_rnnt==1.3", "--no-binary", ":all:")
        upstream = folder / "upstream" / "fast_rnnt" / "csrc"
        upstream.mkdir(parents=True, exist_ok=True)
        with tarfile.open(source) as archive:
            for member in archive:
                path = Path(member.name)
                if path.name in ("mutual_information.h", "mutual_information_cuda.cu") and (
                    path.parts[-3:-1] == ("fast_rnnt", "csrc")
                ):
                    content = archive.extractfile(member).read()
                    (upstream / path.name).write_bytes(content)
    (folder / "upstream" / "binding.cc").write_text(BINDING)
    print(
        "{}: {}".format(
            folder, ", ".join(f"{k['name']} ({k['max_threads']} threads)" for k in kernels)
        )
    )


def dispatches():
    """k2's dispatches for each shape and variant, by _key()."""
    from _k2 import mps_mutual_information_dispatches

    return {
        _key(shape, offset, has_boundary): mps_mutual_information_dispatches(
            *shape, offset, has_boundary, CORES
        )
        for shape in SHAPES
        for offset in (0, -1)
        for has_boundary in (False, True)
    }


def _key(shape, offset, has_boundary):
    return str([*shape, offset, has_boundary])


class Ours:
    """The kernels of a PTX file, launched as mutual_information.cu does."""

    def __init__(self, folder):
        from ptx_module import PtxModule

        self._module = PtxModule(folder / PTX)
        self._dispatches = json.loads((folder / DISPATCHES).read_text())

    def launcher(self, px, py, boundary):
        """Returns (forward, backward, the tensors that these two functions write).

        The tensors are ans [B], and the gradients of px and py for a gradient of ones.
        """
        import torch

        B, S = px.shape[:2]
        T = py.shape[2]
        key = _key((B, S, T), px.shape[2] - T - 1, boundary is not None)
        groups, threads, plan = self._dispatches[key]
        params = [torch.tensor(values, dtype=torch.int32, device="cuda") for values in plan]
        suffix = {torch.float16: "_half", torch.bfloat16: "_bfloat"}.get(px.dtype, "")
        # With one band a dispatch has a threadgroup for each sequence.
        suffix += "_bands" if groups > B else ""
        scratch = torch.empty(B, plan[0][SCRATCH_STRIDE], device="cuda")
        p = torch.empty(B, S + 1, T + 1, device="cuda")
        ans, ans_grad = p.new_empty(B), p.new_ones(B)
        px_grad, py_grad = torch.zeros_like(px), torch.zeros_like(py)
        where = p if boundary is None else boundary

        def all_of(name, tensors):
            dispatches = [
                self._module.launcher(
                    "mutual_information_" + name + suffix, groups, threads, tensors + [values]
                )
                for values in params
            ]

            def run():
                for dispatch in dispatches:
                    dispatch()

            return run

        return (
            all_of("forward", [px, py, where, p, ans, scratch]),
            all_of("backward", [where, p, ans_grad, px_grad, py_grad, scratch]),
            [ans, px_grad, py_grad],
        )


def load_upstream(folder):
    """Compiles upstream's kernel, which takes a minute or two."""
    from torch.utils import cpp_extension

    upstream = folder / "upstream"
    return cpp_extension.load(
        "upstream_mutual_information",
        [
            str(upstream / "binding.cc"),
            str(upstream / "fast_rnnt" / "csrc" / "mutual_information_cuda.cu"),
        ],
        extra_include_paths=[str(upstream)],
        extra_cuda_cflags=["-O3"],
    )


def make(B, S, T, variant):
    """Returns px, py and the boundary of a shape."""
    import torch

    torch.manual_seed(B * S * T)
    px = torch.randn(B, S, T + (variant != "modified"), device="cuda") - 1
    py = torch.randn(B, S + 1, T, device="cuda") - 1
    boundary = None
    if variant == "boundary":
        s_end = torch.randint(S // 2, S + 1, (B,))
        t_end = torch.randint(T // 2, T + 1, (B,))
        # The longest sequence is as long as without a boundary.
        s_end[0], t_end[0] = S, T
        zeros = torch.zeros_like(s_end)
        boundary = torch.stack([zeros, zeros, s_end, t_end], 1).cuda()
    if variant == "-inf":
        # Pruning leaves a range of rows in each column.
        s = torch.arange(S, device="cuda")[:, None]
        t = torch.arange(px.shape[2], device="cuda")[None, :]
        px[:, ((s - t * S / T).abs() > S / 4)] = float("-inf")
    if variant in ("float16", "bfloat16"):
        px, py = (x.to(getattr(torch, variant)) for x in (px, py))
    return px, py, boundary


def compare(ours, upstream, shape, variant):
    """Measures the Metal kernels, and upstream's kernel unless it is None.

    Upstream's kernel has no half types: it gets the same numbers in float32.

    Returns:
      A row of the report, a dict.
    """
    import torch
    from ptx_module import measure

    B, S, T = shape
    px, py, boundary = make(B, S, T, variant)
    forward, backward, results = ours.launcher(px, py, boundary)
    forward()
    backward()
    torch.cuda.synchronize()
    first = [result.clone() for result in results]
    row = {
        "B": B,
        "S": S,
        "T": T,
        "variant": variant,
        "forward": measure(forward),
        "backward": measure(backward),
    }
    row["same bits again"] = all(torch.equal(a, b) for a, b in zip(first, results))
    # A path crosses each row of p once, and each column once.
    if variant == "plain":
        row["error of sums"] = max(
            (first[1].sum(2) - 1).abs().max().item(), (first[2].sum(1) - 1).abs().max().item()
        )
    if upstream is None:
        return row

    def recursion(dtype):
        p = torch.empty(B, S + 1, T + 1, device="cuda", dtype=dtype)
        ans_grad = torch.ones(B, device="cuda", dtype=dtype)
        x, y = px.to(dtype), py.to(dtype)
        return (
            lambda: upstream.forward(x, y, boundary, p),
            lambda: upstream.backward(x, y, boundary, p, ans_grad, False),
        )

    upstream_forward, upstream_backward = recursion(torch.float32)
    row["upstream forward"] = measure(upstream_forward)
    row["upstream backward"] = measure(upstream_backward)
    row["times"] = (row["upstream forward"] + row["upstream backward"]) / (
        row["forward"] + row["backward"]
    )
    exact_forward, exact_backward = recursion(torch.float64)
    exact = [exact_forward(), *exact_backward()]
    single = [upstream_forward(), *upstream_backward()]
    for name, results in (("error", first), ("upstream error", single)):
        row[name] = max((a.double() - b).abs().max().item() for a, b in zip(results, exact))
    return row


def run(folder, output):
    """Measures, prints a table, writes a JSON."""
    import torch
    from ptx_module import REPEATS, WARMUPS

    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}; microseconds, mean of "
        f"{REPEATS} calls after {WARMUPS}"
    )
    ours = Ours(folder)
    try:
        upstream = load_upstream(folder)
    except Exception as error:  # The Metal kernels are measured without it too.
        print(f"upstream's kernel does not build, so there is no comparison: {error}")
        upstream = None
    columns = [
        "upstream forward",
        "forward",
        "upstream backward",
        "backward",
        "times",
        "beside plain",
        "upstream error",
        "error",
        "error of sums",
        "same bits again",
    ]
    print("  ".join(["   B   S    T  variant "] + columns))
    rows = []
    cases = [(shape, "plain") for shape in SHAPES]
    cases += [(shape, variant) for shape in SHAPES[2:] for variant in VARIANTS[1:]]
    plain = {}
    for shape, variant in cases:
        row = compare(ours, upstream, shape, variant)
        time = row["forward"] + row["backward"]
        row["beside plain"] = time / plain.setdefault(shape, time)
        rows.append(row)
        cells = ["{:4d} {:3d} {:4d}  {:<8}".format(*shape, variant)]
        for name in columns:
            value = row.get(name, "")
            if isinstance(value, float):
                form = ".1e" if "error" in name else ".2f" if name == "beside plain" else ".1f"
                value = format(value, form)
            cells.append(str(value).rjust(len(name)))
        print("  ".join(cells), flush=True)
    print(
        "times: upstream's forward + backward over that of Metal.  beside plain: Metal's over "
        "that of the\nsame shape without variant.  error: the largest difference "
        "to upstream's in\nfloat64, of scores and gradients; half types "
        "round gradients."
    )
    if output is not None:
        output.write_text(json.dumps(rows, indent=1) + "\n")


def _download(folder, package, *arguments):
    """Lets pip download one file; returns its path."""
    before = set(folder.iterdir())
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--dest", str(folder), *arguments, package], check=True)
    (new,) = set(folder.iterdir()) - before
    return new


def _libdevice(folder):
    path = folder / "libdevice.10.bc"
    with zipfile.ZipFile(_download(folder, "nvidia-cuda-nvcc-cu12")) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/libdevice.10.bc"))
        path.write_bytes(archive.read(name))
    return path


def main():
    """Runs one of the two steps."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("prepare", help="make all that run needs")
    command.add_argument("folder", type=Path)
    command.add_argument(
        "--libdevice", type=Path, help="CUDA's libdevice.10.bc; default: from PyPI"
    )
    command = commands.add_parser("run", help="measure on this GPU")
    command.add_argument("folder", type=Path)
    command.add_argument("--output", type=Path, help="a JSON to write")
    options = parser.parse_args()
    if options.command == "run":
        run(options.folder, options.output)
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        prepare(options.folder, options.libdevice or _libdevice(Path(scratch)))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measures the memory bandwidth of the swoosh kernels on an NVIDIA GPU.

    python -m k2_mps_tests.kernels --prepare FOLDER
    swoosh_bandwidth.py FOLDER [MEGABYTES]...

FOLDER has the Metal kernels as PTX, and can be copied to another machine.  This program needs torch
for CUDA.  MEGABYTES is the size of the input in float32; default: 64 and 256.  A row gives the
bytes that a call must move, the median time of a call, and the call's bandwidth in percent.  100%
is the bandwidth of a device-to-device copy that moves as many bytes as the call.  If a k2 with CUDA
can be imported, another column has the time of k2's own function.  Without a GPU, the program makes
the arguments of each kernel and measures nothing.
"""

import ctypes
import json
import statistics
import sys
from pathlib import Path

import numpy as np
import torch

ROUNDS = 50
# The standard deviation of the inputs.
SPREAD = 2
THREADS = 128
ELEMENTS_OF_THREAD = 16

# {kernel: (moved, arrays, size_at)}.  moved: the bytes that the kernel moves for an element.
# arrays: {index of an argument that is an array: bytes of an element of this array}.  size_at: the
# index of the argument that is a struct with the number of elements, `size`.
KERNELS = {
    "swoosh": (8, {0: 4, 1: 4}, 2),
    "swoosh_and_deriv": (12, {0: 4, 1: 4, 2: 4}, 3),
    "swoosh_forward": (9, {0: 4, 1: 4, 2: 1}, 3),
    "swoosh_forward, dropout": (9, {0: 4, 1: 4, 2: 1}, 3),
    "swoosh_backward": (9, {0: 4, 1: 1, 2: 4}, 3),
    "swoosh_forward_half": (7, {0: 2, 1: 4, 2: 1}, 3),
    "swoosh_backward_half": (7, {0: 4, 1: 1, 2: 2}, 3),
}


def main():
    folder = Path(sys.argv[1])
    sizes = [float(word) for word in sys.argv[2:]] or [64, 256]
    sys.path.insert(0, str(folder))
    import driver

    gpu = None
    if torch.cuda.is_available():
        torch.cuda.init()
        gpu = driver.Driver()
    manifest = json.loads((folder / "cases.json").read_text())
    (source,) = [source for source in manifest if source["ptx"] == "swoosh.ptx"]
    ptx = (folder / source["ptx"]).read_bytes()
    print(f"{gpu.name if gpu else 'no GPU'}, torch {torch.__version__}")
    for megabytes in sizes:
        numel = int(megabytes * 2**20) // 4
        print(f"input of {megabytes:g} MB in float32, {numel} elements")
        for name, (moved, arrays, size_at) in KERNELS.items():
            case = _case(source, name)
            tensors = _arguments(folder, case, arrays, size_at, numel, "cuda" if gpu else "cpu")
            if gpu is None:
                print(f"{name}: {len(tensors)} arguments")
                continue
            call = _launch(gpu, ptx, case, tensors, numel)
            ours = _milliseconds(call)
            copy = _milliseconds(_copy(numel * moved // 2))
            row = f"{name:26s} {moved:2d} bytes an element, {ours:.4f} ms"
            row += f", {copy / ours:.0%} of a copy's bandwidth"
            theirs = _k2(name, numel)
            print(row + (f"; k2 {_milliseconds(theirs):.4f} ms" if theirs else ""))


def _case(source, name):
    """Returns the first aligned case of a kernel; name: an entry of KERNELS."""
    kernel, _, dropout = name.partition(", ")
    wanted = "dropout 0.4" if dropout else "dropout 0.0" if "_forward" in kernel else ""
    for case in source["cases"]:
        words = case["name"]
        if case["kernel_name"] == kernel and ", aligned" in words and words.endswith(wanted):
            return case
    raise LookupError(f"there is no case of {name}")


def _arguments(folder, case, arrays, size_at, numel, device):
    """Returns the arguments of a kernel for `numel` elements, a list of tensors.

    arrays, size_at: as in KERNELS.
    """
    contents = np.load(folder / case["file"])
    ((_, arguments),) = case["launches"]
    tensors = []
    for index, name in enumerate(arguments):
        content = contents[f"content_{case['buffers'].index(name)}"].copy()
        if index in arrays:
            # Inputs are random, because equal inputs would make every thread read the same cell of
            # the table.
            tensor = torch.randn(numel * arrays[index] // 4, device=device) * SPREAD
            if arrays[index] == 2:
                tensor = (torch.randn(numel, device=device) * SPREAD).half()
        else:
            if index == size_at:
                content["size"] = numel
            tensor = torch.from_numpy(content.view(np.uint8)).to(device)
        tensors.append(tensor)
    return tensors


def _launch(gpu, ptx, case, tensors, numel):
    """Returns a function that launches a kernel on `numel` elements."""
    function = gpu.kernel(ptx, case["kernel"], THREADS)
    groups = -(-numel // (THREADS * ELEMENTS_OF_THREAD))
    values = [ctypes.c_uint64(tensor.data_ptr()) for tensor in tensors]
    values += [ctypes.c_uint(n) for n in (groups * THREADS, 1, 1)]

    def call(tensors=tensors):  # The default argument keeps the tensors' memory.
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        gpu.launch(function, (groups, 1, 1), (THREADS, 1, 1), values, stream=stream)

    return call


def _copy(size):
    source = torch.empty(size, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _k2(name, numel):
    """Returns a function that does a kernel's work in k2's own CUDA code.

    Returns None if k2 is missing, or if k2 lacks CUDA.  Also returns None for kernels in half
    precision, because k2's CUDA code has no half precision.
    """
    try:
        import k2
    except ImportError:
        return None
    if not k2.with_cuda or name.endswith("_half"):
        return None
    x = (torch.randn(numel, device="cuda") * SPREAD).requires_grad_(True)
    if name == "swoosh":
        return lambda: k2.swoosh_l_forward(x)
    if name == "swoosh_and_deriv":
        return lambda: k2.swoosh_l_forward_and_deriv(x)
    if name == "swoosh_backward":
        y = k2.swoosh_l(x)
        upstream = torch.randn_like(y)
        return lambda: torch.autograd.grad(y, x, upstream, retain_graph=True)
    dropout_prob = 0.4 if name.endswith("dropout") else 0.0
    return lambda: k2.swoosh_l(x, dropout_prob)


def _milliseconds(call):
    """Returns the median time of a call on the GPU, in milliseconds.

    Before each call, a large write flushes the caches.
    """
    flush = torch.empty(2**28, dtype=torch.uint8, device="cuda")
    for _ in range(5):
        call()
    times = []
    for _ in range(ROUNDS):
        flush.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


if __name__ == "__main__":
    main()

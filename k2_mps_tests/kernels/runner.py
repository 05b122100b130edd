#!/usr/bin/env python3
"""Runs prepared checks of kernels on an NVIDIA GPU, by CUDA's driver API.

`python -m k2_mps_tests.kernels --prepare FOLDER` copies this file and driver.py into FOLDER.
There, the copy needs only NumPy and NVIDIA's driver:

    python FOLDER/run.py
    compute-sanitizer --tool memcheck --error-exitcode 9 python FOLDER/run.py
    compute-sanitizer --tool racecheck --error-exitcode 9 python FOLDER/run.py

Exit status: 0 all kernels are right, 1 a kernel is wrong, 3 there is no GPU.
"""

import ctypes
import functools
import json
import sys
from pathlib import Path

import numpy as np

WRONG, NO_GPU = 1, 3


def values(array):
    """Returns the numbers in an array.  Elements of numpy.uint16 are the bits of bfloat."""
    if array.dtype != np.uint16:
        return array
    return (array.astype(np.uint32) << 16).view(np.float32)


def scores_of(sums):
    """Returns the scores of PathSums, see path_sums.h.

    Args:
      sums: [..., floats].  A sum has one float as the exponent, then one or two floats as the
        significand.
    """
    exponents, significands = sums[..., 0].astype(np.float64), sums[..., 1:].sum(-1, np.float64)
    return exponents * np.log(2) + np.log(significands)


def differences(buffers, results):
    """Compares the contents of buffers after a launch with the expected contents.

    Args:
      buffers: {name: (content, expected, tolerance)}, see case.Buffer.
      results: the contents after the launch, {name: array}.
    Returns:
      A list of messages, empty if all buffers are as expected.
    """
    found = []
    for name, (content, expected, tolerance) in buffers.items():
        result = results[name]
        if expected is None:
            if result.tobytes() != content.tobytes():
                found.append(f"{name} has changed")
            continue
        is_path_sums = expected.ndim < content.ndim
        result = scores_of(result) if is_path_sums else values(result)
        with np.errstate(invalid="ignore"):
            # The difference of equal infinities is NaN.
            error = np.where(
                (result == expected) | (np.isnan(result) & np.isnan(expected)),
                0,
                np.abs(result.astype(np.float64) - expected),
            )
        wrong = ~(error <= tolerance) & ~np.isinf(tolerance)
        if wrong.any():
            first = tuple(int(i) for i in np.argwhere(wrong)[0])
            allowed = np.broadcast_to(tolerance, result.shape)[first]
            found.append(
                f"{name}: {wrong.sum()} of {wrong.size} elements differ, first "
                f"{list(first)}: {result[first].item()!r} instead of "
                f"{expected[first].item()!r}, tolerance {allowed:.1e}"
            )
    return found


def first_gpu(say=print):
    """Returns the first GPU of this machine, a driver.Driver.

    Without a GPU, prints the reason and returns None.
    """
    try:
        driver = _driver()
    except ImportError:
        say("no GPU: CUDA's driver is not for this system")
        return None
    try:
        return driver.Driver()
    except driver.NoGpu as error:
        say(f"no GPU: {error}")
        return None


def _driver():
    try:
        import driver  # from the folder, if this file is the copy run.py
    except ImportError:
        from mps_emulator.replay import driver
    return driver


def _launch(gpu, ptx, case, contents):
    """Launches a case on copies of the arrays in `contents`; returns the changed copies.

    Args:
      contents: {name: array}.
      ptx: the bytes of the kernel's PTX.
      case: {"kernel": its name, "launches": [(threadgroups, names of arguments)], "threads": the
        threads of a threadgroup}.  The names are in the order of the arguments of the kernel's
        entry.
    """
    threads = case["threads"]
    function = gpu.kernel(ptx, case["kernel"], threads)
    addresses = {}
    try:
        for name, content in contents.items():
            addresses[name] = gpu.allocate(content.nbytes)
            gpu.write(addresses[name], 0, content)
        for groups, names in case["launches"]:
            values = [ctypes.c_uint64(addresses[name]) for name in names]
            # The last arguments of an entry are the size of the grid in threads.
            values += [ctypes.c_uint(n) for n in (groups * threads, 1, 1)]
            gpu.launch(function, (groups, 1, 1), (threads, 1, 1), values)
        return {
            name: gpu.read(addresses[name], content.nbytes)
            .view(content.dtype)
            .reshape(content.shape)
            for name, content in contents.items()
        }
    finally:
        for address in addresses.values():
            gpu.free(address)


def check(launch, buffers, runs=2):
    """Launches a case, and compares the results.

    Args:
      launch: a function of {name: array}; returns the arrays after the launch.
      buffers: the argument of differences().
      runs: the number of launches; all launches must give bit for bit identical results.
    Returns:
      A list of messages, empty if all results are as expected.
    """
    contents = {name: content for name, (content, _, _) in buffers.items()}
    results = launch(contents)
    found = differences(buffers, results)
    for _ in range(runs - 1):
        for name, other in launch(contents).items():
            if results[name].tobytes() != other.tobytes():
                found.append(f"{name} has other bits after another run")
    return found


def report(kernels, say=print):
    """Reports the results of cases.

    Args:
      kernels: yields (name of the kernel, name of the case, list of messages).
    Returns:
      An exit status.
    """
    counts = {}
    wrong = 0
    for kernel, name, found in kernels:
        passed, all_of_it = counts.get(kernel, (0, 0))
        counts[kernel] = (passed + (not found), all_of_it + 1)
        wrong += bool(found)
        for message in found:
            say(f"{kernel}, {name}: {message}")
    for kernel, (passed, all_of_it) in counts.items():
        say(f"{kernel}: {passed} of {all_of_it} cases")
    if not counts:
        say("there are no cases")
        return WRONG
    return WRONG if wrong else 0


def run(folder, say=print):
    """Runs the checks in a folder; returns an exit status."""
    gpu = first_gpu(say)
    if gpu is None:
        return NO_GPU
    say(f"on {gpu.name}")
    manifest = json.loads((folder / "cases.json").read_text())

    def outcomes():
        for source in manifest:
            ptx = (folder / source["ptx"]).read_bytes()
            for case in source["cases"]:
                arrays = np.load(folder / case["file"])
                buffers = {
                    name: (
                        arrays[f"content_{i}"],
                        arrays.get(f"expected_{i}"),
                        arrays.get(f"tolerance_{i}"),
                    )
                    for i, name in enumerate(case["buffers"])
                }
                launch = functools.partial(_launch, gpu, ptx, case)
                yield case["kernel"], case["name"], check(launch, buffers)

    try:
        return report(outcomes(), say)
    except _driver().CudaError as error:
        say(f"CUDA: {error}")
        return WRONG


if __name__ == "__main__":
    try:
        sys.exit(run(Path(__file__).resolve().parent))
    except KeyboardInterrupt:
        sys.exit("error: interrupted")
    except OSError as error:
        sys.exit(f"error: {error}")

#!/usr/bin/env python3
"""Runs prepared checks of kernels on an NVIDIA GPU, by CUDA's driver API.

`k2mps kernels --prepare FOLDER` copies this file into FOLDER, where it needs only
NumPy and a driver:

    python FOLDER/run.py
    compute-sanitizer --tool memcheck --error-exitcode 9 python FOLDER/run.py
    compute-sanitizer --tool racecheck --error-exitcode 9 python FOLDER/run.py

Exit status: 0 all kernels are right, 1 a kernel is wrong, 3 there is no GPU.
"""

import ctypes
import json
import sys
from pathlib import Path

import numpy as np

WRONG, NO_GPU = 1, 3


class NoGpu(Exception):
    """The machine has no GPU that CUDA can use; the text gives the reason."""


class CudaError(Exception):
    """A call of the driver failed."""


def values(array):
    """The numbers in an array; numpy.uint16 holds the bits of bfloat."""
    if array.dtype != np.uint16:
        return array
    return (array.astype(np.uint32) << 16).view(np.float32)


def differences(buffers, results):
    """Compares the buffers after a launch with the expected ones.

    Args:
      buffers: (content, expected, tolerance) of each argument, see case.Buffer.
      results: the arrays afterwards.
      Returns:
      A list of messages, empty if all buffers are as expected.
    """
    found = []
    for index, ((content, expected, tolerance), result) in enumerate(zip(buffers, results)):
        if expected is None:
            if result.tobytes() != content.tobytes():
                found.append(f"buffer {index} has changed")
            continue
        result = values(result)
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
                f"buffer {index}: {wrong.sum()} of {wrong.size} elements differ, first "
                f"{list(first)}: {result[first].item()!r} instead of "
                f"{expected[first].item()!r}, tolerance {allowed:.1e}"
            )
    return found


class Gpu:
    """The first GPU of this machine.

    Raises:
      NoGpu: there is none.
    """

    def __init__(self):
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise NoGpu(f"NVIDIA's driver is not installed ({error})")
        try:
            self._call("cuInit", 0)
            device = ctypes.c_int()
            self._call("cuDeviceGet", ctypes.byref(device), 0)
        except CudaError as error:
            raise NoGpu(str(error))
        name = ctypes.create_string_buffer(100)
        self._call("cuDeviceGetName", name, len(name), device)
        self.name = name.value.decode()
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)

    def _call(self, name, *arguments):
        error = getattr(self._cuda, name)(*arguments)
        if error:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(error, ctypes.byref(text))
            raise CudaError("{}: {}".format(name, (text.value or b"error %d" % error).decode()))

    def load(self, ptx):
        """Compiles PTX, bytes; returns a module."""
        module = ctypes.c_void_p()
        log = ctypes.create_string_buffer(8192)
        # CU_JIT_ERROR_LOG_BUFFER, and _SIZE_BYTES, a number in place of a pointer.
        options = (ctypes.c_int * 2)(5, 6)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
        try:
            self._call("cuModuleLoadDataEx", ctypes.byref(module), ptx + b"\0", 2, options, values)
        except CudaError as error:
            raise CudaError(f"{error}\n{log.value.decode()}")
        return module

    def launch(self, module, kernel, launches, threads, contents):
        """Launches a kernel on copies of arrays and waits; returns the copies."""
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), module, kernel.encode())
        addresses = []
        try:
            for content in contents:
                address = ctypes.c_uint64()
                self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(content.nbytes))
                addresses.append(address)
                self._call(
                    "cuMemcpyHtoD_v2",
                    address,
                    content.ctypes.data_as(ctypes.c_void_p),
                    ctypes.c_size_t(content.nbytes),
                )
            for groups, arguments in launches:
                # The last arguments of an entry are the size of the grid in threads.
                values = [addresses[i] for i in arguments] + [
                    ctypes.c_uint(n) for n in (groups * threads, 1, 1)
                ]
                pointers = (ctypes.c_void_p * len(values))(
                    *[ctypes.addressof(value) for value in values]
                )
                self._call(
                    "cuLaunchKernel", function, groups, 1, 1, threads, 1, 1, 0, None, pointers, None
                )
            self._call("cuCtxSynchronize")
            results = []
            for content, address in zip(contents, addresses):
                result = np.empty_like(content)
                self._call(
                    "cuMemcpyDtoH_v2",
                    result.ctypes.data_as(ctypes.c_void_p),
                    address,
                    ctypes.c_size_t(content.nbytes),
                )
                results.append(result)
            return results
        finally:
            for address in addresses:
                self._cuda.cuMemFree_v2(address)


def check(launch, case, buffers, runs=2):
    """Launches a case, and compares the results.

    Args:
      launch: a function of kernel, launches, threads and arrays; returns the
        arrays afterwards.
      case: {"kernel", "launches", "threads"}; "launches" is case.Case.launches().
      buffers: the argument of differences().
      runs: the number of launches; each must give the bits of the first.
      Returns:
      A list of messages, empty if all results are as expected.
    """
    contents = [content for content, _, _ in buffers]
    how = case["kernel"], case["launches"], case["threads"], contents
    results = launch(*how)
    found = differences(buffers, results)
    for _ in range(runs - 1):
        for index, (first, other) in enumerate(zip(results, launch(*how))):
            if first.tobytes() != other.tobytes():
                found.append(f"buffer {index} has other bits after another run")
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
    try:
        gpu = Gpu()
    except NoGpu as error:
        say(f"no GPU: {error}")
        return NO_GPU
    say(f"on {gpu.name}")
    manifest = json.loads((folder / "cases.json").read_text())

    def outcomes():
        for source in manifest:
            module = gpu.load((folder / source["ptx"]).read_bytes())
            for case in source["cases"]:
                arrays = np.load(folder / case["file"])
                buffers = [
                    (
                        arrays[f"content_{i}"],
                        arrays.get(f"expected_{i}"),
                        arrays.get(f"tolerance_{i}"),
                    )
                    for i in range(case["buffers"])
                ]
                found = check(lambda *how: gpu.launch(module, *how), case, buffers)
                yield case["kernel"], case["name"], found

    try:
        return report(outcomes(), say)
    except CudaError as error:
        say(f"CUDA: {error}")
        return WRONG


if __name__ == "__main__":
    sys.exit(run(Path(__file__).resolve().parent))

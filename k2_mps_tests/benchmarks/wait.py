"""Measures the cost of a wait for an idle device.

    .venv/bin/python -m k2_mps_tests.benchmarks.wait

The program calls the function behind ``Context::SyncIfOnHost()`` on mps in a loop of compiled code,
from a thread that holds the GIL, and from a thread that does not.  A wait releases the GIL.
"""

import ctypes
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _k2
import torch

CALLS = 1_000_000
REPEATS = 7
SYNCHRONIZE = "_ZN2k23mps11SynchronizeEv"
LOOP = "void loop(void (*f)(void), long n) { while (n--) f(); }"


def _nanoseconds(loop, function):
    """Returns the least time of a call over all repeats."""
    best = float("inf")
    for _ in range(REPEATS):
        begin = time.perf_counter_ns()
        loop(function, ctypes.c_long(CALLS))
        best = min(best, time.perf_counter_ns() - begin)
    return best / CALLS


def main():
    suffix = "dylib" if sys.platform == "darwin" else "so"
    library = Path(_k2.__file__).parent / f"libk2context.{suffix}"
    torch.zeros(1, device="mps").cpu()  # starts the device
    function = ctypes.cast(getattr(ctypes.CDLL(library), SYNCHRONIZE), ctypes.c_void_p)
    with tempfile.TemporaryDirectory() as directory:
        loop = Path(directory) / f"loop.{suffix}"
        subprocess.run(
            [os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", loop],
            input=LOOP,
            text=True,
            check=True,
        )
        emulated = "" if sys.platform == "darwin" else " (emulated)"
        for text, kind in (("without the GIL", ctypes.CDLL), ("with the GIL", ctypes.PyDLL)):
            cost = _nanoseconds(kind(loop).loop, function)
            print(f"{text}: {cost:.0f} ns a call{emulated}")


if __name__ == "__main__":
    main()

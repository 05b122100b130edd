"""Measures how long a wait for mps takes if mps is idle.

    .venv/bin/python -m k2_mps_tests.benchmarks.wait

A loop of compiled code calls the function that ``Context::SyncIfOnHost()`` calls on mps.  The loop
runs once in a thread that holds the GIL, which each wait must release, and once without the GIL.
"""

import ctypes
import functools
import os
import subprocess
import sys
import tempfile
import timeit
from pathlib import Path

import _k2
import torch

from k2_mps_tests import ending

CALLS = 1_000_000
REPEATS = 7
SYNCHRONIZE = "_ZN2k23mps11SynchronizeEv"
LOOP = "void loop(void (*f)(void), long n) { while (n--) f(); }"


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
            calls = functools.partial(kind(loop).loop, function, ctypes.c_long(CALLS))
            seconds = min(timeit.repeat(calls, number=1, repeat=REPEATS))
            print(f"{text}: {seconds / CALLS * 1e9:.0f} ns a call{emulated}")


if __name__ == "__main__":
    ending.run(main)

"""How often a call waits for the GPU."""

import sys

import k2
import torch


def counted(function):
    """Calls a function; returns how often the call waited for the GPU, and k2's counters.

    k2 takes a long gate for a wait, and a gate is also long if the thread loses its processor.  The
    emulated device knows which waits find work in flight, so on it the first result is its count.
    """
    torch.mps.synchronize()
    if sys.platform == "darwin":
        with k2.mps.counters() as of_k2:
            function()
        return of_k2.waits, of_k2
    import mps_emulator

    with mps_emulator.counters() as seen, k2.mps.counters() as of_k2:
        function()
    return seen.waits_with_work, of_k2

"""Counts how often a call waits for the GPU."""

import sys

import k2
import torch


def counted(function):
    """Calls a function; returns how often the call waited for the GPU, and k2's counters.

    k2 counts a gate as a wait if the gate takes long.  But a gate also takes long if the operating
    system suspends the thread.  The emulated device knows which waits find work in flight.  So
    under emulation, the first result is the device's count.
    """
    torch.mps.synchronize()
    if sys.platform == "darwin":
        with k2.mps.counters() as k2_counters:
            function()
        return k2_counters.waits, k2_counters
    import mps_emulator

    with mps_emulator.counters() as seen, k2.mps.counters() as k2_counters:
        function()
    return seen.waits_with_work, k2_counters

"""Measures how long the GPU itself works: the times that Metal keeps of each command buffer.

torch's events for mps take their times in handlers on the host, which may run late and in another
order.  So no program here uses these events.
"""

import contextlib
import dataclasses
import statistics
from collections.abc import Iterator, Sequence

import torch


@dataclasses.dataclass
class Taken:
    """What a `with` block of measured() took.

    Attributes:
      milliseconds: how long the GPU was busy; None: no time could be taken.
    """

    milliseconds: float | None = None


@contextlib.contextmanager
def measured() -> Iterator[Taken]:
    """Measures how long the GPU works on what a `with` block gives it; waits before and after.

    k2 takes the times, so there is no time without a k2 for mps.  The times include all work of the
    command buffers that have kernels of k2, and of the command buffer that is open at the end.
    """
    taken = Taken()
    k2 = _k2_for_mps()
    torch.mps.synchronize()
    if k2 is None:
        yield taken
        torch.mps.synchronize()
        return
    k2.mps_start_gpu_times()
    try:
        yield taken
        k2.mps_note_open_command_buffer()
        torch.mps.synchronize()
    finally:
        times = k2.mps_stop_gpu_times()
    if times:
        taken.milliseconds = 1e3 * busy(times)


def _k2_for_mps():
    try:
        import _k2
    except (ImportError, OSError):
        return None
    return _k2 if hasattr(_k2, "mps_start_gpu_times") else None


def busy(times: Sequence[tuple[float, float]]) -> float:
    """Returns how long at least one of several intervals lasted.

    Args:
      times: (begin, end) of each interval.
    """
    seconds, until = 0.0, float("-inf")
    for begin, end in sorted(times):
        seconds += max(0.0, end - max(begin, until))
        until = max(until, end)
    return seconds


def spread(values: Sequence[float | None]) -> dict[str, float] | None:
    """Returns the minimum, median and maximum of the values that are not None, or None."""
    times = [value for value in values if value is not None]
    if not times:
        return None
    return {"min": min(times), "median": statistics.median(times), "max": max(times)}


def text(milliseconds: dict[str, float] | None) -> str:
    """Returns a spread as text."""
    if milliseconds is None:
        return "no time"
    return ", ".join(f"{name} {value:.3f}" for name, value in milliseconds.items())

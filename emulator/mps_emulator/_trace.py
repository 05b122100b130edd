"""Records the signposts, dispatches and labels that a profiler on a Mac would show."""

import contextlib
import ctypes
import dataclasses
import json
from collections.abc import Iterator

from ._load import load


@dataclasses.dataclass(frozen=True)
class Signpost:
    """One signpost that the program emitted."""

    kind: str  # "begin" if the signpost begins an interval, "end" if it ends an interval
    # The arguments of os_log_create() for the log handle.
    subsystem: str
    category: str
    name: str  # a string literal in the program
    # The formatted text.  "<private>" stands for each string argument that the format does not mark
    # as public.
    message: str
    id: int  # distinguishes intervals of the same name
    thread: int  # the system's id of the thread
    time: int  # when the program emitted the signpost, in nanoseconds


@dataclasses.dataclass(frozen=True)
class Interval:
    """An interval between two signposts."""

    subsystem: str
    category: str
    name: str
    message: str  # of the signpost that begins the interval
    thread: int  # of the signpost that begins the interval
    # The times of the two signposts, in nanoseconds.
    begin: int
    end: int


@dataclasses.dataclass(frozen=True)
class Dispatch:
    """A compute dispatch that the device ran."""

    label: str  # the label of the encoder
    pipeline: str  # the label of the pipeline state
    kernel: str  # the name of the kernel function
    # The name of the aten operator that made the device run the dispatch, or "" if a wait did.  The
    # CPU time of this operator includes the dispatch.
    during: str
    # When the dispatch ran on the CPU, in nanoseconds.  The emulator's preparation of the kernel's
    # buffers is between these two times.
    begin: int
    end: int


@dataclasses.dataclass
class Trace:
    """What trace() recorded.  Each list is sorted by time."""

    signposts: list[Signpost] = dataclasses.field(default_factory=list)
    dispatches: list[Dispatch] = dataclasses.field(default_factory=list)

    def intervals(self) -> list[Interval]:
        """Returns the intervals, sorted by the times at which they begin.

        Raises:
          ValueError: an interval has no end, an end has no beginning, or an interval begins again
            before its end.
        """
        opened = {}
        found = []
        for post in self.signposts:
            key = (post.subsystem, post.category, post.name, post.id)
            if post.kind == "begin":
                if key in opened:
                    raise ValueError(f"the interval begins twice: {post}")
                opened[key] = post
                continue
            if key not in opened:
                raise ValueError(f"the interval has not begun: {post}")
            first = opened.pop(key)
            found.append(Interval(*key[:3], first.message, first.thread, first.time, post.time))
        if opened:
            raise ValueError(f"the interval has no end: {next(iter(opened.values()))}")
        return sorted(found, key=lambda interval: interval.begin)


@contextlib.contextmanager
def trace() -> Iterator[Trace]:
    """Records the signposts and dispatches of all threads inside a `with` block.

    The trace has the dispatches that the device runs inside the block.  So a program should wait
    for its dispatches inside the block.

    Yields:
      The trace, which is filled in when the block ends.
    """
    library = load()
    library.mps_emulator_start_trace.restype = ctypes.c_uint64
    library.mps_emulator_stop_trace.argtypes = [ctypes.c_uint64]
    library.mps_emulator_stop_trace.restype = ctypes.c_char_p
    recorded = Trace()
    begin = library.mps_emulator_start_trace()
    try:
        yield recorded
    finally:
        for record in json.loads(library.mps_emulator_stop_trace(begin)):
            if "kind" in record:
                recorded.signposts.append(Signpost(**record))
            else:
                recorded.dispatches.append(Dispatch(**record))

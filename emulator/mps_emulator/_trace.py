"""Traces: the signposts, dispatches and labels that a profiler would show."""

import contextlib
import ctypes
import dataclasses
import json
from collections.abc import Iterator

from ._load import load


@dataclasses.dataclass(frozen=True)
class Signpost:
    """One signpost that the program emitted.

    Attributes:
      kind: "begin" or "end" of an interval.
      subsystem, category: of the log handle.
      name: the literal of the macro.
      message: the format with its arguments filled in; a string argument that the
        format does not mark public reads "<private>".
      id: distinguishes intervals of one name.
      thread: the system's id of the thread.
      time: in nanoseconds.
    """

    kind: str
    subsystem: str
    category: str
    name: str
    message: str
    id: int
    thread: int
    time: int


@dataclasses.dataclass(frozen=True)
class Interval:
    """The begin and the end of an interval; `message` is that of the begin."""

    subsystem: str
    category: str
    name: str
    message: str
    thread: int
    begin: int
    end: int


@dataclasses.dataclass(frozen=True)
class Dispatch:
    """A compute dispatch that the device ran.

    Attributes:
      label: the label of the encoder.
      pipeline: the label of the pipeline state.
      kernel: the function's name.
      during: the name of the aten operator that made the device run the dispatch;
        "" where a wait did.  The operator's CPU time includes the kernel's.
      begin, end: in nanoseconds on the CPU, not a GPU's time.  They include the
        emulator's preparation of the kernel's buffers.
    """

    label: str
    pipeline: str
    kernel: str
    during: str
    begin: int
    end: int


@dataclasses.dataclass
class Trace:
    """A recorded trace; each list is sorted by time."""

    signposts: list[Signpost] = dataclasses.field(default_factory=list)
    dispatches: list[Dispatch] = dataclasses.field(default_factory=list)

    def intervals(self) -> list[Interval]:
        """The intervals, sorted by their begin.

        Raises:
          ValueError: an interval has no end, an end has no begin, or an interval
            begins again before its end.
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
    """Record signposts and dispatches inside a `with` block, in all threads.

    Yields a Trace that is filled when the block ends.  A dispatch belongs to the
    block in which the device runs the dispatch: wait inside the block.
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

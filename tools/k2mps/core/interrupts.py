"""Signals as exceptions, and sections in which they have to wait."""

import contextlib
import signal
import sys
from collections.abc import Iterator

from k2mps.core.errors import InterruptedRunError

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def install() -> None:
    """Makes the first SIGINT, SIGTERM or SIGHUP raise `InterruptedRunError`.

    Later ones do nothing, so that they do not interrupt the ending of children: `timeout` sends
    SIGTERM twice.  Signals that the parent process has this process ignore (nohup) stay ignored.
    """
    heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]

    def interrupt(number, frame):
        # Not SIG_IGN, which children would inherit.
        for one in heeded:
            signal.signal(one, lambda *_: None)
        raise InterruptedRunError(number)

    def unraisable(dropped):
        if not isinstance(dropped.exc_value, InterruptedRunError):
            sys.__unraisablehook__(dropped)
            return
        # Python drops what is raised in a finalizer.  So the signal comes again, a moment later.
        number = dropped.exc_value.exit_code - 128
        signal.signal(signal.SIGALRM, lambda *_: interrupt(number, None))
        signal.setitimer(signal.ITIMER_REAL, 0.001)

    sys.unraisablehook = unraisable
    for number in heeded:
        signal.signal(number, interrupt)


def ignore() -> None:
    """Makes the signals do nothing, where nothing is left to interrupt."""
    for number in (*_SIGNALS, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Defers signals to the end of the context, and of the contexts around it."""
    arrived: list[int] = []
    previous = {
        number: signal.signal(number, lambda number, frame: arrived.append(number))
        for number in _SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if arrived:
        # An outer context's handler defers it further.
        signal.raise_signal(arrived[-1])

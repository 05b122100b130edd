"""Makes signals raise an exception, and defers them in sections that must not be interrupted."""

import contextlib
import signal
import sys
from collections.abc import Iterator

from k2mps.core.errors import InterruptedRunError

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def install() -> None:
    """Makes the first SIGINT, SIGTERM or SIGHUP raise `InterruptedRunError`.

    Later signals do nothing.  Otherwise they would interrupt the code that ends child processes;
    for example, `timeout` sends SIGTERM twice.  If a signal was ignored when this process started,
    as SIGHUP is under nohup, the signal stays ignored.
    """
    heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]

    def interrupt(number, frame):
        # The handler is a function and not SIG_IGN, because child processes inherit SIG_IGN.
        for one in heeded:
            signal.signal(one, lambda *_: None)
        raise InterruptedRunError(number)

    def unraisable(dropped):
        if not isinstance(dropped.exc_value, InterruptedRunError):
            sys.__unraisablehook__(dropped)
            return
        # Python drops an exception that is raised in a finalizer.  So a timer sends SIGALRM a
        # moment later, and the handler of SIGALRM raises the exception again.
        number = dropped.exc_value.exit_code - 128
        signal.signal(signal.SIGALRM, lambda *_: interrupt(number, None))
        signal.setitimer(signal.ITIMER_REAL, 0.001)

    sys.unraisablehook = unraisable
    for number in heeded:
        signal.signal(number, interrupt)


def ignore() -> None:
    """Ignores the signals from now on, because the process is about to exit."""
    for number in (*_SIGNALS, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Defers signals to the end of the context, or of the outermost of several nested contexts."""
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
        # If there is an outer context, its handler defers the signal again.
        signal.raise_signal(arrived[-1])

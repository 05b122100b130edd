"""Makes signals raise an exception, and defers them in sections that must not be interrupted."""

import contextlib
import signal
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
        """Handles the first signal: raises the exception, and lets later signals do nothing."""
        # The handler is a function and not SIG_IGN, because child processes inherit SIG_IGN.
        for other in heeded:
            signal.signal(other, lambda *_: None)
        raise InterruptedRunError(number)

    for number in heeded:
        signal.signal(number, interrupt)


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

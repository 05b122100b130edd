"""Signals as exceptions, and sections in which they have to wait."""

import contextlib
import signal
from collections.abc import Callable, Iterator

from k2mps.core.errors import InterruptedRunError

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# The signals that have arrived in each context of `deferred`, the outermost first.
_sections: list[list[int]] = []


def install() -> None:
    """Makes SIGINT, SIGTERM and SIGHUP raise `InterruptedRunError`.

    Signals that the parent process has this process ignore (nohup) stay ignored.
    """

    def interrupt(number, frame):
        raise InterruptedRunError(number)

    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


@contextlib.contextmanager
def deferred() -> Iterator[Callable[[], None]]:
    """Defers signals to the end of the context, and of the contexts around it.

    Yields a function that raises `InterruptedRunError` if a signal has arrived:
    a signal ends the context early only where the caller calls it.
    """
    arrived: list[int] = []
    _sections.append(arrived)

    def remember(number, frame):
        arrived.append(number)

    def check() -> None:
        if arrived:
            raise InterruptedRunError(arrived.pop())

    previous = {
        number: signal.signal(number, remember)
        for number in _SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield check
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        _sections.pop()
        if _sections:
            _sections[-1].extend(arrived)
            arrived.clear()
    check()

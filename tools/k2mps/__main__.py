"""The entry point: the script tools/bin/k2mps runs `python -m k2mps`.

This module handles Ctrl-C before it imports the command line, because this import takes a tenth of
a second.
"""

import os
import signal
import sys


def _interrupted(number: int, frame: object) -> None:
    """Ends the process if Ctrl-C is pressed during the imports, before any work has begun."""
    os.write(2, b"error: interrupted\n")
    os._exit(128 + number)


if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _interrupted)
# The script tools/bin/k2mps has blocked SIGINT, so that Python starts without interruption.
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def main() -> None:
    _open_closed_streams()
    from k2mps.cli import ending

    ending.run()


def _open_closed_streams() -> None:
    """Opens /dev/null for each standard stream that the parent process has closed.

    Otherwise, the next file that is opened would get the stream's number, and text for the stream
    would be written into this file.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is `number`
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))


if __name__ == "__main__":
    main()

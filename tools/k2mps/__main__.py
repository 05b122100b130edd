"""`python -m k2mps`, which the command k2mps (tools/bin/k2mps) runs, with names in UTF-8.

The first lines run before the command line's modules are imported, which takes a tenth of a second.
"""

import os
import signal
import sys


def _interrupted(number: int, frame: object) -> None:
    """Ends the process at a Ctrl-C during the imports, when no work has begun."""
    os.write(2, b"error: interrupted\n")
    os._exit(128 + number)


if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _interrupted)
# The script tools/bin/k2mps delays a signal that comes while Python starts.
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def main() -> None:
    _open_closed_streams()
    from k2mps.cli import ending

    ending.run()


def _open_closed_streams() -> None:
    """Opens /dev/null for each standard stream that the parent process has closed.

    Without them, the next file that is opened would become standard output.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the first free number, which is this one
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))


if __name__ == "__main__":
    main()

"""Ends programs of k2_mps_tests with one line, not a traceback, after Ctrl-C or an OSError."""

import os
import signal
import sys
from collections.abc import Callable


def run(main: Callable[[], int | None]) -> None:
    """Runs a program to its end, and ends the process with the program's exit status.

    After Ctrl-C, a broken pipe or another OSError, the program prints one line and no traceback.
    Any other exception is a fault of the program, so Python prints its traceback.
    """
    try:
        status = main()
        sys.stdout.flush()
        sys.exit(status)
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        # At exit, Python writes the rest of stdout, which would fail again if the reader is gone.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)

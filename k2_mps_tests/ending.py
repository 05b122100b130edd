"""How the programs of k2_mps_tests end if a user or the system stops them."""

import os
import signal
import sys
from collections.abc import Callable


def run(main: Callable[[], int | None]) -> None:
    """Runs a program to its end, and ends the process with its exit status.

    A Ctrl-C, a reader that is gone and an error of the system are one line, no traceback.  Any
    other exception is a finding, whose traceback shows where.
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
        # Python writes the rest of the output as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)

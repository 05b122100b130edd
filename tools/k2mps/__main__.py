"""The entry point: the script tools/bin/k2mps runs `python -m k2mps`."""

import os
import sys


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

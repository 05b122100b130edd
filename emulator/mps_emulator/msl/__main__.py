"""Runs the front end, as ``python -m mps_emulator.msl`` or as ``python FOLDER``."""

import pathlib
import sys

if not __package__:
    # For `python FOLDER`, Python has put this folder first into sys.path.  The imports below need
    # the folder that contains the package instead.
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[2])

from mps_emulator.msl import cli  # noqa: E402

if __name__ == "__main__":
    sys.exit(cli.main())

"""Entry point of ``python -m mps_emulator.msl``, and of this folder as a file."""

import pathlib
import sys

if not __package__:
    # Python put this folder first into its path. The package is the one that this file belongs to.
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[2])

from mps_emulator.msl import cli  # noqa: E402

if __name__ == "__main__":
    sys.exit(cli.main())

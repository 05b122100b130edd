"""Entry point of ``python -m mps_emulator.msl``, and of this folder as a file."""

import pathlib
import sys

if not __package__:
    # Python puts this folder first into its path; the package's own folder must be there.
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[2])

from mps_emulator.msl import cli  # noqa: E402

if __name__ == "__main__":
    sys.exit(cli.main())

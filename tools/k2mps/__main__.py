"""`python -m k2mps`, and the command k2mps."""

import sys

from k2mps import __version__


def main() -> None:
    """Runs the command line; its version needs nothing of it."""
    if sys.argv[1:] == ["--version"]:
        print(f"k2mps {__version__}")
        return
    from k2mps.cli.command_line import run

    run()


if __name__ == "__main__":
    main()

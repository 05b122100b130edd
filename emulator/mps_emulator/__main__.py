"""python -m mps_emulator: prints the paths that build systems need."""

import argparse

from . import __version__, cmake_dir, include_dir


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m mps_emulator")
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument(
        "--cmake-dir",
        action="store_const",
        const=cmake_dir(),
        dest="answer",
        help="print the directory of mps_emulatorConfig.cmake",
    )
    group.add_argument(
        "--include-dir",
        action="store_const",
        const=include_dir(),
        dest="answer",
        help="print the directory of the Apple-named headers",
    )
    group.add_argument(
        "--version",
        action="store_const",
        const=__version__,
        dest="answer",
        help="print the version of mps-emulator",
    )
    print(parser.parse_args().answer)


if __name__ == "__main__":
    main()

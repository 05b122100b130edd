"""python -m mps_emulator: prints the paths that build systems need."""

import argparse

from . import __version__, cmake_dir, include_dir


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m mps_emulator")
    group = parser.add_mutually_exclusive_group(required=True)
    for option, answer, what in (
        ("--cmake-dir", cmake_dir(), "the directory of mps_emulatorConfig.cmake"),
        ("--include-dir", include_dir(), "the directory of the Apple-named headers"),
        ("--version", __version__, "the version of mps-emulator"),
    ):
        group.add_argument(
            option, action="store_const", const=answer, dest="answer", help=f"print {what}"
        )
    print(parser.parse_args().answer)


if __name__ == "__main__":
    main()

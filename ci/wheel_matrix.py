#!/usr/bin/env python3
"""Prints the wheels to make, as an output of a workflow.

    matrix   {"include": [{"python": "3.12", "torch": "2.13.0"}, ...]}

The default is one wheel, for the default torch.  --all is every supported torch with
every Python for which it has wheels.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
ONE_PYTHON = "3.12"


def pairs(torch: dict) -> list[dict[str, str]]:
    """All pairs of Python and torch that have wheels of torch.

    Args:
      torch: the table [torch] of upstream.toml.
    """
    found = []
    for version in torch["supported"]:
        first = PYTHONS.index(torch["first_python"].get(version, PYTHONS[0]))
        found += [{"python": python, "torch": version} for python in PYTHONS[first:]]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--all", action="store_true", help="every pair")
    options = parser.parse_args()
    torch = tomllib.loads((ROOT / "upstream.toml").read_text())["torch"]
    one = [{"python": ONE_PYTHON, "torch": torch["default"]}]
    print(f"matrix={json.dumps({'include': pairs(torch) if options.all else one})}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Prints the outputs of a workflow: the wheels to make, and the key of its caches.

    matrix   {"include": [{"python": "3.12", "torch": "2.13.0"}, ...]}
    series   a hash of the pin and the locked patches, the key of caches

The default is every Python with the default torch, and every other torch with one
Python.  --all is every torch with every Python for which it has wheels.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
# The Python for the other torch versions.
ONE_PYTHON = "3.12"


def pairs(torch: dict, everything: bool) -> list[dict[str, str]]:
    """The pairs of Python and torch to build wheels for.

    Args:
      torch: the table [torch] of upstream.toml.
      everything: whether to take all pairs.
    """
    found = []
    for version in torch["supported"]:
        first = PYTHONS.index(torch["first_python"].get(version, PYTHONS[0]))
        for python in PYTHONS[first:]:
            chosen = version == torch["default"] or python == ONE_PYTHON
            if everything or chosen:
                found.append({"python": python, "torch": version})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--all", action="store_true", help="every pair")
    options = parser.parse_args()
    config = tomllib.loads((ROOT / "upstream.toml").read_text())
    matrix = {"include": pairs(config["torch"], options.all)}
    print(f"matrix={json.dumps(matrix)}")
    locked = json.dumps([config["upstream"], config["lock"]], sort_keys=True)
    print(f"series={hashlib.sha256(locked.encode()).hexdigest()[:40]}")


if __name__ == "__main__":
    main()

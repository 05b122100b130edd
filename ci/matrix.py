#!/usr/bin/env python3
"""Prints the lists from which workflows make jobs, in the format of a step's outputs.

    groups   ["shared-memory", ...]: the groups that are pull requests to k2
    torches  ["2.14.1", ...]: every supported torch except the default
    python   the Python of the wheels of a pull request
    torch    the torch of these wheels, the default for a Mac
    wheels   {"include": [{"python": "3.12", "torch": "2.14.1", "kind": "native", ...}, ...]}

By default, the list of wheels has one pair: one Python, and the default torch for a Mac.  With
--all, the list has every supported torch with every Python for which that torch has wheels.  For
each pair, two wheels are made, one on a Mac and one on Linux.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# A job that runs this program has not installed the tool.
sys.path.append(str(ROOT / "tools"))

from k2mps.core import errors, pins  # noqa: E402
from k2mps.series import series_file  # noqa: E402

KNOWN = ROOT / "k2_mps_tests/macos_torch/known.toml"
ONE_PYTHON = "3.12"
# The ways to make a wheel: each with GitHub's runner and the value of `k2mps wheel --target`.
KINDS = (
    {"kind": "native", "runner": "macos-15", "target": "native"},
    {"kind": "cross-built", "runner": "ubuntu-24.04", "target": "macos-arm64"},
)


def pairs(versions: Sequence[str]) -> list[dict[str, str]]:
    """Returns the pairs of a torch and a Python for which that torch has wheels.

    The torch is one of `versions`.  Pythons without the GIL are left out.
    """
    pythons_since = pins.tomllib.loads(KNOWN.read_text())["facts"]["Pythons of the wheels"]["known"]
    entries = []
    for version in versions:
        since = max(
            (release for release in pythons_since if numbers(release) <= numbers(version)),
            key=numbers,
        )
        tags = [re.fullmatch(r"cp(\d)(\d+)", tag) for tag in pythons_since[since]]
        entries += [{"python": f"{tag[1]}.{tag[2]}", "torch": version} for tag in tags if tag]
    return entries


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--all", action="store_true", help="every pair")
    options = parser.parse_args()
    torch = pins.load(ROOT / "upstream.toml").torch
    _, group_of = series_file.parse((ROOT / "patches/series").read_bytes())
    default_pair = {"python": ONE_PYTHON, "torch": torch.mac}
    chosen = pairs(torch.supported) if options.all else [default_pair]
    lists = {
        "groups": [*filter(series_file.is_for_k2, dict.fromkeys(group_of.values()))],
        "torches": [version for version in torch.supported if version != torch.default],
        "wheels": {"include": [{**pair, **kind} for pair in chosen for kind in KINDS]},
    }
    for name, value in default_pair.items():
        print(f"{name}={value}")
    for name, value in lists.items():
        print(f"{name}={json.dumps(value)}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("error: interrupted")
    except (OSError, errors.K2mpsError) as error:
        sys.exit(f"error: {error}")

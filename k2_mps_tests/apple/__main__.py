"""Lists the functions of AIR that our kernels use, and where Apple wrote them.

Exit status: 0 the wheels say the same as facts.toml, 1 they differ, 3 pip cannot download a wheel.
"""

import argparse
import sys

from k2mps.build.environment import Environment
from k2mps.core import errors, project

from k2_mps_tests import ending
from k2_mps_tests.apple import facts, wheels

UNREACHABLE = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m k2_mps_tests.apple", description=__doc__)
    parser.add_argument("--write", action="store_true", help="print facts.toml anew")
    options = parser.parse_args()
    try:
        libraries = wheels.load(Environment(project.find()))
    except errors.K2mpsError as error:
        print(error.message, error.why, sep="\n")
        return UNREACHABLE
    used = facts.used_functions()
    found = facts.read(libraries, used)
    if options.write:
        print(facts.text(found), end="")
        return 0
    print("| function of AIR | type | in | kernels |\n|---|---|---|---|")
    for (name, type), files in sorted(used.items()):
        where = [package for package in libraries if name in found[package]]
        known = ", ".join(where) or facts.load()["elsewhere"].get(name, "unknown")
        print(f"| `{name}` | `{type}` | {known} | {', '.join(sorted(files))} |")
    different = facts.text(found) != facts.text(facts.load())
    if different:
        print("facts.toml differs from the wheels; --write prints it anew", file=sys.stderr)
    return int(different)


if __name__ == "__main__":
    ending.run(main)

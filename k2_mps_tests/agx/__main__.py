"""Prints how Mesa's compiler compiles k2's kernels for the GPU of an M1.

    python -m k2_mps_tests.agx --build FOLDER --archive mesa_25.0.7.orig.tar.xz

The folder, which the environment variable K2_MPS_MESA can name too, keeps Mesa's source and what is
built from it.  The archive is needed once: `apt-get source --download-only mesa` of Debian 13 gets
it.  The build needs flex, bison, ninja, meson and the Python packages mako, pyyaml and packaging;
the kernels need llvm-14 and llvm-spirv-14.

Exit status: 0 kernels.toml has the same numbers, 1 it differs, 3 a program is missing.
"""

import argparse
import subprocess
import sys

from k2_mps_tests import ending
from k2_mps_tests.agx import kernels, mesa

MISSING = 3


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m k2_mps_tests.agx",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--build", metavar="FOLDER", help=f"default: what {mesa.FOLDER} names")
    parser.add_argument("--archive", metavar="FILE", help="the source of Mesa")
    parser.add_argument("--write", action="store_true", help="write kernels.toml anew")
    options = parser.parse_args()
    folder = mesa.folder(options.build)
    if folder is None:
        parser.error(f"name a folder for the build of Mesa with --build or {mesa.FOLDER}")
    try:
        rows = kernels.measure(mesa.build(folder, options.archive), kernels.files())
    except LookupError as error:
        print(f"error: {error}", file=sys.stderr)
        return MISSING
    except subprocess.CalledProcessError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.write:
        kernels.write(rows)
    print("| kernel | " + " | ".join(kernels.Row._fields) + " |")
    print("|---|" + "--:|" * len(kernels.Row._fields))
    for kernel, row in sorted(rows.items()):
        print(f"| `{kernel}` | " + " | ".join(map(str, row)) + " |")
    if different := rows.items() ^ kernels.load().items():
        names = ", ".join(sorted({name for name, _ in different}))
        print(f"kernels.toml differs: {names}; --write writes it anew", file=sys.stderr)
    return int(bool(different))


if __name__ == "__main__":
    ending.run(main)

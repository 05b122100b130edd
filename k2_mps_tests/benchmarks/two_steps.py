"""The command line of a benchmark that is prepared here and run elsewhere."""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


def main(doc, prepare, run):
    """Parses the arguments and does one of the two steps.

    Args:
      doc: what the benchmark says of itself.
      prepare: fills a folder; takes it and the path of CUDA's libdevice.
      run: measures; takes the folder and the path of a JSON to write or None.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("prepare", help="make all that run needs")
    command.add_argument("folder", type=Path)
    command.add_argument(
        "--libdevice", type=Path, help="CUDA's libdevice.10.bc; default: from PyPI"
    )
    command = commands.add_parser("run", help="measure on this GPU")
    command.add_argument("folder", type=Path)
    command.add_argument("--output", type=Path, help="a JSON to write")
    options = parser.parse_args()
    if options.command == "run":
        run(options.folder, options.output)
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.libdevice is not None:
        prepare(options.folder, options.libdevice)
        return
    with tempfile.TemporaryDirectory() as scratch:
        prepare(options.folder, _libdevice(Path(scratch)))


def _libdevice(folder):
    wheel = download(folder, "nvidia-cuda-nvcc-cu12")
    path = folder / "libdevice.10.bc"
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/libdevice.10.bc"))
        path.write_bytes(archive.read(name))
    return path


def download(folder, package, *arguments):
    """Lets pip download one file, and returns its path."""
    before = set(folder.iterdir())
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--dest",
            str(folder),
            *arguments,
            package,
        ],
        check=True,
    )
    (new,) = set(folder.iterdir()) - before
    return new

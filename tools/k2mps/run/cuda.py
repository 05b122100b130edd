"""`k2mps cuda`: a folder that builds and tests the series with CUDA on another machine.

On an NVIDIA GPU, k2 with the series must behave as k2 without it.  The folder has the patched
source, the source that its times are compared with, moderngpu, and a script.
"""

import gzip
import shutil
import tarfile
from pathlib import Path

from k2mps.core import errors
from k2mps.core.pins import Upstream
from k2mps.core.project import Project
from k2mps.series.patch_folder import load
from k2mps.stack.checkout import Checkout
from k2mps.stack.commits import series_tip

_SCRIPTS = Path("k2_mps_tests/cuda")
# Modules that the scripts import.
_MODULES = (Path("k2_mps_tests/benchmarks/bench.py"), Path("k2_mps_tests/upstream/seed.py"))
# The patches without which k2 at the pin does not compile; they come first in the series.
_TO_BUILD = ("torch-2.13.patch", "cub-sum.patch")


def prepare(
    project: Project, upstream: Upstream, checkout: Checkout, moderngpu: Path, folder: Path
) -> None:
    """Makes the folder.

    Args:
      checkout: any checkout with the pin; it stays as it is.
      moderngpu: a folder with moderngpu's src/moderngpu.
      folder: does not exist, or is empty.
    """
    if not (moderngpu / "src/moderngpu").is_dir():
        raise errors.RequirementMissingError(
            f"{moderngpu} has no src/moderngpu",
            why="k2 includes moderngpu where it is built with CUDA",
            next_command="git clone https://github.com/moderngpu/moderngpu",
        )
    if folder.exists() and any(folder.iterdir()):
        raise errors.K2mpsError(
            f"{folder} is not empty", next_command="choose another folder, or remove it"
        )
    found = load(project.patches)
    with checkout.exclusive():
        tip = series_tip(project, checkout, upstream.pin, found)
    folder.mkdir(parents=True, exist_ok=True)
    base = upstream.pin.commit
    commits = checkout.commits(f"{base}..{tip}")
    for patch, commit in zip(found.patches, commits):
        if patch.name in _TO_BUILD:
            base = commit.id
    for name, commit in (("series", tip), ("base", base)):
        archive = checkout.git.bytes("archive", "--format=tar", commit)
        (folder / f"{name}.tgz").write_bytes(gzip.compress(archive, mtime=0))
    with tarfile.open(folder / "moderngpu.tgz", "w:gz") as archive:
        archive.add(moderngpu / "src", "src")
    for path in (project.root / _SCRIPTS).iterdir():
        if path.is_file() and path.name != "__init__.py":
            shutil.copy(path, folder)
    for path in _MODULES:
        shutil.copy(project.root / path, folder)

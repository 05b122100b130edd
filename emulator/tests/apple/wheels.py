"""The wheels for macOS, and the texts that the wheels lack."""

import functools
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

from mps_emulator.msl.air import metallib


class Unavailable(Exception):
    """A wheel or a text cannot be had here.  The exception's text is the reason."""


# The folder is deleted when the process ends.
_TEMPORARY = tempfile.TemporaryDirectory(prefix="apple-kernels-")


def _folder():
    return pathlib.Path(_TEMPORARY.name)


@functools.cache
def wheel(requirement: str) -> pathlib.Path:
    """Returns the path of a wheel for macOS.

    Raises:
      Unavailable: pip cannot download the wheel, or the given folder lacks it.
    """
    package, _, version = requirement.partition("==")
    given = os.environ.get("MPS_EMULATOR_WHEELS")
    folder = pathlib.Path(given or _folder())
    if not given:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--platform=macosx_14_0_arm64", f"--dest={folder}"]
        done = subprocess.run([*command, requirement], capture_output=True, text=True)
        if done.returncode != 0:
            raise Unavailable(f"pip cannot download {requirement}: {done.stderr.strip()[-300:]}")
    found = sorted(folder.glob(f"{package.replace('-', '_')}-{version}-*macosx*.whl"))
    if not found:
        raise Unavailable(f"{folder} has no wheel of {requirement} for macOS")
    return found[-1]


@functools.cache
def libraries(requirement: str) -> list[metallib.Metallib]:
    """Returns the Metal libraries of a wheel."""
    with zipfile.ZipFile(wheel(requirement)) as archive:
        name = next(
            n for n in archive.namelist() if n.endswith((".metallib", "libtorch_cpu.dylib"))
        )
        return metallib.find(archive.read(name))


@functools.cache
def headers(requirement: str) -> pathlib.Path:
    """Returns a folder with the headers of a wheel."""
    folder = _folder() / requirement
    with zipfile.ZipFile(wheel(requirement)) as archive:
        names = [n for n in archive.namelist() if "/include/" in n and n.endswith(".h")]
        archive.extractall(folder, names)
    return next(folder.iterdir()) / "include"


@functools.cache
def checkout(repository: str, tag: str, path: str) -> pathlib.Path:
    """Returns the path of a file of a repository.

    Raises:
      Unavailable: git cannot reach the repository.
    """
    folder = _folder() / pathlib.Path(repository).stem
    commands = []
    if not folder.exists():
        clone = ["git", "clone", "--quiet", "--depth=1", "--filter=blob:none", "--no-checkout"]
        commands.append([*clone, f"--branch={tag}", repository, folder])
    commands.append(["git", "-C", folder, "checkout", "--quiet", "HEAD", "--", path])
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            reason = done.stderr.strip().splitlines()[-1:]
            raise Unavailable(f"{path} of {repository} at {tag}: {''.join(reason)}")
    return folder / path

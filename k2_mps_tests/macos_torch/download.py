"""Downloads a release of torch for macOS from pip's index to build/torch."""

import re
import shutil
import zipfile
from pathlib import Path

from k2mps.build.environment import Environment
from k2mps.core import errors
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

from k2_mps_tests.macos_torch.facts import Release
from k2_mps_tests.macos_torch.library import Library

# For this macOS, pip also accepts wheels for older macOS.
_PLATFORM = "macosx_99_0_arm64"
# The library is the same for each Python.  Most releases have wheels for this Python.
_PYTHON = "3.13"
_LIBRARY = "torch/lib/libtorch_cpu.dylib"
_LISTED = re.compile(r"\btorch-[\w.%+]+-cp\d+-cp\d+t?-macosx_\w+\.whl\b")
_LIST = "wheels.txt"


def fetch(environment: Environment, version: str | None) -> Release:
    """Returns a release, by default the newest.  Downloads a release that build/torch lacks.

    pip uses its own configuration.  The tags of all wheels of the release come from pip's log,
    which names all wheels of the index.
    """
    root = environment.project.build_root / "torch"
    folder = root / version if version else None
    if folder is None or not folder.exists():
        draft = root / "draft"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        wanted = Requirement(f"torch=={version}" if version else "torch")
        log = draft / "log"
        wheel = environment.download(wanted, draft, _PLATFORM, _PYTHON, ["--log", str(log)])
        found = str(parse_wheel_filename(wheel.name)[1])
        listed = {name for name in _LISTED.findall(log.read_text(encoding="utf-8"))}
        ours = sorted(name for name in listed if name.split("-")[1] == found)
        (draft / _LIST).write_text("\n".join(ours), encoding="utf-8")
        log.unlink()
        folder = root / found
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    return read(folder)


def read(folder: Path) -> Release:
    """Reads a release from a folder of build/torch.

    Raises:
      CheckFailedError: the wheel has no libtorch_cpu.dylib.
    """
    wheel = next(folder.glob("*.whl"))
    try:
        with zipfile.ZipFile(wheel) as archive:
            content = archive.read(_LIBRARY)
    except (KeyError, zipfile.BadZipFile) as error:
        raise errors.CheckFailedError(
            f"{wheel.name} has no {_LIBRARY}",
            why=str(error),
            next_command=f"python -m zipfile -l {wheel}",
        ) from None
    names = (folder / _LIST).read_text(encoding="utf-8").split()
    tags = [tag for name in names for tag in parse_wheel_filename(name)[3]]
    return Release(folder.name, Library(content, _LIBRARY), tags)

"""Makes a folder whose program replays a recording on an NVIDIA GPU."""

import json
import os
import shutil
import zlib
from pathlib import Path

from ..msl import nvptx
from ..msl.errors import ToolError
from ..msl.pipeline import Program
from .recording import Recording

# A prepared folder has copies of these files, in a folder of its own.
_PACKAGE = "replay_on_gpu"
_FILES = ("cuda.py", "driver.py", "judge.py", "player.py", "recording.py", "replaying.py")
_PROGRAM = f"""#!/usr/bin/env python3
from pathlib import Path

from {_PACKAGE} import cuda

cuda.main(Path(__file__).resolve().parent)
"""
_LIBDEVICE = "nvvm/libdevice/libdevice.10.bc"


def find_libdevice() -> Path | None:
    """Returns the path of CUDA's libdevice.10.bc, or None if it is not found.

    The function looks in $CUDA_HOME, /usr/local/cuda*, and /usr/lib/cuda.
    """
    homes = [os.environ.get("CUDA_HOME"), "/usr/local/cuda", "/usr/lib/cuda"]
    homes += sorted(map(str, Path("/usr/local").glob("cuda-*")), reverse=True)
    for home in filter(None, homes):
        path = Path(home) / _LIBDEVICE
        if path.exists():
            return path
    return None


def program_of(recording: Recording, number: int) -> Program:
    """Returns program `number` of a recording."""
    program = recording.programs[number]
    path = str(recording.folder / program["file"])
    return Program(path, path, fast_math=program["fast_math"])


def describe(recording: Recording) -> list[dict[str, dict]]:
    """Returns {name of a kernel: its nvptx.description()} for each program of a recording."""
    return [
        _by_name(program_of(recording, number).analyse()[1])
        for number in range(len(recording.programs))
    ]


def _by_name(kernels):
    return {kernel.name: nvptx.description(kernel) for kernel in kernels}


def prepare(
    recording: Recording,
    folder: Path,
    gpu: str,
    libdevice: Path | None,
    whole_simdgroups: bool,
    largest: float | None = None,
) -> None:
    """Makes a folder with a recording, its compiled kernels, and a program that replays it.

    Args:
      folder: a new or empty folder.
      gpu: the oldest architecture on which the PTX runs, like sm_90.
      libdevice: the path of CUDA's libdevice.10.bc.  `libdevice` may be None if no kernel calls a
        function of this library.
      whole_simdgroups: the argument of Program.build_ptx().
      largest: None to write the whole recording.  If `largest` is a number, the folder has no
        results and no inputs of more than `largest` bytes.  Then the folder's replay.py measures
        times and compares nothing.
    Raises:
      Refused, ToolError: a program does not compile, or it needs libdevice.10.bc and `libdevice` is
        None.
      FileExistsError: the folder is not empty.
    """
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty")
    (folder / "programs").mkdir(parents=True, exist_ok=True)
    programs = []
    for number in range(len(recording.programs)):
        ptx = f"programs/{number}.ptx"
        kernels = program_of(recording, number).build_ptx(
            str(folder / ptx), gpu, libdevice and str(libdevice), whole_simdgroups
        )
        if libdevice is None and "__nv_" in (folder / ptx).read_text():
            raise ToolError(
                "{} needs CUDA's mathematical functions, but libdevice.10.bc is not found. "
                "The wheel nvidia-cuda-nvcc-cu12 and CUDA's toolkit have this file: pass its "
                "path with --libdevice".format(recording.programs[number]["file"])
            )
        programs.append({"ptx": ptx, "kernels": _by_name(kernels)})
    (folder / "kernels.json").write_text(json.dumps(programs))
    if largest is not None:
        _write_inputs(recording, folder, largest)
    else:
        shutil.copyfile(recording.folder / "manifest.json", folder / "manifest.json")
        (folder / "contents.packed").write_bytes(zlib.compress(recording.contents))
    package = folder / _PACKAGE
    package.mkdir()
    for name in _FILES:
        shutil.copyfile(Path(__file__).with_name(name), package / name)
    (folder / "replay.py").write_text(_PROGRAM)


def _write_inputs(recording, folder, largest):
    """Writes a recording's manifest and contents, but leaves out results and large inputs."""
    manifest = json.loads((recording.folder / "manifest.json").read_text())
    kept, end = [], 0
    for command in manifest["commands"]:
        command.pop("after", None)
        for piece in command.get("before", ()):
            _, _, size, begin = piece
            if size > largest:
                piece[3] = None
                continue
            piece[3] = end
            kept.append(recording.contents[begin : begin + size])
            end += size
    manifest["times_only"] = True
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "contents.packed").write_bytes(zlib.compress(b"".join(map(bytes, kept))))

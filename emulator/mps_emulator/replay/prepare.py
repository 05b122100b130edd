"""Makes a folder from which a recording is replayed on an NVIDIA GPU."""

import json
import os
import shutil
import zlib
from pathlib import Path

from ..msl import nvptx
from ..msl.errors import ToolError
from ..msl.pipeline import Program
from . import cuda, driver, player

_LIBDEVICE = "nvvm/libdevice/libdevice.10.bc"


def find_libdevice():
    """The path of CUDA's libdevice.10.bc, None where no usual place has it."""
    homes = [os.environ.get("CUDA_HOME"), "/usr/local/cuda", "/usr/lib/cuda"]
    homes += sorted(map(str, Path("/usr/local").glob("cuda-*")), reverse=True)
    for home in filter(None, homes):
        path = Path(home) / _LIBDEVICE
        if path.exists():
            return path
    return None


def program_of(recording, number):
    """The msl.pipeline.Program of a recording's program."""
    program = recording.programs[number]
    path = str(recording.folder / program["file"])
    return Program(path, path, fast_math=program["fast_math"])


def describe(recording):
    """For each program the descriptions of its kernels, {name: nvptx.description()}."""
    return [
        _by_name(program_of(recording, number).analyse()[1])
        for number in range(len(recording.programs))
    ]


def _by_name(kernels):
    return {kernel.name: nvptx.description(kernel) for kernel in kernels}


def prepare(recording, folder, gpu, libdevice, whole_simdgroups, largest=None):
    """Writes what replays a recording on an NVIDIA GPU into a folder, which is empty or new.

    Args:
      gpu: the oldest architecture that the PTX runs on, like sm_90.
      libdevice: the path of CUDA's libdevice.10.bc; None where no program needs it.
      whole_simdgroups: the argument of Program.build_ptx().
      largest: None for the whole recording.  A number leaves out all results, and the inputs
        of more bytes; the folder's replay.py then measures times and compares nothing.
    Raises:
      Refused, ToolError: a program does not compile.
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
                "{} needs CUDA's mathematical functions, and libdevice.10.bc "
                "is not found; give it with --libdevice: the wheel "
                "nvidia-cuda-nvcc-cu12 and CUDA's toolkit have it".format(
                    recording.programs[number]["file"]
                )
            )
        programs.append({"ptx": ptx, "kernels": _by_name(kernels)})
    (folder / "kernels.json").write_text(json.dumps(programs))
    if largest is not None:
        _write_inputs(recording, folder, largest)
    else:
        shutil.copyfile(recording.folder / "manifest.json", folder / "manifest.json")
        (folder / "contents.packed").write_bytes(zlib.compress(recording.contents))
    for module, name in ((cuda, "replay"), (driver, "driver"), (player, "player")):
        shutil.copyfile(module.__file__, folder / f"{name}.py")


def _write_inputs(recording, folder, largest):
    """Writes the manifest and the contents without results and without large inputs."""
    manifest = json.loads((recording.folder / "manifest.json").read_text())
    kept, end = [], 0
    for command in manifest["commands"]:
        command.pop("after", None)
        for piece in command.get("before", ()):
            _, _, size, place = piece
            if size > largest:
                piece[3] = None
                continue
            piece[3] = end
            kept.append(recording.contents[place : place + size])
            end += size
    manifest["times_only"] = True
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "contents.packed").write_bytes(zlib.compress(b"".join(map(bytes, kept))))

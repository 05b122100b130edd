"""Builds agx_kernels: Mesa's compiler for Apple's G13, for kernels in SPIR-V.

Debian 13 has the source of Mesa 25.0 as the package `mesa`.  Only the compiler is built, in a
folder outside of the repository.
"""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

from k2_mps_tests.kernels import sources

FOLDER = "K2_MPS_MESA"  # the environment variable that names the folder of the build
_HERE = Path(__file__).parent
# The compiler is a part of Mesa's driver.  The driver's other parts need programs that are not
# needed here: src/asahi/meson.build is replaced by a file that builds the compiler alone.
_COPIED = ("agx_kernels.c", "meson.build")
_OFF = "egl gbm gles1 gles2 glx llvm libunwind shader-cache valgrind xmlconfig zstd expat".split()
_OPTIONS = (
    "-Dtools=asahi",
    "-Dgallium-drivers=",
    "-Dvulkan-drivers=",
    "-Dplatforms=",
    *(f"-D{name}=disabled" for name in _OFF),
    "-Dopengl=false",
    # With assertions, a program that the compiler cannot compile is an error.
    "--buildtype=release",
    "-Doptimization=1",
    "-Db_ndebug=false",
)
# The functions of Mesa's driver that lower textures, which kernels lack.
_TEXTURES = (
    "txs",
    "texture_levels",
    "texture_samples",
    "buffer_texture_offset",
    "texture_is_rgb32",
    "texture_load_rgb32",
    "lower_txf_robustness",
    "buffer_texel_address",
    "image_texel_address",
    "buffer_image_offset",
)


def folder(given=None):
    """Returns the Path of the folder of the build; None if nothing names the folder.

    Args:
      given: the folder; without it, the environment variable FOLDER names the folder.
    """
    named = given or os.environ.get(FOLDER)
    return Path(named).absolute() if named else None


def program(at):
    """Returns the Path of the program in a folder of a build; the file may not exist."""
    return at / "build/src/asahi/agx_kernels"


def build(at, archive=None):
    """Builds the program if it is missing or older than its source; returns its Path.

    Args:
      at: the folder of the build.
      archive: the path of mesa_*.orig.tar.xz; needed if the folder has no source.
    Raises:
      LookupError: the source, meson, flex or bison is missing.
      subprocess.CalledProcessError: a command of the build failed, and printed why.
    """
    source = at / "mesa"
    if not source.is_dir():
        if archive is None:
            raise LookupError(
                f"{at} has no source of Mesa: get it with `apt-get source --download-only mesa` of "
                "Debian 13, and name mesa_*.orig.tar.xz with --archive"
            )
        _extract(Path(archive), at, source)
    for name in _COPIED:
        _update(source / "src/asahi" / name, (_HERE / name).read_text())
    lines = [f"#define libagx_{name}(...) NULL\n" for name in _TEXTURES]
    _update(source / "src/asahi/stub/libagx.h", "".join(lines))
    if not (at / "build/build.ninja").exists():
        for name in ("flex", "bison"):
            sources.program(name, install=f"apt-get install {name}")
        meson = sources.program("meson", install="pip install meson mako pyyaml packaging")
        _run(meson, "setup", *_OPTIONS, at / "build", source)
    ninja = sources.program("ninja", install="apt-get install ninja-build")
    _run(ninja, "-C", at / "build", "src/asahi/agx_kernels")
    return program(at)


def _update(path, content):
    """Writes a file; an unchanged file keeps its time, so that meson builds nothing again."""
    if not path.exists() or path.read_text() != content:
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)


def _run(*command):
    # What the table's reader wants is on stdout.
    subprocess.run(command, check=True, stdout=sys.stderr)


def _extract(archive, at, source):
    """Extracts the source of Mesa; `source` appears when it is complete."""
    at.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as content:
        [top] = {name.partition("/")[0] for name in content.getnames()}
        content.extractall(at, filter="data")
    (at / top).rename(source)

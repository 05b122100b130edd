"""Makes small libraries for macOS with clang and lld."""

import subprocess
from pathlib import Path

from k2mps.build import doctor
from k2mps.core.progress import Reporter

TARGET = "arm64-apple-macos14.0"
_CLANG = f"clang-{doctor.CLANG}"


def require_linker() -> None:
    """Installs clang and lld if they are missing.

    Raises:
      RequirementMissingError: the installation fails or needs a password.
    """
    needed = (_CLANG, f"lld-{doctor.CLANG}")
    doctor.provide([one for one in doctor.cross_checks() if one.package in needed], Reporter())


def link(
    code: str,
    path: Path,
    *options: object,
    kind: str = "-dynamiclib",
    target: str = TARGET,
    name: str | None = None,
    suffix: str = ".c",
) -> Path:
    """Compiles and links code, by default C, without system libraries; returns `path`.

    Args:
      options: further arguments: libraries and linker options.
      kind: -dynamiclib or -bundle.
      name: the install name of a dynamic library; default: @rpath/ and its file name.
      suffix: the source file's suffix, which tells clang the language.
    Raises:
      subprocess.CalledProcessError: the compiler's or linker's message is in `stderr`.
    """
    source = path.with_suffix(suffix)
    source.write_text(code)
    named = [f"-Wl,-install_name,{name or f'@rpath/{path.name}'}"] if kind == "-dynamiclib" else []
    command = [_CLANG, f"--target={target}", "-w", "-O1", "-ffreestanding", "-nostdlib"]
    command += ["-fuse-ld=lld", "-mlinker-version=820", kind, source, "-o", path]
    subprocess.run([*command, *options, *named], check=True, capture_output=True, text=True)
    return path

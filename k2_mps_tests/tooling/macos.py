"""Small libraries for macOS, which clang and lld make here."""

from __future__ import annotations

import subprocess
from pathlib import Path

from k2mps.build import doctor, toolchain
from k2mps.core.progress import Reporter

TARGET = "arm64-apple-macos14.0"
_CLANG = f"clang-{doctor.CLANG}"


def require_linker() -> None:
    """Installs clang and lld where they are missing and that needs no password."""
    needed = (_CLANG, f"lld-{doctor.CLANG}")
    doctor.provide([one for one in toolchain.checks() if one.package in needed], Reporter())


def link(
    code: str,
    path: Path,
    *options: object,
    kind: str = "-dynamiclib",
    target: str = TARGET,
    name: str | None = None,
) -> Path:
    """Compiles and links C code, without any library of the system's.

    Args:
      options: further arguments: libraries, and options for the linker.
      kind: -dynamiclib or -bundle.
      name: the install name of a dynamic library; default @rpath/ and its file's.
    Raises:
      subprocess.CalledProcessError: the compiler's or linker's message is in `stderr`.
    """
    source = path.with_suffix(".c")
    source.write_text(code)
    named = [f"-Wl,-install_name,{name or f'@rpath/{path.name}'}"] if kind == "-dynamiclib" else []
    command = [_CLANG, f"--target={target}", "-w", "-O1", "-ffreestanding", "-nostdlib"]
    command += ["-fuse-ld=lld", "-mlinker-version=820", kind, source, "-o", path]
    subprocess.run([*command, *options, *named], check=True, capture_output=True, text=True)
    return path

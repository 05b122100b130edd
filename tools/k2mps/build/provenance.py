"""The origin of a build of k2: its patches and tools, and whether it was edited.

A build tree holds this as lib/k2mps.json, beside the library `_k2`, and a
wheel in its .dist-info; `k2.mps.build_info()` reads either.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from k2mps.build.doctor import Device
from k2mps.build.environment import Environment
from k2mps.build.toolchain import LABEL, Toolchain
from k2mps.core.git import Git
from k2mps.core.pins import Lock, sha256
from k2mps.core.project import Project
from k2mps.stack.checkout import Checkout

FILE = "k2mps.json"
NATIVE = "native"

_KERNELS = "k2/csrc/mps/kernels/"


def of_build(
    environment: Environment,
    checkout: Checkout,
    directory: Path,
    *,
    device: str,
    patched_tree: str | None,
    torch: str,
    toolchain: Toolchain | None = None,
) -> dict[str, object]:
    """The origin of a build; it does not depend on where or when it was made.

    Args:
      device: what it is for, "emulated" included.
      patched_tree: what the locked patches gave; None where the checkout is something else.
      toolchain: what it was built with, if for another system.
    """
    upstream = environment.upstream
    kernels = {}
    if device != Device.CPU.value:
        for path in sorted((checkout.directory / _KERNELS).glob("*.metal")):
            kernels[_KERNELS + path.name] = sha256(path.read_bytes())
    headers = {"pybind11": environment.version_of("pybind11") or ""}
    if toolchain:
        headers["libc++"] = toolchain.parts["libc++"]
    dirty = edits(environment.project)
    return {
        "built": LABEL if toolchain else NATIVE,
        "compiler": _compiler(directory),
        "device": device,
        # None where it is not known.
        "dirty": patched_tree is None or (None if dirty is None else bool(dirty)),
        "headers": headers,
        "kernels": kernels,
        "patched_tree": patched_tree,
        "series": patched_tree and series_hash(upstream.lock),
        "torch": torch,
        "upstream": {"url": upstream.pin.url, "commit": upstream.pin.commit},
    }


def as_bytes(origin: Mapping[str, object]) -> bytes:
    return (json.dumps(origin, indent=2, sort_keys=True) + "\n").encode()


def series_hash(lock: Lock) -> str:
    """One SHA-256 for all patches and new files, by the lock's own ones."""
    facts = [lock.series, dict(lock.patches), dict(lock.files)]
    return sha256(json.dumps(facts, sort_keys=True).encode())


def edits(project: Project) -> list[str] | None:
    """The files of the clone of k2-mps that differ from its commit, or that
    git does not know; None where it is no git clone."""
    if not (project.root / ".git").exists():
        return None
    listing = Git(project.root).text(
        "status", "--porcelain", "--untracked-files=normal", work_tree=True
    )
    return [line[3:] for line in listing.splitlines()]


def _compiler(directory: Path) -> str:
    """The compiler of a build tree, as CMake identified it."""
    for path in directory.glob("CMakeFiles/*/CMakeCXXCompiler.cmake"):
        text = path.read_text(encoding="utf-8")
        facts = [
            re.search(rf'set\(CMAKE_CXX_COMPILER_{key} "([^"]*)"\)', text)
            for key in ("ID", "VERSION")
        ]
        return " ".join(match[1] for match in facts if match)
    return "unknown"

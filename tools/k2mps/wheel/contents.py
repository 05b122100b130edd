"""What a wheel of the patched k2 is: its name, its files, what it says.

A wheel holds what upstream's own would: `_k2`, its libraries in k2/lib, the
Python package.  It is made for the Python of .venv, from a checkout whose
files are the tree that upstream.toml locks, and the same input gives the same
wheel to the byte: names, times, modes and order of its files depend on nothing
else.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import enum
import hashlib
import os
import re
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from pathlib import Path

from k2mps.build import provenance, toolchain
from k2mps.build.builder import Built
from k2mps.build.doctor import Device
from k2mps.core.pins import Upstream
from k2mps.stack.checkout import Checkout

_PACKAGE = "k2/python/"
_SUMMARY = "FSA/FST algorithms for speech recognition, with autograd"


class Target(enum.Enum):
    """The system that a wheel is for."""

    NATIVE = "native"
    MACOS_ARM64 = "macos-arm64"

    @property
    def crossed(self) -> bool:
        """Whether it is another one than this machine's."""
        return self is Target.MACOS_ARM64 and sys.platform != "darwin"

    @property
    def device(self) -> Device:
        """What a wheel for it runs on besides the CPU."""
        on_mac = self is Target.MACOS_ARM64 or sys.platform == "darwin"
        return Device.MPS if on_mac else Device.CPU

    @property
    def platform(self) -> str:
        """The platform tag of a wheel for it."""
        if self.device is Device.MPS:
            return toolchain.PLATFORM
        return re.sub(r"[-.]", "_", sysconfig.get_platform())


@dataclasses.dataclass(frozen=True)
class Description:
    """What a wheel says of itself.

    Attributes:
      version: k2's version, as wheels write it.
      tag: for which Python and system it is.
      torch: the torch version that it needs.
      origin: where it comes from, see provenance.py.
      time: of all its files, in seconds since 1970.
    """

    version: str
    tag: str
    torch: str
    origin: Mapping[str, object]
    time: int

    @property
    def file_name(self) -> str:
        return f"k2-{self.version}-{self.tag}.whl"

    @property
    def info(self) -> str:
        """The directory of its metadata."""
        return f"k2-{self.version}.dist-info"


def describe(
    upstream: Upstream, checkout: Checkout, built: Built, target: Target, python_tag: str
) -> Description:
    """What a wheel of this build says of itself."""
    pinned = int(checkout.git.text("show", "-s", "--format=%ct", upstream.pin.commit))
    day = datetime.datetime.fromtimestamp(pinned, datetime.timezone.utc)
    torch = str(built.origin["torch"])
    version = f"{upstream.pin.version}.dev{day:%Y%m%d}+{target.device.value}.torch{torch}"
    if built.origin["dirty"]:
        version += ".dirty"
    return Description(
        version=version,
        tag=f"{python_tag}-{python_tag}-{target.platform}",
        torch=torch,
        origin={**built.origin, "version": version},
        time=int(os.environ.get("SOURCE_DATE_EPOCH", pinned)),
    )


def contents(checkout: Checkout, built: Built, description: Description) -> dict[str, bytes]:
    """The files of a wheel but for its RECORD, by path."""
    files = {}
    for name in checkout.git.text("ls-files", _PACKAGE + "k2").splitlines():
        if name.endswith(".py"):
            content = (checkout.directory / name).read_bytes()
            files[name.removeprefix(_PACKAGE)] = content
    # What CMake and upstream's setup.py add.
    name = "k2/torch_version.py"
    files[name] = (checkout.directory / _PACKAGE / name).read_bytes()
    files["k2/__init__.py"] += f"__dev_version__ = '{description.version}'\n".encode()
    for path in sorted((built.directory / "lib").iterdir()):
        if path.name.startswith("_k2."):
            files[path.name] = path.read_bytes()
        elif path.name.startswith("lib"):
            files[f"k2/lib/{path.name}"] = path.read_bytes()
    license_file = checkout.directory / "LICENSE"
    if license_file.exists():
        files[f"{description.info}/LICENSE"] = license_file.read_bytes()
    files.update(metadata_files(description))
    return files


def metadata_files(description: Description) -> dict[str, bytes]:
    """What a wheel says of itself, as files by path."""
    texts = {
        "METADATA": _metadata(description),
        "WHEEL": "Wheel-Version: 1.0\nGenerator: k2mps\n"
        f"Root-Is-Purelib: false\nTag: {description.tag}\n",
        "top_level.txt": "_k2\nk2\n",
    }
    files = {name: text.encode() for name, text in texts.items()}
    files[provenance.FILE] = provenance.as_bytes(description.origin)
    return {f"{description.info}/{name}": content for name, content in files.items()}


def pack(path: Path, description: Description, files: Mapping[str, bytes]) -> None:
    """Writes a wheel."""
    record = f"{description.info}/RECORD"
    lines = [
        f"{name},{record_hash(content)},{len(content)}" for name, content in sorted(files.items())
    ]
    lines.append(f"{record},,\n")
    # A zip file knows no time before 1980.
    time = datetime.datetime.fromtimestamp(
        max(description.time, 315532800), datetime.timezone.utc
    ).timetuple()[:6]
    ordered = [*sorted(files.items()), (record, "\n".join(lines).encode())]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in ordered:
            entry = zipfile.ZipInfo(name, time)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, whose modes follow
            binary = name.endswith((".so", ".dylib"))
            entry.external_attr = (0o100755 if binary else 0o100644) << 16
            archive.writestr(entry, content)


def record_hash(content: bytes) -> str:
    """The hash of a file as RECORD gives it."""
    digest = hashlib.sha256(content).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _metadata(description: Description) -> str:
    origin = description.origin
    return "\n".join(
        [
            "Metadata-Version: 2.1",
            "Name: k2",
            f"Version: {description.version}",
            f"Summary: {_SUMMARY}",
            "Home-page: https://github.com/k2-fsa/k2",
            "License: Apache-2.0",
            "License-File: LICENSE",
            "Requires-Python: >=3.10",
            f"Requires-Dist: torch=={description.torch}",
            "Requires-Dist: graphviz",
            "Description-Content-Type: text/plain",
            "",
            "k2 with the patches of k2-mps, which add the device mps of torch.",
            "",
            f"built: {origin['built']}",
            f"patched tree: {origin['patched_tree']}",
            f"compiler: {origin['compiler']}",
            "",
        ]
    )

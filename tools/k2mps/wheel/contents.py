"""A wheel of the patched k2: its name, its files, its metadata.

A wheel has the files of upstream's own: `_k2`, its libraries in k2/lib, the Python package.  The
names, times, modes and order of the files depend on the input alone: the same input gives the same
wheel to the byte.
"""

import base64
import dataclasses
import datetime
import hashlib
import os
import re
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
_METADATA = """\
Metadata-Version: 2.4
Name: k2
Version: {version}
Summary: FSA/FST algorithms for speech recognition, with autograd
Home-page: https://github.com/k2-fsa/k2
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.10
Requires-Dist: torch=={torch}
Requires-Dist: graphviz
Description-Content-Type: text/plain

k2 with the patches of k2-mps, which add the device mps of torch.

built: {built}
patched tree: {patched_tree}
compiler: {compiler}
"""
_WHEEL = """\
Wheel-Version: 1.0
Generator: k2mps
Root-Is-Purelib: false
Tag: {tag}
"""


@dataclasses.dataclass(frozen=True)
class Description:
    """The metadata of a wheel."""

    version: str  # k2's version, as wheels write it
    tag: str  # the Python and the system of the wheel
    origin: Mapping[str, object]  # see provenance.py; with the version
    time: int  # the time of all files, in seconds since 1970

    @property
    def file_name(self) -> str:
        return f"k2-{self.version}-{self.tag}.whl"

    @property
    def info(self) -> str:
        """The directory of its metadata."""
        return f"k2-{self.version}.dist-info"


def describe(upstream: Upstream, checkout: Checkout, built: Built, device: Device) -> Description:
    """The metadata of a wheel of this build for a device."""
    pinned = int(checkout.git.text("show", "-s", "--format=%ct", upstream.pin.commit))
    day = datetime.datetime.fromtimestamp(pinned, datetime.timezone.utc)
    # k2's own wheels are 1.2.dev20250714+cpu.torch2.13.0.  One with mps is later than those of the
    # same release, so that an upgrade keeps it.  `k2utils install` looks for the word "cpu".
    kind, local = ("post", "mps.cpu") if device is Device.MPS else ("dev", "cpu")
    version = f"{upstream.pin.version}.{kind}{day:%Y%m%d}+{local}.torch{built.origin['torch']}"
    if built.origin["dirty"]:
        version += ".dirty"
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    if device is Device.MPS:
        platform = toolchain.platform(str(built.origin["torch"]))
    return Description(
        version=version,
        tag=f"{built.python_tag}-{built.python_tag}-{platform}",
        origin={**built.origin, "version": version},
        time=int(os.environ.get("SOURCE_DATE_EPOCH", pinned)),
    )


def contents(checkout: Checkout, built: Built, description: Description) -> dict[str, bytes]:
    """The files of a wheel without its RECORD, by path."""
    root = checkout.directory
    names = checkout.git.text("ls-files", _PACKAGE + "k2").splitlines()
    files = {
        name.removeprefix(_PACKAGE): (root / name).read_bytes()
        for name in names
        if name.endswith(".py")
    }
    # CMake writes this file; upstream's setup.py appends the version to __init__.py.
    name = "k2/torch_version.py"
    files[name] = (root / _PACKAGE / name).read_bytes()
    files["k2/__init__.py"] += f"__dev_version__ = '{description.version}'\n".encode()
    for path in sorted((built.directory / "lib").iterdir()):
        if path.name.startswith("_k2."):
            files[path.name] = path.read_bytes()
        elif path.name.startswith("lib"):
            files[f"k2/lib/{path.name}"] = path.read_bytes()
    if (root / "LICENSE").exists():
        files[f"{description.info}/LICENSE"] = (root / "LICENSE").read_bytes()
    return {**files, **metadata_files(description)}


def metadata_files(description: Description) -> dict[str, bytes]:
    facts = {**vars(description), **description.origin}
    files = {
        "METADATA": _METADATA.format_map(facts).encode(),
        "WHEEL": _WHEEL.format_map(facts).encode(),
        "top_level.txt": b"_k2\nk2\n",
        provenance.FILE: provenance.as_bytes(description.origin),
    }
    return {f"{description.info}/{name}": content for name, content in files.items()}


def pack(path: Path, description: Description, files: Mapping[str, bytes]) -> None:
    """Writes a wheel with its RECORD.

    The package `wheel` could write both, but would give RECORD the present time, unless an
    environment variable names another: the same input must give the same bytes.
    """
    record, ordered = f"{description.info}/RECORD", sorted(files.items())
    lines = [f"{name},{record_hash(content)},{len(content)}\n" for name, content in ordered]
    ordered.append((record, f"{''.join(lines)}{record},,\n".encode()))
    # A zip file knows no time before 1980.
    seconds = max(description.time, 315532800)
    time = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).timetuple()[:6]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in ordered:
            entry = zipfile.ZipInfo(name, time)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix: the next attribute has Unix's modes
            binary = name.endswith((".so", ".dylib"))
            entry.external_attr = (0o100755 if binary else 0o100644) << 16
            archive.writestr(entry, content)


def record_hash(content: bytes) -> str:
    """The hash of a file as RECORD gives it."""
    digest = hashlib.sha256(content).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")

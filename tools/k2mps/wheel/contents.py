"""Makes the name, the files and the metadata of a wheel of the patched k2.

A wheel has the same files as upstream's own wheels: `_k2`, its libraries in k2/lib, and the Python
package.  It also has the package k2_mac of this repository.  The names, times, modes and order of
the files depend only on the input.  So two wheels of the same input are bit for bit identical.
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
from k2mps.build.build_tree import TORCH_VERSION
from k2mps.build.builder import RUN_HOOK
from k2mps.build.doctor import Device
from k2mps.build.request import Built
from k2mps.core.pins import Upstream
from k2mps.core.project import Project
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

    version: str  # the wheel's version, such as "1.24.4.post20250714+mps.cpu.torch2.13.0"
    tag: str  # the wheel's tag, such as "cp311-cp311-macosx_14_0_arm64"
    origin: Mapping[str, object]  # the build's origin, see provenance.py, and the version
    time: int  # the time of all files, in seconds since 1970

    @property
    def file_name(self) -> str:
        return f"k2-{self.version}-{self.tag}.whl"

    @property
    def info(self) -> str:
        """The name of the wheel's folder for metadata."""
        return f"k2-{self.version}.dist-info"


def describe(upstream: Upstream, checkout: Checkout, built: Built, device: Device) -> Description:
    """Returns the description of a wheel of the build `built`, which is for `device`."""
    pinned = int(checkout.git.text("show", "-s", "--format=%ct", upstream.pin.commit))
    day = datetime.datetime.fromtimestamp(pinned, datetime.timezone.utc)
    # The versions of k2's own wheels are like 1.2.dev20250714+cpu.torch2.13.0.  A wheel with mps
    # has a later version than k2's own wheels of the same release, so that `pip install --upgrade`
    # keeps the wheel with mps.  `k2utils install` looks for the word "cpu".
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


def k2_mac_files(project: Project) -> dict[str, bytes]:
    """Returns the files of the package k2_mac, and its .pth file, by path in a wheel."""
    folder = project.root / "k2_mac"
    modules = {f"k2_mac/{path.name}": path.read_bytes() for path in sorted(folder.glob("*.py"))}
    # Python reads .pth files in site-packages only.
    return {RUN_HOOK: (folder / RUN_HOOK).read_bytes(), **modules}


def contents(
    project: Project, checkout: Checkout, built: Built, description: Description
) -> dict[str, bytes]:
    """Returns the files of a wheel except RECORD, by path in the wheel."""
    root = checkout.directory
    names = checkout.git.text("ls-files", _PACKAGE + "k2").splitlines()
    files = {
        name.removeprefix(_PACKAGE): (root / name).read_bytes()
        for name in names
        if name.endswith(".py")
    }
    # CMake has written torch_version.py, which git does not track.  This function appends the
    # wheel's version to __init__.py, as upstream's setup.py does.
    files[f"k2/{TORCH_VERSION}"] = (built.directory / TORCH_VERSION).read_bytes()
    files["k2/__init__.py"] += f"__dev_version__ = '{description.version}'\n".encode()
    for path in sorted((built.directory / "lib").iterdir()):
        if path.name.startswith("_k2."):
            files[path.name] = path.read_bytes()
        elif path.name.startswith("lib"):
            files[f"k2/lib/{path.name}"] = path.read_bytes()
    if (root / "LICENSE").exists():
        files[f"{description.info}/LICENSE"] = (root / "LICENSE").read_bytes()
    return {**files, **k2_mac_files(project), **metadata_files(description)}


def metadata_files(description: Description) -> dict[str, bytes]:
    """Returns the files of .dist-info except RECORD, by path in the wheel."""
    fields = {**vars(description), **description.origin}
    files = {
        "METADATA": _METADATA.format_map(fields).encode(),
        "WHEEL": _WHEEL.format_map(fields).encode(),
        "top_level.txt": b"_k2\nk2\nk2_mac\n",
        provenance.FILE: provenance.as_bytes(description.origin),
    }
    return {f"{description.info}/{name}": content for name, content in files.items()}


def pack(path: Path, description: Description, files: Mapping[str, bytes]) -> None:
    """Writes a wheel with its RECORD.

    The package `wheel` is not used, because it gives RECORD the current time, so that the bytes
    would differ from run to run.
    """
    ordered = sorted(files.items())
    record = f"{description.info}/RECORD"
    lines = [f"{name},{record_hash(content)},{len(content)}\n" for name, content in ordered]
    lines.append(f"{record},,\n")
    ordered.append((record, "".join(lines).encode()))
    # Times in a zip file begin with 1980.
    seconds = max(description.time, 315532800)
    moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    time = moment.timetuple()[:6]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in ordered:
            entry = zipfile.ZipInfo(name, time)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, so external_attr has the file's mode
            binary = name.endswith((".so", ".dylib"))
            entry.external_attr = (0o100755 if binary else 0o100644) << 16
            archive.writestr(entry, content)


def record_hash(content: bytes) -> str:
    """Returns the hash of a file in the form of RECORD: "sha256=" and base64."""
    digest = hashlib.sha256(content).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")

"""The contents of a wheel, as a CycloneDX bill of materials.

The bill depends on the wheel alone.
"""

import datetime
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

from cyclonedx.model import (
    ExternalReference,
    ExternalReferenceType,
    HashAlgorithm,
    HashType,
    Property,
    XsUri,
)
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Commit, Component, ComponentType, Pedigree
from cyclonedx.model.license import LicenseExpression
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from k2mps import __version__
from k2mps.core.pins import sha256
from k2mps.wheel.archive import WheelFile, refusal

_LICENSE = LicenseExpression("Apache-2.0")
_TOLD = ("built", "compiler", "device", "dirty", "patched_tree", "series", "torch")


def write(path: Path) -> Path:
    """Writes the bill of a wheel of k2-mps beside it; returns the bill's path."""
    bill = path.with_name(f"{path.name}.cdx.json")
    bill.write_text(text(path), encoding="utf-8")
    return bill


def text(path: Path) -> str:
    """The bill of a wheel: CycloneDX 1.6, as JSON."""
    wheel = WheelFile(path)
    digest = sha256(path.read_bytes())
    # The bill's time is that of the newest file.
    newest = max(entry.date_time for entry in wheel.entries.values())
    try:
        time = datetime.datetime(*newest, tzinfo=datetime.timezone.utc)
    except ValueError as error:
        raise refusal(path, f"the time of a file: {error}") from None
    subject, needed = _subject(wheel, digest), list(_packages(wheel))
    tool = Component(name="k2mps", version=__version__, type=ComponentType.APPLICATION)
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"sha256:{digest}"),
        metadata=BomMetaData(
            component=subject, timestamp=time, tools=ToolRepository(components=[tool])
        ),
        components=[*needed, *_files(wheel)],
    )
    bom.register_dependency(subject, needed)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def _subject(wheel: WheelFile, digest: str) -> Component:
    origin, name = wheel.origin, wheel.path.name
    url, commit = origin["upstream"]["url"], origin["upstream"]["commit"]
    upstream = Component(
        name="k2",
        version=commit,
        type=ComponentType.LIBRARY,
        bom_ref=f"upstream-{commit}",
        licenses=[_LICENSE],
        external_references=[ExternalReference(type=ExternalReferenceType.VCS, url=XsUri(url))],
    )
    return Component(
        name="k2",
        version=str(wheel.version),
        type=ComponentType.LIBRARY,
        bom_ref=name,
        purl=PackageURL("pypi", None, "k2", str(wheel.version), {"file_name": name}),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
        licenses=[_LICENSE],
        pedigree=Pedigree(
            ancestors=[upstream],
            commits=[Commit(uid=commit)],
            notes="The ancestor with the patches of k2-mps, git's tree"
            f" {origin['series']}; git's id of the result is {origin['patched_tree']}.",
        ),
        properties=[Property(name=f"k2mps:{key}", value=str(origin.get(key))) for key in _TOLD],
    )


def _packages(wheel: WheelFile) -> Iterator[Component]:
    """The packages that pip installs with the wheel, and packages whose headers it contains."""
    needed = {one.name: str(one.specifier) for one in wheel.metadata.requires_dist or []}
    for how, packages in (("required", needed), ("compiled-in", wheel.origin["headers"])):
        for name, version in sorted(packages.items()):
            kind = ("deb", "debian") if name == "libc++" else ("pypi", None)
            match = re.fullmatch(r"(?:==)?(\w[\w.:~+-]*)", version)
            exact = match and match[1]
            yield Component(
                name=name,
                version=exact,
                type=ComponentType.LIBRARY,
                bom_ref=f"{how}-{name}",
                purl=PackageURL(*kind, name, exact),
                description="required, not contained" if how == "required" else "its headers",
            )


def _files(wheel: WheelFile) -> Iterator[Component]:
    """The libraries of the wheel and the kernels in them."""
    libraries = {
        name: sha256(content)
        for name, content in wheel.files.items()
        if name.endswith((".so", ".dylib"))
    }
    for kind, files in (("library", libraries), ("Metal kernels", wheel.origin["kernels"])):
        for name, digest in sorted(files.items()):
            yield Component(
                name=name,
                type=ComponentType.FILE,
                bom_ref=f"file-{name}",
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
                description=kind,
            )

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

_LIBRARY = re.compile(r"_k2\..*\.so|k2/lib/.*\.(dylib|so)")
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
    subject = _subject(wheel, digest)
    # The bill's time is that of the newest file.
    newest = max(entry.date_time for entry in wheel.entries.values())
    try:
        time = datetime.datetime(*newest, tzinfo=datetime.timezone.utc)
    except ValueError as error:
        raise refusal(path, "a wheel of k2-mps", f"the time of a file: {error}") from None
    tool = Component(name="k2mps", version=__version__, type=ComponentType.APPLICATION)
    tools = ToolRepository(components=[tool])
    needed = list(_packages(wheel))
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"sha256:{digest}"),
        metadata=BomMetaData(component=subject, timestamp=time, tools=tools),
        components=[*needed, *_files(wheel)],
    )
    bom.register_dependency(subject, needed)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def _subject(wheel: WheelFile, digest: str) -> Component:
    origin, version = wheel.origin, wheel.told("Version")
    url, commit = wheel.fact("upstream", "url"), wheel.fact("upstream", "commit")
    upstream = Component(
        name="k2",
        version=commit,
        type=ComponentType.LIBRARY,
        bom_ref=f"upstream-{commit}",
        licenses=[LicenseExpression("Apache-2.0")],
        external_references=[ExternalReference(type=ExternalReferenceType.VCS, url=XsUri(url))],
    )
    return Component(
        name="k2",
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=wheel.path.name,
        purl=PackageURL("pypi", None, "k2", version, {"file_name": wheel.path.name}),
        hashes=[_sha256(digest)],
        licenses=[LicenseExpression("Apache-2.0")],
        pedigree=Pedigree(
            ancestors=[upstream],
            commits=[Commit(uid=commit)],
            notes="The ancestor with the patches of k2-mps, git's tree"
            f" {origin.get('series')}; git's id of the result is {origin.get('patched_tree')}.",
        ),
        properties=[Property(name=f"k2mps:{name}", value=str(origin.get(name))) for name in _TOLD],
    )


def _packages(wheel: WheelFile) -> Iterator[Component]:
    """The packages that pip installs with the wheel, and packages whose headers it contains."""
    for wanted in wheel.requirements:
        exact = re.fullmatch(r"==([\w.]+)", str(wanted.specifier))
        version = exact[1] if exact else None
        yield _package("required", wanted.name, version, "required, not contained")
    for name, version in sorted(wheel.facts("headers").items()):
        yield _package("compiled-in", name, version, "headers, compiled in")


def _package(how: str, name: str, version: str | None, description: str) -> Component:
    kind = ("deb", "debian") if name == "libc++" else ("pypi", None)
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{how}-{name}",
        purl=PackageURL(*kind, name, version),
        description=description,
    )


def _files(wheel: WheelFile) -> Iterator[Component]:
    """The libraries of the wheel and the kernels in them."""
    for name, content in sorted(wheel.files.items()):
        if _LIBRARY.fullmatch(name):
            yield _file(name, sha256(content), "library")
    for name, digest in sorted(wheel.facts("kernels").items()):
        yield _file(name, digest, "source of Metal kernels, embedded")


def _file(name: str, digest: str, description: str) -> Component:
    return Component(
        name=name,
        type=ComponentType.FILE,
        bom_ref=f"file-{name}",
        hashes=[_sha256(digest)],
        description=description,
    )


def _sha256(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest)
